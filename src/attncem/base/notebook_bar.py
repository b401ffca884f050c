"""One bar in a notebook, redrawn in place: the total progress, the current stage, and all lines below."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib import import_module
from typing import Any

from attncem.base.courses import Course, Courses, head_of

_SECONDS = 0.3
"""Shortest time between two updates of the bar."""


class NotebookBar:
    """Shows the reported stages; `clean` makes lines harmless for a terminal."""

    def __init__(self, clean: Callable[[str], str]) -> None:
        # Imported by name: every notebook has it, and nothing else needs it.
        self._display = import_module("IPython.display").display
        self._place: Any = None
        self._clean, self._courses = clean, Courses()
        self._share, self._at_work, self._lines = 0.0, "", list[str]()
        self._drawn = -math.inf

    def __call__(self, stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
        """Record the progress of a stage, and draw it now and then."""
        course = self._courses.report(stage, done, total, numbers)
        self._share = self._share_of(self._courses.get(head_of(stage), course), course)
        self._at_work = self._courses.line(stage, numbers)
        if done >= total or time.monotonic() - self._drawn >= _SECONDS:
            self._draw()

    def _share_of(self, whole: Course, at_work: Course) -> float:
        """The fraction of the whole: by its forecast, or with the current step; otherwise that of the current step."""
        if whole is at_work or (whole.has_forecast and whole.seconds_left is not None):
            return whole.share
        return min(1.0, (whole.done + min(at_work.share, 0.99)) / whole.total)

    def forget(self, name: str) -> None:
        """Remove the stages of the tasks with this name."""
        self._courses.forget(name)

    def line(self, text: str) -> None:
        """Show one more line."""
        self._lines.append(text)
        self._draw()

    def close(self) -> None:
        """Draw the last state."""
        if self._at_work or self._lines:
            self._draw()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        lines = [self._clean(line) for line in (self._at_work, *self._lines) if line]
        shown = _NotebookLine(self._share, lines)
        if self._place is None:
            self._place = self._display(shown, display_id=True)
        else:
            self._place.update(shown)


class _NotebookLine:
    """A bar with lines, as HTML and as plain text."""

    def __init__(self, share: float, lines: Sequence[str]) -> None:
        self._share, self._lines = share, lines

    def __repr__(self) -> str:
        return "\n".join([f"{100 * self._share:.0f} %", *self._lines])

    def _repr_html_(self) -> str:
        lines = "<br>".join(escape(line) for line in self._lines)
        return f'<progress max="1" value="{self._share:.4f}" style="width: 20em"></progress><br>{lines}'
