"""Dotted overrides: ``training.epochs=3`` from a command line or a program, laid over the data of a YAML.

The result does not depend on the order of different keys: overrides are sorted, names first, parents before
children. A mapping as a value counts as one override for each of its keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

from pydantic import BaseModel

from attncem.base.types import ConfigError
from attncem.config.loading.suggest import (
    Root,
    Schema,
    alternatives,
    children,
    did_you_mean,
    fail,
    items_of_options,
    known_keys,
    must_be,
    nearest_key,
    object_schema,
    option_tree,
    show,
    union_members,
)
from attncem.config.loading.yaml_text import DEEPEST, parse_yaml
from attncem.config.options.run import RunConfig

Path = tuple[str | int, ...]

_EXPECTED = "expected key=value, --key=value or --key value"
_NUMBER = re.compile(r"-[0-9.]")
_BOOLEAN = re.compile(r"true|false|yes|no|on|off|[01]", re.IGNORECASE)
_POSITION = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class Override:
    """One value for one key. ``implied`` are the steps of the path where position 0 was not written."""

    path: Path
    value: Any
    implied: frozenset[int]

    @property
    def key(self) -> str:
        """The dotted key as people may write it."""
        return ".".join(str(part) for step, part in enumerate(self.path) if step not in self.implied)


def plain(value: Any, level: int = 0) -> Any:
    """A copy made of dict, list and scalars only; ConfigError for one that is nested too deeply, or in itself."""
    if level > DEEPEST:
        raise ConfigError(f"{show(value)}: nested too deeply: {DEEPEST} levels at most")
    if isinstance(value, BaseModel):
        value = value.model_dump()
    if isinstance(value, Mapping):
        return {key: plain(item, level + 1) for key, item in value.items()}
    return [plain(item, level + 1) for item in value] if isinstance(value, list | tuple) else value


def complete(value: Any, schema: Schema, default: Any = None) -> Any:
    """Fill in what the schema implies: a lone mapping is a list of one, a union's name is its default's."""
    items = items_of_options(schema)
    if items is not None and isinstance(value, dict):
        value = [value]
    if items is not None and isinstance(value, list):
        defaults = chain(default if isinstance(default, list) else (), repeat(None))
        return [complete(item, items, own) for item, own in zip(value, defaults, strict=False)]
    if not isinstance(value, dict):
        return value
    if union_members(schema) and "name" not in value and isinstance(default, dict):
        value = {"name": default["name"], **value}
    concrete = object_schema(schema, value)
    return {key: _complete_below(item, children(concrete, str(key))) for key, item in value.items()}


def _complete_below(value: Any, schemas: list[Schema]) -> Any:
    return complete(value, schemas[0], schemas[0].get("default")) if schemas else value


def parse_overrides(given: Sequence[str] | Mapping[str, Any], tree: Schema) -> list[Override]:
    """Overrides in the order of application; unknown keys are reported all at once."""
    pairs = given.items() if isinstance(given, Mapping) else [_split(text, tree) for text in given]
    chosen: dict[Path, tuple[int, Override]] = {}
    problems: dict[str, None] = {}
    for key, value in pairs:
        for parts, leaf in _leaves(tuple(str(key).strip().split(".")), plain(value)):
            trace = _trace(parts, tree)
            if trace is None:
                problems[_unknown(parts, tree)] = None
            # The more specific key wins over a mapping that holds it; the same key again: the last one.
            elif (depth := str(key).count(".")) >= chosen.get(trace.path, (0,))[0]:
                chosen[trace.path] = (depth, Override(trace.path, leaf, trace.implied))
    if problems:
        raise fail(list(problems), tree)
    return sorted((override for _, override in chosen.values()), key=lambda override: _rank(override.path))


def _split(text: str, tree: Schema) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        keys = known_keys(tree)
        example = "training.epochs=3" if "training.epochs" in keys else f"{keys[-1]}=..."
        raise ConfigError(f"{show(text)}: not an override; expected key=value, e.g. {example}")
    return key, parse_yaml(value, f"the value of {show(text)}")


def _leaves(parts: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A mapping as one value for each of its keys; an empty one stays a value."""
    if not isinstance(value, dict) or not value:
        yield parts, value
        return
    for key, item in value.items():
        yield from _leaves((*parts, *str(key).split(".")), item)


@dataclass(frozen=True)
class _Trace:
    """A dotted key followed through the schema: the path, and the schemas at its end."""

    path: Path
    implied: frozenset[int]
    schemas: list[Schema]


def _trace(parts: tuple[str, ...], tree: Schema) -> _Trace | None:
    """The path through the schema, with positions as numbers; None for a key that cannot exist.

    A last part that is unknown inside known options is let through: validation knows which are allowed.
    """
    here, path, implied = [tree], list[str | int](), set[int]()
    for step, part in enumerate(parts):
        items = [item for schema in here for item in children(schema, 0)]
        if items and _POSITION.fullmatch(part):
            path, here = [*path, int(part)], items
            continue
        if items:
            implied.add(len(path))
            path, here = [*path, 0], items
        below = [found for schema in here for found in children(schema, part)]
        inside_options = any("properties" in concrete for schema in here for concrete in alternatives(schema))
        if not below and not (inside_options and 0 < step == len(parts) - 1):
            return None
        path, here = [*path, part], below
    return _Trace(tuple(path), frozenset(implied), here)


def _unknown(parts: tuple[str, ...], tree: Schema) -> str:
    key = ".".join(parts)
    guess = did_you_mean(nearest_key(key, tree)) or "."
    allowed = tree.get("allowed") or f"Allowed at the top: {', '.join(tree['properties'])}"
    return f"{show(key)}: unknown key{guess} {allowed}"


def _rank(path: Path) -> tuple[tuple[int, int, str], ...]:
    """Sort key: parents first, ``name`` before its siblings, positions in their order."""
    return tuple(
        (1, part, "") if isinstance(part, int) else (0, 0, "") if part == "name" else (2, 0, part) for part in path
    )


def apply_overrides(
    data: dict[str, Any], overrides: Sequence[Override], tree: Schema
) -> tuple[dict[str, Any], list[str]]:
    """The data with the overrides laid over it, and a note for every dropped option."""
    notes: list[str] = []
    for override in overrides:
        holder: Any = data
        schema = tree
        for step in range(len(override.path) - 1):
            holder, schema = _enter(holder, schema, override, step)
        _assign(holder, schema, override, notes)
        if isinstance(override.value, list | dict):
            data = complete(data, tree)
    return data, notes


def _enter(holder: Any, schema: Schema, override: Override, step: int) -> tuple[Any, Schema]:
    """One step down; what the data leave out comes from the defaults."""
    part, following = override.path[step], override.path[step + 1]
    below = _below(schema, holder, part)
    if isinstance(holder, list):
        _check_position(holder, override, step)
        holder.extend([None] if part == len(holder) else [])
    slots: Any = holder
    current = slots[part] if isinstance(holder, list) else slots.get(part)
    if current is None:
        current = slots[part] = _skeleton(below) or ([] if isinstance(following, int) else {})
    if not isinstance(current, list if isinstance(following, int) else dict):
        key = ".".join(str(name) for name in override.path[: step + 1])
        raise ConfigError(f"{key}={show(current)}: {must_be(below)}; so {override.key} cannot be set")
    return current, below


def _below(schema: Schema, holder: Any, part: str | int) -> Schema:
    concrete = schema if isinstance(holder, list) else object_schema(schema, holder)
    return next(iter(children(concrete, part)), {})


def _skeleton(schema: Schema) -> Any:
    """The default as if it had been written in the YAML: names, and what differs from the class's own defaults."""
    default = schema.get("default")
    items = items_of_options(schema)
    if items is not None and isinstance(default, list):
        return [_trim(item, items) for item in default]
    return _trim(default, schema) if isinstance(default, dict) else plain(default)


def _trim(default: dict[str, Any], schema: Schema) -> dict[str, Any]:
    known = object_schema(schema, default).get("properties", {})
    union = bool(union_members(schema))
    return {
        key: plain(value)
        for key, value in default.items()
        if (union and key == "name") or value != known.get(key, {}).get("default")
    }


def _check_position(holder: list[Any], override: Override, step: int) -> None:
    position = override.path[step]
    assert isinstance(position, int)
    name = ".".join(str(part) for part in override.path[:step])
    if step in override.implied and len(holder) > 1:
        rest = ".".join(str(part) for part in override.path[step + 1 :])
        raise ConfigError(f"{override.key}: {name} has {len(holder)} items; say which: {name}.0.{rest}, ...")
    if position > len(holder):
        raise ConfigError(f"{override.key}: {name} has {len(holder)} item(s); the next position is {len(holder)}")


def _assign(holder: Any, schema: Schema, override: Override, notes: list[str]) -> None:
    part, value = override.path[-1], override.value
    if isinstance(holder, list):
        _check_position(holder, override, len(override.path) - 1)
        assert isinstance(part, int)
        holder[part : part + 1] = [value]
        return
    if part == "name" and union_members(schema) and holder.get("name", value) != value:
        prefix = ".".join(str(above) for above in override.path)
        dropped = ", ".join(f"{key}={show(item)}" for key, item in holder.items() if key != "name")
        notes.extend([f"{prefix}: {show(holder['name'])} → {show(value)} drops {dropped}"] if dropped else [])
        holder.clear()
    if value != {} or not isinstance(holder.get(part), dict):
        holder[part] = value


def parse_cli_overrides(tokens: Sequence[str], root: Root = RunConfig) -> list[str]:
    """Leftover command-line words as override strings: ``a.b=v``, ``--a.b=v``, ``--a.b v``, ``--flag``."""
    tree = option_tree(root)
    waiting = list(reversed(tokens))
    found = []
    while waiting:
        token = waiting.pop()
        body = token.removeprefix("--")
        key, equals, _ = body.partition("=")
        if body.startswith("-") or not key or _has_stray_space(key, tree):
            raise ConfigError(f"{show(token)}: {_EXPECTED}")
        if equals:
            found.append(body)
        elif body == token:
            hint = did_you_mean(f"--{guess}") if (guess := nearest_key(token, tree)) else ""
            raise ConfigError(f"{show(token)}: {_EXPECTED}{hint}")
        else:
            found.append(f"{key}={_value_of(key, waiting, tree)}")
    return found


def _has_stray_space(key: str, tree: Schema) -> bool:
    """Whether there is white space in the key; a first part that is known by a name with spaces may have it."""
    first, _, rest = key.partition(".")
    return any(letter.isspace() for letter in (rest if first in tree["properties"] else key))


def _value_of(key: str, waiting: list[str], tree: Schema) -> str:
    """The value of ``--key``: the next word, or true for a true/false option without one."""
    parts = tuple(key.split("."))
    trace = _trace(parts, tree)
    if trace is None:
        raise fail([_unknown(parts, tree)], tree)
    following = waiting[-1] if waiting else "--"
    if any(one.get("type") == "boolean" for schema in trace.schemas for one in alternatives(schema)):
        return waiting.pop() if _BOOLEAN.fullmatch(following) else "true"
    if following.startswith("-") and not _NUMBER.match(following):
        raise ConfigError(f"--{key}: needs a value; {_EXPECTED}")
    return waiting.pop()
