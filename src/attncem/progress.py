"""Progress for people: a rich bar on a terminal, a plain line now and then elsewhere, or nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich import progress as rich_progress
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn

Progress = Callable[[str, float, float, Mapping[str, float]], None]
"""progress(stage, done, total, numbers): called often, must be cheap; a method ``line(text)`` of it gets warnings."""

_PLAIN_SECONDS = 5.0


def silent(stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
    """Tell nothing."""


@contextmanager
def shown(progress: Progress | None) -> Iterator[Progress]:
    """The given one, or one for the terminal."""
    if progress is not None:
        yield progress
        return
    with show_progress() as own:
        yield own


@contextmanager
def show_progress(console: Console | None = None) -> Iterator[Progress]:
    """A reporter that draws one bar per stage, or prints a line every few seconds when not on a terminal."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield _PlainLines(console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with rich_progress.Progress(*columns, TextColumn("{task.fields[numbers]}"), console=console) as bars:
        yield _Bars(bars)


def show_line(text: str, console: Console | None = None) -> None:
    """One line for a person, on stderr, as it is; of the processes of torchrun the first one speaks."""
    if "TORCHELASTIC_RUN_ID" in os.environ and os.environ["RANK"] != "0":
        return
    console = console or Console(stderr=True)
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def tell(progress: Progress, text: str) -> None:
    """One line beside the progress, where the reporter has a place for it."""
    line = getattr(progress, "line", None)
    if line is not None:
        line(text)


def format_numbers(numbers: Mapping[str, float]) -> str:
    """Numbers in one short line."""
    return "  ".join(f"{name} {value:.4g}" for name, value in numbers.items())


class _Bars:
    def __init__(self, bars: rich_progress.Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(stage, total=total, numbers="")
        self._bars.update(self._tasks[stage], completed=done, total=total, numbers=format_numbers(numbers))

    def line(self, text: str) -> None:
        show_line(text, self._bars.console)


class _PlainLines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: dict[str, float] = {}

    def __call__(self, stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
        now = time.monotonic()
        if done < total and now - self._last.get(stage, -_PLAIN_SECONDS) < _PLAIN_SECONDS:
            return
        self._last[stage] = now
        self._console.print(
            f"{stage}: {done:g} of {total:g}  {format_numbers(numbers)}", highlight=False, soft_wrap=True
        )

    def line(self, text: str) -> None:
        show_line(text, self._console)
