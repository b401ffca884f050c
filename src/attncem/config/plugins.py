"""Registration of what plugins define, its use by a run, and stand-ins for what is not loaded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeVar, get_args

from pydantic import ConfigDict, create_model
from pydantic.fields import FieldInfo

from attncem.base.plugins import (
    Addition,
    Plugin,
    PluginUse,
    add,
    addition,
    additions,
    load_installed,
    load_plugin,
)
from attncem.base.record import read
from attncem.base.types import ConfigError, RunError
from attncem.config.options.base import Options
from attncem.config.options.channels import Channel, ChannelOptions
from attncem.config.options.model import FrontEndOptions
from attncem.config.options.penalties import Penalty, PenaltyOptions
from attncem.config.options.run import RunConfig
from attncem.config.options.suites import RowOptions
from attncem.config.options.surrogate_base import SurrogateOptions
from attncem.config.options.surrogates import Surrogate

__all__ = ["load_plugin", "register"]

Made = TypeVar("Made", bound=Any)
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


@dataclass(frozen=True)
class Kind:
    """A kind of thing that a plugin can add."""

    options: type[Options] | None = None
    """Base class of its options; None: it has none, and its name is that of the function."""
    union: Any = None
    """The package's own options classes."""
    facts: tuple[str, ...] = ()
    """Properties of the options that pages show, recorded because they need the plugin's code."""


KINDS: dict[str, Kind] = {
    "surrogate": Kind(SurrogateOptions, Surrogate, ("default_warmup_epochs",)),
    "attack": Kind(Options, RowOptions),
    "channel": Kind(ChannelOptions, Channel, ("added_noise_std", "adds_noise", "place")),
    "penalty": Kind(PenaltyOptions, Penalty),
    "front_end": Kind(Options, FrontEndOptions),
    "network": Kind(),
}
"""Kinds that plugins can add to, by word."""
_tables: dict[str, tuple[dict[str, Any], type | None, frozenset[str]]] = {}
"""The table of each kind whose module is imported, the base class of its entries, and the package's own names."""


def open_table(kind: str, table: dict[str, Any], base: type | None = None) -> None:
    """Let plugins add to a table, those that are loaded and those to come."""
    _tables[kind] = table, base, frozenset(table)
    for one in additions(kind):
        _check_class(kind, one.name, one.made)
        table[one.name] = one.made


def register(kind: str, options: type[Options] | None = None) -> Callable[[Made], Made]:
    """Decorate a class, or a network's function, so that configurations can name it.

    ``kind`` is one of KINDS. ``options`` is its options class, whose field ``name`` is the name in a configuration; a
    network has none and is called as its function. ConfigError for a name that is taken and for a wrong class.
    """
    if kind not in KINDS:
        raise ConfigError(f"register: the kind {kind!r} is unknown; allowed: {', '.join(KINDS)}")

    def registered(made: Made) -> Made:
        name = _checked_name(kind, options, made)
        _check_class(kind, name, made)
        add(kind, name, options, made)
        if options is not None:
            made.options_type = options
        if kind in _tables:
            _tables[kind][0][name] = made
        return made

    return registered


def _check_class(kind: str, name: str, made: Any) -> None:
    """ConfigError for a name of the package's own, and for a class of another kind."""
    _, base, ours = _tables.get(kind, ({}, None, frozenset()))
    if name in ours.union(_names(KINDS[kind].union)):
        raise ConfigError(f"the {kind} {name}: attncem has one of this name already; choose another name")
    if base is not None and not (isinstance(made, type) and issubclass(made, base)):
        raise ConfigError(f"the {kind} {name}: {made.__qualname__} must be a subclass of {base.__name__}")


def _names(union: Any) -> Iterator[str]:
    """The names of the options classes in a union."""
    if isinstance(union, type) and issubclass(union, Options):
        yield union.model_fields["name"].default
    for part in get_args(union):
        yield from _names(part)


def _checked_name(kind: str, options: type[Options] | None, made: Any) -> str:
    """The name of what is registered; ConfigError where the options class does not fit the kind."""
    base = KINDS[kind].options
    if base is not None and not (isinstance(options, type) and issubclass(options, base)):
        raise ConfigError(f"the {kind} {made.__qualname__} needs an options class, a subclass of {base.__name__}")
    if base is None and options is not None:
        raise ConfigError(f"the {kind} {made.__name__} takes no options class: it gets the options of model")
    name = str(made.__name__) if options is None else _named(options)
    if not _NAME.fullmatch(name):
        raise ConfigError(f"the {kind} {made.__qualname__}: its name {name!r} must match {_NAME.pattern}")
    return name


def _named(options: type[Options]) -> str:
    field: FieldInfo | None = options.model_fields.get("name")
    if field is None or get_args(field.annotation) != (field.default,):
        raise ConfigError(f'{options.__qualname__} needs its name: name: Literal["mine"] = "mine"')
    return str(field.default)


# what a run uses


def _placed(config: RunConfig) -> Iterator[tuple[str, Any]]:
    """Every place of a configuration that a plugin can fill: its kind, and its options or name."""
    yield "surrogate", config.surrogate
    yield from (("channel", stage) for stage in config.channel)
    yield from (("penalty", penalty) for penalty in config.penalties)
    yield "front_end", config.model.front_end
    yield "network", config.model.name
    if config.model.server is not None:
        yield "network", config.model.server


def uses(placed: Iterable[tuple[str, Any]]) -> list[PluginUse]:
    """The plugins among options of these kinds, as files record them."""
    made = []
    for kind, options in placed:
        name = options if isinstance(options, str) else options.name
        if (one := addition(kind, name)) is not None:
            plain = {} if isinstance(options, str) else options.model_dump(mode="json")
            facts = {fact: getattr(options, fact) for fact in KINDS[kind].facts}
            made.append(PluginUse(kind, name, one.plugin.file, one.plugin.sha256, plain, facts))
    return made


def uses_of(config: RunConfig) -> list[PluginUse]:
    """The plugins that a run uses."""
    return uses(_placed(config))


def require(recorded: Sequence[PluginUse], what: str, *, same: bool) -> list[PluginUse]:
    """Check that the recorded plugins are loaded; ``what`` is the run or campaign in the error.

    Returns those whose file has changed since; with ``same`` they are refused.
    """
    if any(addition(use.kind, use.name) is None for use in recorded):
        load_installed()
    changed = []
    for use in recorded:
        one = addition(use.kind, use.name)
        if one is None:
            raise RunError(f"{what} uses {use.described}: name it with --plugin FILE.py")
        if one.plugin.sha256 != use.sha256:
            changed.append(use)
            if same:
                raise RunError(
                    f"{what} began with {use.described}; the file now named has sha256 {one.plugin.sha256[:12]}…: "
                    "name the earlier version, or start anew"
                )
    return changed


# reading without the plugin


def stand_ins(recorded: Sequence[PluginUse]) -> list[Addition]:
    """For reading a run or campaign: options of plugins that are not loaded, kept as they are written."""
    read_here = [kind for kind, it in KINDS.items() if it.options is not None]
    missing = [use for use in recorded if use.kind in read_here and addition(use.kind, use.name) is None]
    names = dict.fromkeys((use.kind, use.name) for use in missing)
    return [_stand_in(json.dumps([use.to_dict() for use in missing if (use.kind, use.name) == key])) for key in names]


@lru_cache(maxsize=256)
def _stand_in(written: str) -> Addition:
    """Options that take any key; their facts are those on record for the same options."""
    recorded = [read(PluginUse, use, "the record of a plugin") for use in json.loads(written)]
    kind, name = recorded[0].kind, recorded[0].name
    base = KINDS[kind].options
    assert base is not None
    facts = {fact: property(_on_record(fact, recorded, base)) for fact in KINDS[kind].facts}
    lenient = {"model_config": ConfigDict(extra="allow"), "__module__": __name__, "__doc__": recorded[0].described}
    class_ = type(f"{name}_on_record", (base,), {**facts, **lenient})
    options: Any = create_model(f"{name}_options", __base__=class_, name=(_literal(name), name))
    return Addition(kind, name, options, None, Plugin(recorded[0].file, recorded[0].sha256, ""))


def _literal(name: str) -> Any:
    return Literal[name]


def _on_record(fact: str, recorded: Sequence[PluginUse], base: type[Options]) -> Callable[[Options], Any]:
    """A property: the fact on record for the same options, or the base's value."""
    usual = getattr(base, fact)

    def value(self: Options) -> Any:
        mine = self.model_dump(mode="json")
        same = [use.facts[fact] for use in recorded if use.options == mine and fact in use.facts]
        return same[0] if same else usual.__get__(self) if isinstance(usual, property) else usual

    return value
