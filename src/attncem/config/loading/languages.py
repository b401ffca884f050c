"""The language of pages and tables, as the user chooses it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from attncem.base.texts import VARIABLE, known_language, language, speaking
from attncem.base.types import ConfigError


@contextmanager
def spoken(lang: str | None) -> Iterator[None]:
    """Use this language for texts inside the context; None: keep the current one. ConfigError if it is unknown."""
    with speaking(checked(lang)):
        yield


def checked(lang: str | None) -> str:
    """The chosen language, or the current one; ConfigError if it is unknown."""
    try:
        return language() if lang is None else known_language(lang)
    except ValueError as error:
        raise ConfigError(str(error)) from error


@contextmanager
def kept_environment() -> Iterator[None]:
    """Restore the language variable of the environment at the end of the context."""
    before = os.environ.get(VARIABLE)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = before


def speak_everywhere(lang: str | None) -> None:
    """Set the language of this process, its threads and its child processes."""
    os.environ[VARIABLE] = checked(lang)
