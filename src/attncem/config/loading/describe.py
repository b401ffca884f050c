"""Help made from a root's schema: every option with its type, default and meaning."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from attncem.base.types import ConfigError
from attncem.config.loading.suggest import (
    Root,
    Schema,
    alternatives,
    children,
    choices,
    did_you_mean,
    items_of_options,
    nearest,
    nearest_key,
    option_tree,
    show,
    type_text,
    union_members,
)
from attncem.config.options.run import RunConfig


@dataclass(frozen=True)
class OptionHelp:
    """One option. ``when`` is the choice under which it exists, e.g. ``surrogate.name=kmeans``; empty: always."""

    key: str
    type: str
    default: str
    meaning: str
    choices: tuple[str, ...] = ()
    when: str = ""


def describe_options(root: Root = RunConfig) -> list[OptionHelp]:
    """Every option of a root in order, those of each union member after the union's name."""
    return list(_options(option_tree(root), "", ""))


def _options(schema: Schema, prefix: str, when: str) -> Iterator[OptionHelp]:
    for name, below in schema["properties"].items():
        if not (name == "name" and "const" in below and when == f"{prefix}name={below['const']}"):
            yield from _option(below, prefix + name, when, schema)


def _option(schema: Schema, key: str, when: str, holder: Schema) -> Iterator[OptionHelp]:
    """An option, or the options of a section, a union or a list of them."""
    below = [concrete for concrete in alternatives(schema) if "properties" in concrete]
    items = items_of_options(schema)
    if items is not None:
        yield _help(schema, key, when, f"list of {key} options", holder)
        given = next(iter(schema.get("default") or ()), None)
        first = given or {"name": next(iter(union_members(items)))}
        kind = f"Kind of the item{'' if given else ', none by default'}; {key}.0.name, {key}.1.name ... for several."
        yield from _option({**items, "default": first, "description": kind}, key, when, schema)
    elif union_members(schema):
        yield from _union(schema, key, when)
    elif below:
        if schema not in below:
            kinds = [type_text(part) for part in alternatives(schema) if "properties" not in part]
            yield _help(schema, key, when, " or ".join([*kinds, "options or null"]), holder)
        yield from _options(below[0], f"{key}.", when)
    else:
        yield _help(schema, key, when, type_text(schema), holder)


def _union(schema: Schema, key: str, when: str) -> Iterator[OptionHelp]:
    names = tuple(union_members(schema))
    default = (schema.get("default") or {}).get("name")
    kind = f"one of: {', '.join(names)}"
    yield OptionHelp(f"{key}.name", kind, default_text(default), _meaning(schema), names, when)
    for name, member in union_members(schema).items():
        yield from _options(member, f"{key}.", f"{key}.name={name}")


def _help(schema: Schema, key: str, when: str, kind: str, holder: Schema) -> OptionHelp:
    meaning = _meaning(schema) or (_meaning(holder, "about") if "const" in schema else "")
    default = default_text(schema["default"]) if "default" in schema else "..."
    return OptionHelp(key, kind, default, meaning, choices(schema), when)


def options_table(when: str, root: Root = RunConfig) -> str:
    """The options of one choice, e.g. ``surrogate.name=gated``, as a Markdown table; nested ones left out."""
    prefix = when.partition("=")[0].removesuffix("name")
    options = describe_options(root)
    rows = [option for option in options if option.when == when and "." not in option.key[len(prefix) :]]
    lines = [f"| `{row.key.removeprefix(prefix)}` | {row.default} | {_values(row)} | {row.meaning} |" for row in rows]
    return "\n".join(["| option | default | values | meaning and source |", "|---|---|---|---|", *lines])


def _values(option: OptionHelp) -> str:
    return (", ".join(option.choices) or option.type).replace("|", "or")


def _meaning(schema: Schema, word: str = "description") -> str:
    return " ".join(str(schema.get(word, "")).split())


def default_text(value: Any) -> str:
    """A default as one would type it; floats to four digits, options by their name."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return f"[{', '.join(default_text(item) for item in value)}]"
    if isinstance(value, dict):
        return default_text(value["name"]) if "name" in value else "{}"
    return show(value)


COMMON = (
    *("name", "seed", "device", "threads"),
    *("data.name", "data.root", "data.image_size", "data.crop_padding", "data.horizontal_flip"),
    *("model.name", "model.cut", "model.front_end.name", "model.bottleneck.channels"),
    *("channel.name", "channel.noise_std", "channel.noise"),
    *("surrogate.name", "penalties.name"),
    *("training.epochs", "training.batch_size", "training.optimizer.lr", "training.optimizer.weight_decay"),
    *("training.schedule.name", "training.penalty_weight", "training.penalty_schedule.name", "training.warmup_epochs"),
    *("training.precision", "training.fast", "training.log_every", "training.checkpoint_every"),
)
"""The options that most runs need; the others are asked for by section."""
_MORE = " More: --help SECTION, e.g. surrogate.gated, training, model.front_end; --help all for every option."


def chosen_options(section: str | None, root: Root = RunConfig) -> list[OptionHelp]:
    """The common options of a run, or those of a section: `training`, `surrogate.gated`, a key, or `all`."""
    options = describe_options(root)
    if section is None:
        found = {option.key: option for option in reversed(options) if option.key in COMMON}  # a key's first place
        return [option for option in options if found.get(option.key) is option]
    if section == "all":
        return options
    asked = section.partition("=")[0]
    first, _, last = asked.rpartition(".")
    member = [option for option in options if option.when == f"{first}.name={last}"]
    below = [option for option in options if option.key == asked or option.key.startswith(f"{asked}.")]
    if not member and not below:
        tree = option_tree(root)
        names = {f"{key.removesuffix('name')}{choice}" for key, choice in _members(options)}
        guess = did_you_mean(nearest_key(asked, tree) or nearest(asked, names)) or "."
        sections = ", ".join(tree["properties"])
        raise ConfigError(f"--help {section}: no such section or option{guess} Sections: {sections}")
    return member or below


def _members(options: list[OptionHelp]) -> Iterator[tuple[str, str]]:
    return ((option.key, choice) for option in options if option.key.endswith(".name") for choice in option.choices)


def format_help(width: int = 100, root: Root = RunConfig, section: str | None = "all") -> str:
    """Options grouped by section, for a terminal of this width; each as ``key=default`` and its meaning.

    ``section`` chooses them as in `chosen_options`.
    """
    which, more = ("Common options", _MORE) if section is None else ("Options", "")
    intro = f"{which}, as key=default. Give them as key=value or --key value, in any order.{more}"
    lines = _wrap(intro, width, "", "")
    tree = option_tree(root)
    chosen = chosen_options(section, tree)
    for part, options in groupby(chosen, key=lambda option: _section(option, tree)):
        lines += ["", *_wrap(f"{part}: {_section_meaning(part, tree)}", width, "", "  ")]
        for when, members in groupby(options, key=lambda option: option.when):
            lines += _member_line(when, width, tree) if when and section is not None else []
            for option in members:
                bare = _members_without_options(option, width, tree) if section == "all" else []
                lines += [*_entry(option, width), *bare]
    return "\n".join(lines) + "\n"


def _section(option: OptionHelp, tree: Schema) -> str:
    """The first part of the key; for the options at the top that are no section ``run``, or the root's word."""
    first = option.key.partition(".")[0]
    if alternatives(tree["properties"][first])[0].keys() & {"properties", "items"}:
        return first
    return "run" if tree is option_tree(RunConfig) else str(tree["word"])


def _section_meaning(section: str, tree: Schema) -> str:
    return _meaning(tree["properties"].get(section, tree))


def _member_meaning(when: str, tree: Schema) -> str:
    """The text of the union member that ``key.name=value`` chooses."""
    key, _, name = when.partition("=")
    here = [tree]
    for part in key.split(".")[:-1]:
        here = [below for schema in here for below in children(schema, part)]
    found = [items_of_options(schema) or schema for schema in here]
    return next(
        (_meaning(members[name], "about") for schema in found if name in (members := union_members(schema))), ""
    )


def _member_line(when: str, width: int, tree: Schema) -> list[str]:
    return _wrap(f"with {when}: {_member_meaning(when, tree)}", width, "  ", "    ")


def _members_without_options(option: OptionHelp, width: int, tree: Schema) -> list[str]:
    """Lines for the choices of a union's name that have no options of their own."""
    if len(option.choices) < 2 or not option.key.endswith(".name"):
        return []
    taken = {other.when for other in describe_options(tree)}
    bare = [f"{option.key}={name}" for name in option.choices if f"{option.key}={name}" not in taken]
    return [line for when in bare for line in _member_line(when, width, tree)]


def _entry(option: OptionHelp, width: int) -> list[str]:
    """``key=default`` in a left column where it fits, then the meaning and, in brackets, what is allowed."""
    indent = "    " if option.when else "  "
    left = f"{indent}{option.key}={option.default}"
    column = " " * min(44, width // 2)
    text = f"{option.meaning} ({' | '.join(option.choices) or option.type})"
    if len(left) >= len(column):
        return [left, *_wrap(text, width, column, column)]
    return _wrap(text, width, left.ljust(len(column)), column)


def _wrap(text: str, width: int, first: str, others: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, max(width, 40), initial_indent=first, subsequent_indent=others, break_on_hyphens=False)
