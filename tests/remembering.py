"""Costly functions whose results depend on their arguments alone: computed once for all tests of a process."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any


def pixels(rows: Any) -> str:
    """The hash of a matrix."""
    return hashlib.sha256(rows.cpu().numpy().tobytes()).hexdigest()


def curves(*words: Any, **options: Any) -> str | None:
    """All that a figure of curves depends on; None where the figures themselves are collected."""
    figures = sys.modules["attncem.reporting.figures"]
    style = figures.STYLE, figures.families(), figures.text("figure.last_values", values="")
    return None if figures._KEPT.get() is not None else repr((words, options, style))


REMEMBERED: dict[tuple[str, str], Callable[..., str | None]] = {
    ("attncem.judging.auditing.units", "principal_axes"): pixels,
    ("attncem.reporting.figures", "_curves"): curves,
}
"""What makes two calls of a function equal; most audits are on the embedded images, most pages on the same runs."""


class Memory:
    """Whether results are taken from memory."""

    used = True


@contextmanager
def computed_anew() -> Iterator[None]:
    """Compute everything again, for tests that the same input gives the same result."""
    Memory.used = False
    try:
        yield
    finally:
        Memory.used = True


@contextmanager
def remembered() -> Iterator[None]:
    """Replace each function whose module the tests have imported."""
    with ExitStack() as stack:
        for (home, name), key in REMEMBERED.items():
            if home in sys.modules:
                stack.enter_context(_replaced(sys.modules[home], name, key))
        yield


@contextmanager
def _replaced(home: Any, name: str, key: Callable[..., str | None]) -> Iterator[None]:
    plain, made = getattr(home, name), dict[str, Any]()

    def once(*words: Any, **options: Any) -> Any:
        place = key(*words, **options) if Memory.used else None
        if place is None:
            return plain(*words, **options)
        if place not in made:
            made[place] = plain(*words, **options)
        return made[place]

    setattr(home, name, once)
    yield
    setattr(home, name, plain)
