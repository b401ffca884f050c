"""Help from the tree of options: every option with its type, default and meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from attncem.base.plugins import UnknownName, with_installed
from attncem.config.loading.flat import show
from attncem.config.loading.suggest import did_you_mean, nearest, nearest_key
from attncem.config.loading.tree import NULL, Node, Root, option_tree, walk
from attncem.config.options.run import RunConfig


@dataclass(frozen=True)
class OptionHelp:
    """One option. ``when`` is the choice that it requires, e.g. ``surrogate.name=kmeans``; empty: always available."""

    key: str
    type: str
    default: str
    meaning: str
    choices: tuple[str, ...] = ()
    when: str = ""
    members: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    """The meaning of each choice of a union's name."""


def describe_options(root: Root = RunConfig) -> list[OptionHelp]:
    """Every option of a root in order, the options of each union member after the union's name."""
    return [entry for key, node, when in walk(option_tree(root)) for entry in _entries(key, node, when)]


def _entries(key: str, node: Node, when: str) -> Iterator[OptionHelp]:
    """The help of an option; nothing for a section, or for a name that is already chosen."""
    items = node.option_items
    if node.members:
        yield _union(key, node, when)
    elif items is not None:
        yield _help(key, f"list of {key} options", node, when)
        if items.members:
            first, none = (node.default[0], "") if node.default else ({"name": items.choices[0]}, ", none by default")
            meaning = f"Kind of the item{none}; {key}.0.name, {key}.1.name ... for several."
            yield _union(key, replace(items, default=first, meaning=meaning), when)
    elif node.keys and len(node.types) > 1:
        kinds = [kind for kind in node.types if kind != NULL and not kind.startswith("mapping")]
        yield _help(key, " or ".join([*kinds, "options or null"]), node, when)
    elif not node.keys and when not in [f"{key}={choice}" for choice in node.choices]:
        yield _help(key, node.type, node, when)


def _union(key: str, node: Node, when: str) -> OptionHelp:
    default = node.default["name"] if isinstance(node.default, dict) else None
    name = _help(f"{key}.name", f"one of: {', '.join(node.choices)}", replace(node, default=default), when)
    return replace(name, members={choice: member.about for choice, member in node.members.items()})


def _help(key: str, kind: str, node: Node, when: str) -> OptionHelp:
    default = "..." if node.default is ... else default_text(node.default)
    return OptionHelp(key, kind, default, node.meaning, node.choices, when)


def default_text(value: Any) -> str:
    """A default as typed on a command line; floats to four digits, options by their name."""
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
"""The options that most runs need; `--help SECTION` shows the others."""
_MORE = " More: --help SECTION, e.g. surrogate.gated, training, model.front_end; --help all for every option."


def chosen_options(section: str | None, root: Root = RunConfig) -> list[OptionHelp]:
    """The common options of a run, or those of a section: `training`, `surrogate.gated`, a key, or `all`."""
    options = describe_options(root)
    if section is None:
        first_of_key = {option.key: option for option in reversed(options) if option.key in COMMON}
        return [option for option in options if first_of_key.get(option.key) is option]
    if section == "all":
        return options
    asked = section.partition("=")[0]
    first, _, last = asked.rpartition(".")
    member = [option for option in options if option.when == f"{first}.name={last}"]
    below = [option for option in options if option.key == asked or option.key.startswith(f"{asked}.")]
    if not member and not below:
        tree = option_tree(root)
        names = [f"{option.key.removesuffix('name')}{choice}" for option in options for choice in option.members]
        guess = did_you_mean(nearest_key(asked, tree) or nearest(asked, names)) or "."
        sections = ", ".join(tree.keys)
        raise UnknownName(f"--help {section}: no such section or option{guess} Sections: {sections}")
    return member or below


@with_installed
def format_help(width: int = 100, root: Root = RunConfig, section: str | None = "all") -> str:
    """Options grouped by section, for a terminal of this width; each as ``key=default`` and its meaning.

    ``section`` selects them as in `chosen_options`.
    """
    which, more = ("Common options", _MORE) if section is None else ("Options", "")
    intro = f"{which}, as key=default. Give them as key=value or --key value, in any order.{more}"
    lines = _wrap(intro, width, "", "")
    tree = option_tree(root)
    every = describe_options(tree)
    abouts = {f"{name.key}={choice}": about for name in every for choice, about in name.members.items()}
    chosen = chosen_options(section, tree)
    for part, options in groupby(chosen, key=lambda option: _section(option, tree)):
        lines += ["", *_wrap(f"{part}: {tree.keys.get(part, tree).meaning}", width, "", "  ")]
        for when, members in groupby(options, key=lambda option: option.when):
            lines += _member_line(when, abouts, width) if when and section is not None else []
            for option in members:
                lines += _entry(option, width)
                bare = _members_without_options(option, every) if section == "all" else []
                lines += [line for choice in bare for line in _member_line(choice, abouts, width)]
    return "\n".join(lines) + "\n"


def _section(option: OptionHelp, tree: Node) -> str:
    """The first part of the key; for top-level options that are not a section, ``run`` or the root's word."""
    first = option.key.partition(".")[0]
    node = tree.keys[first]
    if (node.keys or node.members or node.items) and node.types[0].startswith(("mapping", "list")):
        return first
    return "run" if tree is option_tree(RunConfig) else tree.word


def _member_line(when: str, abouts: Mapping[str, str], width: int) -> list[str]:
    return _wrap(f"with {when}: {abouts[when]}", width, "  ", "    ")


def _members_without_options(option: OptionHelp, every: list[OptionHelp]) -> list[str]:
    """The choices of a union's name that have no options of their own."""
    with_options = {other.when for other in every}
    choices = [f"{option.key}={name}" for name in option.members]
    return [choice for choice in choices if choice not in with_options]


def _entry(option: OptionHelp, width: int) -> list[str]:
    """``key=default`` in a left column if it fits, then the meaning and, in brackets, the allowed values."""
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
