"""Dotted overrides: ``training.epochs=3`` from a command line or a program, applied to the data of a YAML.

The result does not depend on the order of different keys: overrides are sorted, names first, parents before
children. A mapping as a value counts as one override for each of its keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

from attncem.base.types import ConfigError
from attncem.config.loading.flat import dotted, plain, show
from attncem.config.loading.suggest import did_you_mean, fail, nearest_key
from attncem.config.loading.tree import BOOLEAN, Node, Root, known_keys, option_tree
from attncem.config.loading.yaml_text import parse_yaml
from attncem.config.options.model import ModelOptions, given_up
from attncem.config.options.run import RunConfig

Path = tuple[str | int, ...]

_EXPECTED = "expected key=value, --key=value or --key value"
_NUMBER = re.compile(r"-[0-9.]")
_BOOLEAN = re.compile(r"true|false|yes|no|on|off|[01]", re.IGNORECASE)
_NETWORK = ("model", "name")
_POSITION = re.compile(r"[0-9]{1,9}")


class Implied(int):
    """Position 0 of a list, implied by a key that names an item's option without a position."""


@dataclass(frozen=True)
class Override:
    """One value for one key."""

    path: Path
    value: Any

    @property
    def key(self) -> str:
        """The dotted key as users may write it."""
        return _key(part for part in self.path if not isinstance(part, Implied))


def complete(value: Any, node: Node, default: Any = None) -> Any:
    """Fill in what the tree implies: a single mapping becomes a list of one, a missing union name the default's."""
    if (items := node.option_items) is not None and isinstance(value, dict | list):
        defaults = chain(default if isinstance(default, list) else (), repeat(None))
        each = [value] if isinstance(value, dict) else value
        return [complete(item, items, usual) for item, usual in zip(each, defaults, strict=False)]
    if not isinstance(value, dict):
        return value
    if node.members and "name" not in value and isinstance(default, dict):
        value = {"name": default["name"], **value}
    options = node.chosen(value)
    below = ((key, item, options.below(str(key))) for key, item in value.items())
    return {key: complete(item, inner, inner.default) for key, item, inner in below}


def parse_overrides(overrides: Sequence[str] | Mapping[str, Any], tree: Node) -> list[Override]:
    """Overrides in the order of application; all unknown keys are reported at once."""
    pairs = overrides.items() if isinstance(overrides, Mapping) else [_split(text, tree) for text in overrides]
    chosen: dict[Path, tuple[int, Override]] = {}
    problems: dict[str, None] = {}
    for key, value in pairs:
        for full_key, leaf in dotted({str(key).strip(): plain(value)}):
            path, _ = _trace(full_key, tree)
            if not path:
                problems[_unknown(full_key, tree)] = None
            # The more specific key wins over a mapping that holds it; of equal keys the last one wins.
            elif (depth := str(key).count(".")) >= chosen.get(path, (0,))[0]:
                chosen[path] = (depth, Override(path, leaf))
    if problems:
        raise fail(list(problems), tree)
    return sorted((override for _, override in chosen.values()), key=lambda override: _rank(override.path))


def and_override(
    overrides: Sequence[str] | Mapping[str, Any], key: str, value: str
) -> Sequence[str] | Mapping[str, Any]:
    """The overrides and one more, a text; in quotes, so that no text is read as a number."""
    if isinstance(overrides, Mapping):
        return {**overrides, key: value}
    return [*overrides, f"{key}={json.dumps(value)}"]


def _split(text: str, tree: Node) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        keys = known_keys(tree)
        budgets = ("training.epochs", "decoder.epochs")
        example = next((f"{key}=3" for key in budgets if key in keys), f"{keys[-1]}=...")
        raise ConfigError(f"{show(text)}: not an override; expected key=value, e.g. {example}")
    return key, parse_yaml(value, f"the value of {show(text)}")


def _trace(key: str, tree: Node) -> tuple[Path, list[Node]]:
    """The path of a dotted key, with positions as numbers, and the nodes it may lead to; empty if there are none.

    An unknown last part inside known options is accepted here: validation knows the allowed ones.
    """
    path: list[str | int] = []
    here = [tree]
    parts = key.split(".")
    for step, part in enumerate(parts):
        if items := [node.items for node in here if node.items is not None]:
            here = items
            path.append(int(part) if _POSITION.fullmatch(part) else Implied())
            if not isinstance(path[-1], Implied):
                continue
        inside_options = any(node.keys or node.members for node in here)
        here = [below for node in here for below in node.all_below(part)]
        if not here and not (inside_options and 0 < step == len(parts) - 1):
            return (), []
        path.append(part)
    return tuple(path), here


def _unknown(key: str, tree: Node) -> str:
    guess = did_you_mean(nearest_key(key, tree)) or "."
    allowed = tree.allowed or f"Allowed at the top: {', '.join(tree.keys)}"
    return f"{show(key)}: unknown key{guess} {allowed}"


def _rank(path: Path) -> tuple[tuple[int, int, str], ...]:
    """Sort key: parents first, ``name`` before its siblings, positions in their order."""
    return tuple(
        (1, part, "") if isinstance(part, int) else (0, 0, "") if part == "name" else (2, 0, part) for part in path
    )


def apply_overrides(
    data: dict[str, Any], overrides: Sequence[Override], tree: Node
) -> tuple[dict[str, Any], list[str]]:
    """The data with the overrides applied, and a note for every dropped option."""
    notes: list[str] = []
    for override in overrides:
        holder: Any = data
        node = tree
        for step in range(len(override.path) - 1):
            holder, node = _enter(holder, node, override, step)
        _assign(holder, node, override, notes)
        if isinstance(override.value, list | dict):
            data = complete(data, tree)
    return data, notes


def _enter(holder: Any, node: Node, override: Override, step: int) -> tuple[Any, Node]:
    """One step down; missing data is filled in from the defaults."""
    part, following = override.path[step : step + 2]
    below = node.chosen(holder).below(part)
    kind = list if isinstance(following, int) else dict
    if isinstance(holder, list):
        _check_position(holder, override, step)
        holder.extend([None] if part == len(holder) else [])
    slots: Any = holder
    current = slots[part] if isinstance(holder, list) else slots.get(part)
    if current is None:
        default = None if below.default is ... else plain(below.default)
        current = slots[part] = default or kind()
    if not isinstance(current, kind):
        key = _key(override.path[: step + 1])
        raise ConfigError(f"{key}={show(current)}: {below.must_be}; so {override.key} cannot be set")
    return current, below


def _key(parts: Iterable[str | int]) -> str:
    return ".".join(map(str, parts))


def _check_position(holder: list[Any], override: Override, step: int) -> None:
    position: Any = override.path[step]
    name = _key(override.path[:step])
    if isinstance(position, Implied) and len(holder) > 1:
        rest = _key(override.path[step + 1 :])
        raise ConfigError(f"{override.key}: {name} has {len(holder)} items; say which: {name}.0.{rest}, ...")
    if position > len(holder):
        raise ConfigError(f"{override.key}: {name} has {len(holder)} item(s); the next position is {len(holder)}")


def _assign(holder: Any, node: Node, override: Override, notes: list[str]) -> None:
    part: Any = override.path[-1]
    value = override.value
    if isinstance(holder, list):
        _check_position(holder, override, len(override.path) - 1)
        holder[part : part + 1] = [value]
        return
    if part == "name" and node.members and holder.get("name", value) != value:
        dropped = ", ".join(f"{key}={show(item)}" for key, item in holder.items() if key != "name")
        if dropped:
            notes.append(f"{_key(override.path)}: {show(holder['name'])} → {show(value)} drops {dropped}")
        holder.clear()
    if override.path == _NETWORK:
        notes.extend(_set_back(holder, str(value)))
    if value != {} or not isinstance(holder.get(part), dict):
        holder[part] = value


def _set_back(model: dict[str, Any], name: str) -> Iterator[str]:
    """Remove the options that the new network sets itself; a note where that changes one."""
    before = model.get("name", ModelOptions().name)
    usual = plain(ModelOptions())
    dropped = {key: model.pop(key) for key in given_up(str(before), name) if key in model}
    changed = ", ".join(f"{key}={show(item)}" for key, item in dropped.items() if item != usual[key])
    if changed:
        yield f"model.name: {show(before)} → {show(name)} drops {changed}"


def parse_cli_overrides(tokens: Sequence[str], root: Root = RunConfig) -> list[str]:
    """Remaining command-line words as override strings: ``a.b=v``, ``--a.b=v``, ``--a.b v``, ``--flag``."""
    tree = option_tree(root)
    waiting = list(reversed(tokens))
    overrides = []
    while waiting:
        token = waiting.pop()
        body = token.removeprefix("--")
        key, equals, _ = body.partition("=")
        if body.startswith("-") or not key or _has_stray_space(key, tree):
            raise ConfigError(f"{show(token)}: {_EXPECTED}")
        if equals:
            overrides.append(body)
        elif body == token:
            hint = did_you_mean(f"--{guess}") if (guess := nearest_key(token, tree)) else ""
            raise ConfigError(f"{show(token)}: {_EXPECTED}{hint}")
        else:
            overrides.append(f"{key}={_value_of(key, waiting, tree)}")
    return overrides


def _has_stray_space(key: str, tree: Node) -> bool:
    """Whether the key contains white space; a known first part may contain it."""
    first, _, rest = key.partition(".")
    return any(letter.isspace() for letter in (rest if first in tree.keys else key))


def _value_of(key: str, waiting: list[str], tree: Node) -> str:
    """The value of ``--key``: the next word, or true for a true/false option without one."""
    path, nodes = _trace(key, tree)
    if not path:
        raise fail([_unknown(key, tree)], tree)
    following = waiting[-1] if waiting else "--"
    if any(BOOLEAN in node.types for node in nodes):
        return waiting.pop() if _BOOLEAN.fullmatch(following) else "true"
    if following.startswith("-") and not _NUMBER.match(following):
        raise ConfigError(f"--{key}: needs a value; {_EXPECTED}")
    return waiting.pop()
