"""The language of pages and tables, as people ask for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from attncem.base.texts import VARIABLE, known_language, language, speaking
from attncem.base.types import ConfigError


@contextmanager
def spoken(lang: str | None) -> Iterator[None]:
    """Texts are in this language inside; None: as outside. ConfigError where it is not known."""
    with speaking(checked(lang)):
        yield


def checked(lang: str | None) -> str:
    """The language asked for, or the one now spoken; ConfigError where it is not known."""
    try:
        return language() if lang is None else known_language(lang)
    except ValueError as error:
        raise ConfigError(str(error)) from error


@contextmanager
def kept_environment() -> Iterator[None]:
    """What is set inside about the language is over afterwards."""
    before = os.environ.get(VARIABLE)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = before


def speak_everywhere(lang: str | None) -> None:
    """Let this process, its threads and the processes that it starts speak the language, until told otherwise."""
    os.environ[VARIABLE] = checked(lang)
