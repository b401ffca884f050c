"""Values as plain data, as dotted keys and as one line of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from attncem.base.types import ConfigError
from attncem.config.loading.yaml_text import DEEPEST
from attncem.config.options.base import Options


def plain(value: Any, level: int = 0) -> Any:
    """A copy of dict, list and scalars only; ConfigError if it is nested too deeply or contains itself."""
    if level > DEEPEST:
        raise ConfigError(f"{show(value)}: nested too deeply: {DEEPEST} levels at most")
    if isinstance(value, BaseModel):
        value = value.model_dump()
    if isinstance(value, Mapping):
        return {key: plain(item, level + 1) for key, item in value.items()}
    return [plain(item, level + 1) for item in value] if isinstance(value, list | tuple) else value


def dotted(data: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values in nested mappings by dotted key; an empty mapping counts as a value."""
    for name, value in data.items():
        if isinstance(value, Mapping) and value:
            yield from dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def flat_options(options: Options) -> dict[str, Any]:
    """Every option by its key as users write it; the position in a list of options is omitted if it has one item."""
    return dict(dotted(_with_positions(options.model_dump(mode="json"))))


def _with_positions(value: Any) -> Any:
    """Lists of options as mappings by position; a single item replaces its list."""
    if isinstance(value, dict):
        return {name: _with_positions(item) for name, item in value.items()}
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return _with_positions(value[0] if len(value) == 1 else dict(enumerate(value)))
    return value


def show(value: Any) -> str:
    """A value as typed on a command line, cut to one line."""
    text = _show(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _show(value: Any, level: int = 0) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return value if value and value.isprintable() and value == value.strip() else repr(value)
    if isinstance(value, int) and value.bit_length() > 1000:  # Python refuses to print numbers of thousands of digits
        return f"{'-' if value < 0 else ''}0x{abs(value) >> (value.bit_length() - 40):x}..."
    if isinstance(value, Mapping | Sequence) and level > 8:
        return "..."
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_show(key)}: {_show(item, level + 1)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(_show(item, level + 1) for item in value) + "]"
    return repr(value)
