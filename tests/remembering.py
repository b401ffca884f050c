"""Costly functions whose results depend on their arguments alone: computed once for all tests of a process."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any, ClassVar


def pixels(rows: Any) -> str:
    """The hash of a matrix."""
    return hashlib.sha256(rows.cpu().numpy().tobytes()).hexdigest()


def curves(*words: Any, **options: Any) -> str | None:
    """All that a figure of curves depends on; None where the figures themselves are collected."""
    figures = sys.modules["attncem.reporting.figures"]
    style = figures.STYLE, figures.families(), figures.text("figure.last_values", values="")
    return None if figures._KEPT.get() is not None else repr((words, options, style))


def arguments(*words: Any, **options: Any) -> str:
    """The arguments as they are written."""
    return repr((words, options))


REMEMBERED: dict[tuple[str, str], Callable[..., str | None]] = {
    ("attncem.judging.auditing.units", "principal_axes"): pixels,
    ("attncem.reporting.figures", "_curves"): curves,
    ("torch.onnx._internal.exporter._registration", "ONNXRegistry.from_torchlib"): arguments,
}
"""Functions, each with what makes two of its calls equal.

Most audits are on the embedded images, most pages on the same runs; each export as ONNX reads the source of all
operators again.
"""


class Memory:
    """Which functions are replaced, and whether results are taken from memory."""

    replaced: ClassVar[set[tuple[str, str]]] = set()
    used = True


@contextmanager
def computed_anew() -> Iterator[None]:
    """Compute everything again, for tests that the same input gives the same result."""
    Memory.used = False
    try:
        yield
    finally:
        Memory.used = True


def remember() -> None:
    """Replace each function whose module has been imported since the last call."""
    for home, name in REMEMBERED.keys() - Memory.replaced:
        if home in sys.modules:
            Memory.replaced.add((home, name))
            _replace(sys.modules[home], name.split("."), REMEMBERED[home, name])


def _replace(module: Any, names: list[str], key: Callable[..., str | None]) -> None:
    home = reduce(getattr, names[:-1], module)
    plain, made = getattr(home, names[-1]), dict[str, Any]()

    def once(*words: Any, **options: Any) -> Any:
        place = key(*words, **options) if Memory.used else None
        if place is None:
            return plain(*words, **options)
        if place not in made:
            made[place] = plain(*words, **options)
        return made[place]

    setattr(home, names[-1], staticmethod(once))
