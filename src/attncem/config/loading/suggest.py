"""Error messages about invalid options, with suggestions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from attncem.base.types import ConfigError
from attncem.config.loading.flat import show
from attncem.config.loading.tree import NOWHERE, Node, known_keys

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_EXPLAINED = (
    *("greater_than", "less_than", "int_", "float_", "bool_", "string_", "literal_", "model_", "list_", "tuple_"),
    *("too_short", "too_long", "none_", "dict_", "finite_number"),
)
"""Kinds of pydantic errors that the text of a node explains in full."""


def nearest(word: str, candidates: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The candidate most similar to the word, in any case; None if none is similar."""
    from difflib import get_close_matches

    if len(word) > 200:  # no key is this long, and the search would be slow
        return None
    by_letters = {candidate.lower(): candidate for candidate in candidates}
    match = get_close_matches(word.lower(), list(by_letters), 1, cutoff)
    return by_letters[match[0]] if match else None


MEANT = {
    **dict.fromkeys(("lr", "learning_rate"), "training.optimizer.lr"),
    **dict.fromkeys(("lambda", "lambd", "penalty", "weight", "kl_weight"), "training.penalty_weight"),
    **dict.fromkeys(("noise", "sigma", "std", "noise_level", "regularization_strength"), "channel.noise_std"),
    **dict.fromkeys(("epochs", "num_epochs", "epoch"), "training.epochs"),
    **dict.fromkeys(("batch", "bs"), "training.batch_size"),
    **dict.fromkeys(("dataset", "data_set"), "data.name"),
    **dict.fromkeys(("arch", "architecture", "network", "backbone"), "model.name"),
    **dict.fromkeys(("cutlayer", "cut_layer", "split", "split_layer"), "model.cut"),
    **dict.fromkeys(("random_seed", "manual_seed"), "seed"),
    **dict.fromkeys(("data_dir", "data_root", "datapath"), "data.root"),
    **dict.fromkeys(("method", "defence", "defense"), "surrogate.name"),
    **dict.fromkeys(("regularization", "channels"), "channel.name"),
    "AT_regularization": "penalties.name",
    "AT_regularization_strength": "penalties.weight",
    "bottleneck_option": "model.bottleneck",
    "filename": "name",
    "gpu": "device",
    "amp": "training.precision",
    "scheduler": "training.schedule.name",
    "optim": "training.optimizer.name",
}
"""Aliases of option keys, from the literature and from the baseline's flags."""


def nearest_key(key: str, tree: Node) -> str | None:
    """The known dotted key nearest to this one: by alias, by both ends, by the full key, or by its last part."""
    keys = known_keys(tree)
    if (meant := MEANT.get(key)) in keys:
        return meant
    parts = [part for part in key.split(".") if not part.isdecimal()]
    deeper = [it for it in keys if it.startswith(f"{parts[0]}.") and it.endswith(f".{parts[-1]}")] if parts else []
    if len(deeper) == 1:
        return deeper[0]
    whole = nearest(".".join(parts), keys, 0.75)
    if whole is not None or not parts:
        return whole
    by_last_part = {full_key.rpartition(".")[2]: full_key for full_key in reversed(keys)}
    match = nearest(parts[-1], by_last_part, 0.75)
    return None if match is None else by_last_part[match]


def did_you_mean(guess: str | None) -> str:
    """A question with the guess, to append to a message; empty without a guess."""
    return "" if guess is None else f"; did you mean {guess}?"


def known(key: str, name: str, table: Iterable[str]) -> str:
    """The name, if the table has it; otherwise a ConfigError with the allowed names and the nearest one."""
    names = sorted(table)
    if name in names:
        return name
    hint = did_you_mean(nearest(name, names, 0.4))
    raise ConfigError(f"{key}={name} is unknown{hint} (allowed: {', '.join(names)})")


def fail(lines: Sequence[str], tree: Node) -> ConfigError:
    """One error for all problems, each on its own line."""
    if len(lines) == 1:
        return ConfigError(lines[0])
    return ConfigError("\n".join([f"{len(lines)} problems in the {tree.word}:", *(f"  {line}" for line in lines)]))


@dataclass
class _Place:
    """The place of a problem: the key as users write it, its node, and the whole tree."""

    tree: Node
    here: Node
    parts: list[str] = field(default_factory=list)
    holder: Node = NOWHERE
    union: Node = NOWHERE
    name: str | None = None

    @property
    def key(self) -> str:
        return ".".join(self.parts)

    def below(self, part: str) -> str:
        return ".".join([*self.parts, part])


def problem_lines(error: ValidationError, tree: Node) -> list[str]:
    """Every problem that validation found, one readable line each."""
    problems = error.errors(include_url=False)
    # A mapping where a number or options are allowed was meant as options: the errors inside it suffice.
    telling = [p for p in problems if not (p["type"] == "float_type" and isinstance(p["input"], Mapping))]
    return list(dict.fromkeys(_line(problem, tree) for problem in telling or problems))


def _locate(location: Sequence[str | int], tree: Node, unknown: bool) -> _Place:
    """Follow a location; names of union members and of plain types that pydantic inserts are not shown."""
    place = _Place(tree, tree)
    for step, part in enumerate(location, 1):
        if isinstance(part, str) and part in place.here.members:
            place.union, place.name, place.here = place.here, part, place.here.members[part]
            continue
        below = place.here.below(part)
        if below is not NOWHERE or (unknown and step == len(location)):
            place.holder, place.here = place.here, below
            place.parts.append(str(part))
        if below is not NOWHERE:
            place.union, place.name = NOWHERE, None
    return place


def _line(problem: ErrorDetails, tree: Node) -> str:
    kind, value = problem["type"], problem["input"]
    location = [part for part in problem["loc"] if part != "[key]"]
    no_text = kind == "invalid_key" or len(location) < len(problem["loc"])
    place = _locate(location, tree, unknown=no_text or kind == "extra_forbidden")
    if no_text:
        return f"{show(place.key)}: a key must be text"
    if kind == "extra_forbidden":
        return _unknown_key(place)
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _unknown_name(place, value)
    if kind in ("value_error", "assertion_error"):
        message = str(problem.get("ctx", {}).get("error", problem["msg"]))
        return f"{place.key}: {message}" if place.key else message
    return _wrong_value(place, kind, value, problem["msg"])


def _unknown_key(place: _Place) -> str:
    part = place.parts[-1]
    prefix = place.key[: -len(part)]
    allowed = ", ".join(place.holder.keys)
    owners = [name for name, member in place.union.members.items() if part in member.keys]
    if owners:
        names = " or ".join(f"{prefix}name={name}" for name in owners)
        return f"{place.key}: is an option of {names}, not of {prefix}name={place.name}; allowed: {allowed}"
    if "." in part:
        nested = show(part.replace(".", ": {", 1))
        return f"{show(place.key)}: dotted keys are for overrides; here write nested keys, {nested}: ...}}"
    sibling = nearest(part, place.holder.keys)
    guess = nearest_key(place.key, place.tree) if sibling is None else prefix + sibling
    guess = None if guess is not None and place.key.startswith(f"{guess}.") else guess
    return f"{show(place.key)}: unknown key{did_you_mean(guess) or '.'} Allowed: {allowed}"


def _unknown_name(place: _Place, value: Any) -> str:
    names = place.here.choices
    key = place.below("name")
    if not isinstance(value, Mapping) or "name" not in value:
        return f"{key}: is missing; must be one of: {', '.join(names)}"
    name = value["name"]
    guess = nearest(name, names, 0.7) if isinstance(name, str) else None
    return f"{key}={show(name)}: must be one of: {', '.join(names)}{did_you_mean(guess)}"


def _wrong_value(place: _Place, kind: str, value: Any, message: str) -> str:
    line = f"{place.key or 'the ' + place.tree.word}={show(value)}: {place.here.must_be}"
    if not kind.startswith(_EXPLAINED):
        line = f"{place.key}: {message}" if kind == "missing" else f"{line} ({message})"
    if isinstance(value, str) and ("name" in place.here.keys or value in place.here.members):
        return line + did_you_mean(f"{place.below('name')}={value}")
    if kind == "string_type" and isinstance(value, int | float):
        return f'{line}; to give it as text, put it in quotes: "{show(value)}"'
    return line + did_you_mean(nearest(value, place.here.choices, 0.7) if isinstance(value, str) else None)
