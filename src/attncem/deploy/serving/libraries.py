"""Libraries of the extras `serve` and `serve-ray`, imported when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from attncem.base.types import ConfigError


def needed(name: str, extra: str = "serve") -> Any:
    """A library; ConfigError, which names the extra that brings it, where it is missing."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(f"serving needs {name}: pip install 'attncem[{extra}]'") from error


def optional(name: str) -> Any:
    """A library that makes the server faster; None where it is missing."""
    try:
        return import_module(name)
    except ImportError:
        return None
