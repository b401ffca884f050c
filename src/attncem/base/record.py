"""Record: the base class of every result that is written to a file, and the only reader of these files.

The type hints of a class define the contents of its file. A missing key takes its default, so older files can be read;
an unknown key is kept in ``further`` and written again, so newer files lose nothing.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

from attncem.base.types import RunError

T = TypeVar("T")
_LONGEST_SHOWN = 40
"""Largest number of letters of a value in a brief line or an error."""
_SCALARS: dict[Any, tuple[str, type | tuple[type, ...]]] = {
    str: ("text", str),
    bool: ("true or false", bool),
    int: ("a whole number", int),
    float: ("a number", (int, float)),
}
"""The name of each kind of value and its Python classes; the JSON parser refuses numbers out of range."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
@dataclass(frozen=True)
class Record:
    """A result: plain data with names and types. Every subclass is a frozen dataclass, without a decorator."""

    further: Mapping[str, Any] = field(default_factory=dict, kw_only=True, repr=False)
    """Entries of a newer version that this version does not know."""

    def __init_subclass__(cls, *, kw_only: bool = False) -> None:
        dataclass(frozen=True, kw_only=kw_only)(cls)

    def brief(self) -> str:
        """A short line that identifies it: scalars as they are, the kind and size of everything else."""
        parts = (f"{item.name}={_brief(getattr(self, item.name))}" for item in dataclasses.fields(self) if item.repr)
        return f"{type(self).__name__}({', '.join(parts)})"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-ready data."""
        data = {item.name: plain(getattr(self, item.name)) for item in dataclasses.fields(self)}
        return {**data.pop("further"), **data}


def _brief(value: Any) -> str:
    if isinstance(value, Record):
        return type(value).__name__
    if isinstance(value, Mapping | list | tuple):
        return f"<{len(value)}>"
    shown = repr(value)
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}…"


def plain(value: Any) -> Any:
    """Records, mappings and sequences as dict, list and scalars."""
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def read(kind: type[T], data: Any, where: object) -> T:
    """Plain data as an object of this class; a RunError names the file and the wrong key."""
    result: T = _read(kind, data, f"{where} is damaged", "")
    return result


def _read(kind: Any, value: Any, where: str, key: str) -> Any:
    if kind is Any:
        return value
    if kind in _SCALARS:
        word, classes = _SCALARS[kind]
        fits = isinstance(value, classes) and (kind is bool or not isinstance(value, bool))
        return _checked(value, fits, where, key, word)
    origin, parts = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _record(kind, value, where, key)
    if origin in (Union, types.UnionType):  # `X | None`, the only union in results
        return None if value is None else _read(parts[0], value, where, key)
    if origin is Literal:
        return _checked(value, value in parts, where, key, f"one of {', '.join(map(str, parts))}")
    if origin is list:
        _checked(value, isinstance(value, list), where, key, "a list")
        return [_read(parts[0], item, where, f"{key}.{number}") for number, item in enumerate(value)]
    if origin in (dict, Mapping):
        _checked(value, isinstance(value, dict), where, key, "a mapping")
        return {name: _read(parts[1], item, where, f"{key}.{name}") for name, item in value.items()}
    raise TypeError(f"{key}: records hold no {kind}")


def _record(kind: Any, value: Any, where: str, key: str) -> Any:
    _checked(value, isinstance(value, dict), where, key, "a mapping")
    hints, required = _fields(kind)
    if missing := sorted(required - value.keys()):
        raise RunError(f"{where}: {f'{key}.{missing[0]}'.lstrip('.')} is missing")
    entries = {name: _read(hints[name], value[name], where, f"{key}.{name}") for name in hints if name in value}
    further = {name: item for name, item in value.items() if name not in hints}
    try:
        return kind(**entries, further=further)
    except ValueError as error:  # each entry is valid, but the combination is not
        raise RunError(f"{where}: {key.lstrip('.') or 'it'} {error}") from error


@cache
def _fields(kind: Any) -> tuple[dict[str, Any], set[str]]:
    """The type hints of a record by name, and the names that have no default."""
    hints, absent = get_type_hints(kind), dataclasses.MISSING
    del hints["further"]
    fields = dataclasses.fields(kind)
    return hints, {item.name for item in fields if item.default is absent and item.default_factory is absent}


def _checked(value: Any, fits: bool, where: str, key: str, expected: str) -> Any:
    if not fits:
        shown = repr(value)
        shown = shown if len(shown) <= _LONGEST_SHOWN else f"{shown[: _LONGEST_SHOWN - 3]}..."
        raise RunError(f"{where}: {key.lstrip('.') or 'it'} must be {expected}, not {shown}")
    return value
