"""Record: the base of every result that is written to a file, and the one reader of them all.

What a file must hold follows from the type hints of its class. A key that is missing takes its default, so an older
file is read; a key that the class does not know is kept in ``further`` and written again: a newer file loses nothing.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from attncem.base.types import RunError

T = TypeVar("T")
_LONGEST_SHOWN = 40
"""Letters of a value in a brief line."""


@dataclass(frozen=True)
class Record:
    """A result: plain data with names and types."""

    further: Mapping[str, Any] = field(default_factory=dict, kw_only=True, repr=False)
    """What a newer version wrote and this one does not know."""

    def brief(self) -> str:
        """A line that tells it from others of its kind: scalars as they are, of everything else the kind and size."""
        parts = (f"{item.name}={_brief(getattr(self, item.name))}" for item in dataclasses.fields(self) if item.repr)
        return f"{type(self).__name__}({', '.join(parts)})"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-ready data."""
        own = {item.name: plain(getattr(self, item.name)) for item in dataclasses.fields(self)}
        return {**own.pop("further"), **own}


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
    """Plain data as an object of this class; a RunError names the file and the key that is wrong."""
    found: T = _read(kind, data, f"{where} is damaged", "")
    return found


def _read(kind: Any, value: Any, where: str, key: str) -> Any:
    origin = get_origin(kind)
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        return _record(kind, value, where, key)
    if origin in (Union, types.UnionType):
        return _choice(kind, value, where, key)
    if origin is Literal:
        return _checked(value, value in get_args(kind), where, key, f"one of {', '.join(map(str, get_args(kind)))}")
    if origin is list:
        _checked(value, isinstance(value, list), where, key, "a list")
        return [_read(get_args(kind)[0], item, where, f"{key}.{number}") for number, item in enumerate(value)]
    if origin in (dict, Mapping):
        _checked(value, isinstance(value, dict), where, key, "a mapping")
        return {name: _read(get_args(kind)[1], item, where, f"{key}.{name}") for name, item in value.items()}
    word, fits = _SCALARS[kind]
    return _checked(value, fits(value), where, key, word)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 64


def _number(value: Any) -> bool:
    return _whole(value) or (isinstance(value, float) and math.isfinite(value))


_SCALARS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    str: ("text", lambda value: isinstance(value, str)),
    bool: ("true or false", lambda value: isinstance(value, bool)),
    int: ("a whole number", _whole),
    float: ("a number", _number),
}


def _choice(kind: Any, value: Any, where: str, key: str) -> Any:
    """`X | None`, the only union that results have."""
    if value is None and types.NoneType in get_args(kind):
        return None
    (other,) = (part for part in get_args(kind) if part is not types.NoneType)
    return _read(other, value, where, key)


def _record(kind: Any, value: Any, where: str, key: str) -> Any:
    _checked(value, isinstance(value, dict), where, key, "a mapping")
    hints = _hints(kind)
    needed = {item.name for item in dataclasses.fields(kind) if _has_no_default(item)}
    missing = sorted(needed - value.keys())
    if missing:
        raise RunError(f"{where}: {f'{key}.{missing[0]}'.lstrip('.')} is missing")
    known = {name: _read(hints[name], value[name], where, f"{key}.{name}") for name in hints if name in value}
    known["further"] = {name: item for name, item in value.items() if name not in hints}
    try:
        return kind(**known)
    except ValueError as error:  # each entry is of its kind, but together they are impossible
        raise RunError(f"{where}: {key.lstrip('.') or 'it'} {error}") from error


def _has_no_default(item: dataclasses.Field[Any]) -> bool:
    return item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    hints.pop("further", None)
    return hints


def _checked(value: Any, fits: bool, where: str, key: str, expected: str) -> Any:
    if not fits:
        shown = repr(value)
        shown = shown if len(shown) <= 40 else f"{shown[:37]}..."
        raise RunError(f"{where}: {key.lstrip('.') or 'it'} must be {expected}, not {shown}")
    return value
