"""The tree of options, read from a root's schema: which keys exist, what is allowed, what was probably meant.

A tree is a JSON schema without references. Beside the schema's own words it has ``word``, what the whole is called
in messages, and may have ``allowed``, what to say instead of the list of its keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from attncem.base.types import ConfigError
from attncem.config.options.base import Options

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

Schema = dict[str, Any]
Root = type[Options] | Schema
"""What keys are looked up in: an options class, or a tree made by hand."""

_BOUNDS = (("minimum", ">="), ("exclusiveMinimum", ">"), ("maximum", "<="), ("exclusiveMaximum", "<"))
_ARTICLES = {"integer": "an ", "number": "a ", "list": "a ", "mapping": "a "}
_TYPES = {"integer": "integer", "number": "number", "string": "text", "boolean": "true or false", "null": "null"}
_EXPLAINED = (
    *("greater_than", "less_than", "int_", "float_", "bool_", "string_", "literal_", "model_", "list_", "tuple_"),
    *("too_short", "too_long", "none_", "dict_", "finite_number"),
)
"""Kinds of pydantic errors that the schema's own words explain in full."""


def option_tree(root: Root) -> Schema:
    """The tree of a root; ``about`` keeps the text of an options class."""
    return root if isinstance(root, dict) else _tree_of_class(root)


@cache
def _tree_of_class(root: type[Options]) -> Schema:
    schema = root.model_json_schema()
    tree: Schema = _inline(schema, schema.get("$defs", {}))
    return {**tree, "word": root.model_config.get("title") or "configuration"}


def _inline(node: Any, definitions: Schema) -> Any:
    if isinstance(node, list):
        return [_inline(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    rest = {key: _inline(value, definitions) for key, value in node.items() if key not in ("$ref", "$defs")}
    if "$ref" not in node:
        return rest
    target = _inline(definitions[node["$ref"].rpartition("/")[2]], definitions)
    return {**target, "about": target.get("description", ""), **rest}


def alternatives(schema: Schema) -> list[Schema]:
    """The concrete schemas that a value may have: members of a union, choices other than null."""
    inner = schema.get("anyOf") or schema.get("oneOf")
    if inner is None:
        return [] if schema.get("type") == "null" else [schema]
    return [concrete for part in inner for concrete in alternatives(part)]


def union_members(schema: Schema) -> dict[str, Schema]:
    """The members of a union of options by ``name``; empty for everything else."""
    if "discriminator" in schema:
        return {part["properties"]["name"]["const"]: part for part in alternatives(schema)}
    return next((found for part in schema.get("anyOf", ()) if (found := union_members(part))), {})


def children(schema: Schema, part: str | int) -> list[Schema]:
    """The schemas of one step down: a key (of any union member, any of a free mapping) or an item of a list."""
    if isinstance(part, int):
        return [concrete["items"] for concrete in alternatives(schema) if "items" in concrete]
    found = (concrete.get("properties", {}).get(part, free_values(concrete)) for concrete in alternatives(schema))
    return [below for below in found if below]


def free_values(schema: Schema) -> Schema | None:
    """The schema of the values of a mapping whose keys are free; None for everything else."""
    free = schema.get("additionalProperties")
    return free if isinstance(free, dict) else None


def object_schema(schema: Schema, value: Mapping[str, Any]) -> Schema:
    """The schema of an options object or a free mapping, by the value's ``name`` where that decides; else empty."""
    members = union_members(schema)
    if members:
        name = value.get("name")
        return members.get(name, {}) if isinstance(name, str) else {}
    return next((one for one in alternatives(schema) if "properties" in one or free_values(one)), {})


def items_of_options(schema: Schema) -> Schema | None:
    """The schema of a list's items where these are options objects."""
    for concrete in alternatives(schema):
        items: Schema | None = concrete.get("items")
        if items is not None and any("properties" in item for item in alternatives(items)):
            return items
    return None


def known_keys(tree: Schema) -> tuple[str, ...]:
    """Every dotted key, sections too, list positions left out."""
    return tuple(dict.fromkeys(_walk(tree, "")))


def _walk(schema: Schema, prefix: str) -> Iterator[str]:
    for concrete in alternatives(schema):
        yield from _walk(concrete["items"], prefix) if "items" in concrete else ()
        for name, below in concrete.get("properties", {}).items():
            yield prefix + name
            yield from _walk(below, f"{prefix}{name}.")


def nearest(word: str, candidates: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The candidate most like the word, if any is like it."""
    from difflib import get_close_matches

    if len(word) > 200:  # no key is as long, and the search would take its time
        return None
    return next(iter(get_close_matches(word, list(candidates), 1, cutoff)), None)


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
"""What people of the field, and the baseline's flags, call a key; the key that is meant."""


def nearest_key(key: str, tree: Schema) -> str | None:
    """The known dotted key that is meant by this one: by a usual name, as a whole, else by its last part."""
    keys = known_keys(tree)
    if (meant := MEANT.get(key)) in keys:
        return meant
    parts = [part for part in key.split(".") if not part.isdecimal()]
    whole = nearest(".".join(parts), keys, 0.75)
    if whole is not None or not parts:
        return whole
    by_last_part = {known.rpartition(".")[2]: known for known in reversed(keys)}
    match = nearest(parts[-1], by_last_part, 0.75)
    return None if match is None else by_last_part[match]


def show(value: Any) -> str:
    """A value as one would type it, cut to one line."""
    text = _show(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _show(value: Any, level: int = 0) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return value if value and value.isprintable() and value == value.strip() else repr(value)
    if isinstance(value, int) and value.bit_length() > 1000:  # Python writes out no number of thousands of digits
        return f"{'-' if value < 0 else ''}0x{abs(value) >> (value.bit_length() - 40):x}..."
    if isinstance(value, Mapping | Sequence) and level > 8:
        return "..."
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_show(key)}: {_show(item, level + 1)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(_show(item, level + 1) for item in value) + "]"
    return repr(value)


def choices(schema: Schema) -> tuple[str, ...]:
    """The values of an option that has a fixed list of them."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return tuple(show(value) for value in values) or tuple(union_members(schema))


def type_text(schema: Schema) -> str:
    """What a value may be, in words: ``integer >= 1``, ``one of: a, b``, ``number > 0 or null``."""
    if union_members(schema):
        return f"mapping with a name, one of: {', '.join(union_members(schema))}"
    if "anyOf" in schema:
        texts = [type_text(part) for part in schema["anyOf"]]
        return " or ".join(sorted(texts, key=lambda text: text.startswith("mapping")))
    if choices(schema):
        return f"one of: {', '.join(choices(schema))}"
    if "properties" in schema:
        return f"mapping with keys: {', '.join(schema['properties'])}"
    if "items" in schema:
        return f"list{_count_text(schema)}, each {_with_article(type_text(schema['items']))}"
    if free_values(schema) or schema.get("type") == "object":
        return "mapping with any keys"
    bounds = " and ".join(f"{sign} {show(schema[word])}" for word, sign in _BOUNDS if word in schema)
    length = f"of at most {schema['maxLength']} letters" if "maxLength" in schema else ""
    pattern = f"matching {schema['pattern']}" if "pattern" in schema else ""
    return " ".join(filter(None, (_TYPES.get(schema.get("type", ""), "value"), bounds, length, pattern)))


def _count_text(schema: Schema) -> str:
    """How many items a list may have, in words."""
    least, most = schema.get("minItems", 0), schema.get("maxItems")
    if most is not None:
        return f" of {least} to {most}"
    return f" of at least {least}" if least else ""


def must_be(schema: Schema) -> str:
    """``must be`` and what is allowed."""
    return f"must be {_with_article(type_text(schema))}"


def _with_article(text: str) -> str:
    return _ARTICLES.get(text.split(maxsplit=1)[0].rstrip(","), "") + text.replace(" or mapping", " or a mapping")


def did_you_mean(guess: str | None) -> str:
    """The question to append, or nothing."""
    return "" if guess is None else f"; did you mean {guess}?"


def known(key: str, name: str, table: Iterable[str]) -> str:
    """The name, if the table has it; else a ConfigError with the allowed names and the nearest."""
    names = sorted(table)
    if name in names:
        return name
    hint = did_you_mean(nearest(name, names, 0.4))
    raise ConfigError(f"{key}={name} is unknown{hint} (allowed: {', '.join(names)})")


def fail(lines: Sequence[str], tree: Schema) -> ConfigError:
    """One error for all problems, each on its own line."""
    if len(lines) == 1:
        return ConfigError(lines[0])
    return ConfigError("\n".join([f"{len(lines)} problems in the {tree['word']}:", *(f"  {line}" for line in lines)]))


@dataclass
class _Place:
    """Where a problem is: the key as people write it, the schema there, and the tree of the whole."""

    tree: Schema
    here: Schema
    parts: list[str] = field(default_factory=list)
    holder: Schema = field(default_factory=dict)
    union: Schema = field(default_factory=dict)
    name: str | None = None

    @property
    def key(self) -> str:
        return ".".join(self.parts)

    def below(self, part: str) -> str:
        return ".".join([*self.parts, part])


def problem_lines(error: ValidationError, tree: Schema) -> list[str]:
    """Every problem that validation found, one line each, for people."""
    problems = error.errors(include_url=False)
    # A mapping where a number or options may stand was meant as options: what is wrong inside says it all.
    telling = [p for p in problems if not (p["type"] == "float_type" and isinstance(p["input"], Mapping))]
    return list(dict.fromkeys(_line(problem, tree) for problem in telling or problems))


def _locate(location: Sequence[str | int], tree: Schema, unknown: bool) -> _Place:
    """Follow a location; the names of union members and of plain types that pydantic inserts are not shown."""
    place = _Place(tree, tree)
    for step, part in enumerate(location, 1):
        members = union_members(place.here)
        if isinstance(part, str) and part in members:
            place.union, place.name, place.here = place.here, part, members[part]
            continue
        kinds = alternatives(place.here) if "anyOf" in place.here else []
        branch = next((concrete for concrete in kinds if concrete.get("title") == part), None)
        if branch is not None:
            place.here = branch if step < len(location) else place.here
            continue
        found = children(place.here, part)
        if found or unknown:
            place.holder, place.here = place.here, found[0] if found else {}
            place.parts.append(str(part))
        if found:
            place.union, place.name = {}, None
    return place


def _line(problem: ErrorDetails, tree: Schema) -> str:
    kind, value = problem["type"], problem["input"]
    if problem["loc"][-1:] == ("[key]",):
        return f"{show('.'.join(str(part) for part in problem['loc'][:-1]))}: a key must be text"
    place = _locate(problem["loc"], tree, kind in ("extra_forbidden", "invalid_key"))
    if kind == "invalid_key":
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
    allowed = list(object_schema(place.holder, {}).get("properties", {}))
    owners = [name for name, member in union_members(place.union).items() if part in member["properties"]]
    if owners:
        names = " or ".join(f"{prefix}name={name}" for name in owners)
        return f"{place.key}: is an option of {names}, not of {prefix}name={place.name}; allowed: {', '.join(allowed)}"
    if "." in part:
        nested = show(part.replace(".", ": {", 1))
        return f"{show(place.key)}: dotted keys are for overrides; here write nested keys, {nested}: ...}}"
    sibling = nearest(part, allowed)
    guess = nearest_key(place.key, place.tree) if sibling is None else prefix + sibling
    guess = None if guess is not None and place.key.startswith(f"{guess}.") else guess
    return f"{show(place.key)}: unknown key{did_you_mean(guess) or '.'} Allowed: {', '.join(allowed)}"


def _unknown_name(place: _Place, value: Any) -> str:
    names = list(union_members(place.here))
    key = place.below("name")
    if not isinstance(value, Mapping) or "name" not in value:
        return f"{key}: is missing; must be one of: {', '.join(names)}"
    given = value["name"]
    guess = nearest(given, names, 0.7) if isinstance(given, str) else None
    return f"{key}={show(given)}: must be one of: {', '.join(names)}{did_you_mean(guess)}"


def _wrong_value(place: _Place, kind: str, value: Any, message: str) -> str:
    line = f"{place.key or 'the ' + place.tree['word']}={show(value)}: {must_be(place.here)}"
    if not kind.startswith(_EXPLAINED):
        line = f"{place.key}: {message}" if kind == "missing" else f"{line} ({message})"
    named = "name" in object_schema(place.here, {}).get("properties", {})
    if isinstance(value, str) and (named or value in union_members(place.here)):
        return line + did_you_mean(f"{place.below('name')}={value}")
    if kind == "string_type" and isinstance(value, int | float):
        return f'{line}; to give it as text, put it in quotes: "{show(value)}"'
    return line + did_you_mean(nearest(value, choices(place.here), 0.7) if isinstance(value, str) else None)
