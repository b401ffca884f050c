"""Progress for people: a rich bar on a terminal, a plain line every few seconds elsewhere, or nothing.

All output goes through `open_console` or `clean`: names of files and classes cannot control the terminal.
"""

from __future__ import annotations

import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from html import escape
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, TextIO, cast

from rich import progress as rich_progress
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.segment import Segment

from attncem.base.texts import text
from attncem.base.texts.titles import number_title, stage_title

Progress = Callable[[str, float, float, Mapping[str, float]], None]
"""progress(stage, done, total, numbers): called often, must be cheap; its optional method ``line(text)`` gets warnings.
Stages and names of numbers are always English; the display translates them."""

_PLAIN_SECONDS = 5.0
_NOTEBOOK_SECONDS = 0.3
"""Shortest time between two updates of a bar in a notebook."""
_BAR_WIDTH = 8
_IN_A_BAR = 3
"""Largest number of values in a bar, including the epoch of a training: it fits 80 columns."""
_GAPS = 4
"""Columns between name, bar, count, time left and numbers."""
_UNITS = {"hours": 3600.0, "minutes": 60.0}
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Characters that move the cursor, or colour or reverse text: all control characters but tab and line feed."""


def silent(stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
    """Report nothing."""


@contextmanager
def shown(progress: Progress | None) -> Iterator[Progress]:
    """The reporter, or one for the terminal if there is none."""
    if progress is not None:
        yield progress
        return
    with show_progress() as own:
        yield own


@contextmanager
def show_progress(console: Console | None = None) -> Iterator[Progress]:
    """A reporter that draws one bar per stage, or prints a line every few seconds without a terminal.

    In a notebook it is one bar that updates in place.
    """
    console = console or open_console(stderr=True)
    if console.is_jupyter:
        with closing(_NotebookBar()) as bar:
            yield bar
        return
    if not console.is_terminal:
        yield _PlainLines(console)
        return
    names, counts, numbers = (
        TextColumn(f"{{task.{word}}}", markup=False) for word in ("description", "fields[counts]", "fields[numbers]")
    )
    columns = (names, BarColumn(_BAR_WIDTH), counts, TimeRemainingColumn(compact=True), numbers)
    with rich_progress.Progress(*columns, console=console) as bars:
        yield _Bars(bars)


def show_line(text: str, console: Console | None = None) -> None:
    """Print one line on stderr; under torchrun only the first process prints."""
    if "TORCHELASTIC_RUN_ID" in os.environ and os.environ["RANK"] != "0":
        return
    console = console or open_console(stderr=True)
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def tell(progress: Progress, text: str) -> None:
    """Show one line with the progress, if the reporter supports it."""
    line = getattr(progress, "line", None)
    if line is not None:
        line(text)


def forget(progress: Progress, name: str) -> None:
    """Remove the bars of a finished task with this name, if the reporter draws bars."""
    take_away = getattr(progress, "forget", None)
    if take_away is not None:
        take_away(name)


def format_numbers(numbers: Mapping[str, float]) -> str:
    """Numbers in one short line."""
    return "  ".join(f"{number_title(name)} {value:.4g}" for name, value in numbers.items())


class _Course:
    """Monotonic progress of one stage.

    A stage that had ended, or that is back at its start, starts again: a second audit has rows of the same names.
    """

    def __init__(self, done: float) -> None:
        self.told, self.total = -math.inf, 1.0
        self._begin(done)

    @property
    def share(self) -> float:
        """The finished fraction."""
        return self.done / self.total if self.total > 0 else 1.0

    def _begin(self, done: float) -> None:
        self.began, self.first, self.done = time.monotonic(), done, done

    def reached(self, done: float, total: float) -> float:
        """Record the progress and return its maximum so far."""
        if done < total <= self.done or done <= self.first < self.done:
            self._begin(done)
        self.done = max(self.done, done)
        return self.done

    def left(self, total: float) -> str:
        """The estimated time left, in words; empty before any progress."""
        seconds = self._seconds_left(total)
        return text("progress.left", time=format_duration(seconds)) if seconds else ""

    def clock_width(self, total: float) -> int:
        """Columns of the remaining time in a bar."""
        return len("1:00:00") if self._seconds_left(total) >= 3000 else len("00:00")

    def _seconds_left(self, total: float) -> float:
        if self.done <= self.first or self.done >= total:
            return 0.0
        return (time.monotonic() - self.began) * (total - self.done) / (self.done - self.first)


def format_duration(seconds: float, digits: int = 2, least: float = 1.0) -> str:
    """A duration in a suitable unit, rounded as an estimate; a measured one may have more digits."""
    unit, size = next(((unit, size) for unit, size in _UNITS.items() if seconds >= 1.5 * size), ("seconds", 1.0))
    return text(f"amount.{unit}", value=float(f"{max(least, seconds / size):.{digits}g}"))


def _count(done: float, total: float) -> str:
    """Whole steps, epochs or rows only."""
    return text("progress.count", done=math.floor(done), total=total)


def _short_count(done: float, total: float) -> str:
    """The same count; a percentage from 100 steps on."""
    return _count(done, total) if total < 100 else f"{100 * done / total:.0f} %"


def _shortened(stage: str, room: int) -> str:
    """The title of a stage in at most `room` columns; its first word, the run's name, is shortened first."""
    said = stage_title(stage)
    if cell_len(said) <= room:
        return said
    first, colon, rest = said.partition(text("progress.colon"))
    return _cut(f"{_cut(first, room - cell_len(colon + rest) - 1)}…{colon}{rest}", max(1, room))


def _cut(words: str, room: int) -> str:
    """The words, cut to the columns available; some letters take two."""
    return words if cell_len(words) <= room else set_cell_size(words, max(0, room))


def _line(stage: str, done: float, total: float, left: str, numbers: Mapping[str, float]) -> str:
    """The progress of a stage in one line."""
    course = text("said.about", about=stage_title(stage), said=_count(done, total))
    return "  ".join(filter(None, (course, left, format_numbers(numbers))))


def _fitting(numbers: Mapping[str, float], room: int) -> str:
    """The first numbers, as many as fit."""
    shown = [dict(islice(numbers.items(), count)) for count in range(_IN_A_BAR, 0, -1)]
    return next((said for some in shown if cell_len(said := format_numbers(some)) <= room), "")


class _Bars:
    """A bar for each stage. The parts of an attack follow each other, and only the running part has a bar."""

    def __init__(self, bars: rich_progress.Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}
        self._courses: dict[str, _Course] = {}

    def __call__(self, stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(stage, total=total, counts="", numbers="", visible=False)
        course = self._courses.setdefault(stage, _Course(done))
        done = course.reached(done, total)
        counts = _short_count(done, total)
        self._hide_other_parts(stage)
        room = self._bars.console.width - _BAR_WIDTH - len(counts) - course.clock_width(total) - _GAPS
        name = _shortened(stage, room)
        self._bars.update(
            self._tasks[stage],
            description=name,
            completed=done,
            total=total,
            counts=counts,
            numbers=_fitting(numbers, room - max(cell_len(name), self._widest())),
            visible=True,
        )

    def _widest(self) -> int:
        return max((cell_len(task.description) for task in self._bars.tasks if task.visible), default=0)

    def _hide_other_parts(self, stage: str) -> None:
        """Stages are called AUDIT: ATTACK: PART where an attack has parts."""
        whole = stage.rpartition(": ")[0]
        for other, task in list(self._tasks.items()) if ": " in whole else ():  # a copy: other threads change it
            if other != stage and other.rpartition(": ")[0] == whole:
                self._bars.update(task, visible=False)

    def forget(self, name: str) -> None:
        for stage in [stage for stage in self._tasks if stage.partition(":")[0].endswith(f" {name}")]:
            self._bars.remove_task(self._tasks.pop(stage))
            del self._courses[stage]

    def line(self, text: str) -> None:
        show_line(text, self._bars.console)


class _PlainLines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._courses: dict[str, _Course] = {}

    def __call__(self, stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
        course = self._courses.setdefault(stage, _Course(done))
        done, now = course.reached(done, total), time.monotonic()
        if done < total and now - course.told < _PLAIN_SECONDS:
            return
        course.told = now
        line = _line(stage, done, total, course.left(total), numbers)
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def line(self, text: str) -> None:
        show_line(text, self._console)


class _NotebookBar:
    """One bar in a notebook, redrawn in place: the total progress, the current stage, and all lines below."""

    def __init__(self) -> None:
        # Imported by name: every notebook has it, and nothing else needs it.
        self._display = import_module("IPython.display").display
        self._place: Any = None
        self._courses: dict[str, _Course] = {}
        self._share, self._said, self._lines = 0.0, "", list[str]()
        self._drawn = -math.inf

    def __call__(self, stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
        course = self._courses.setdefault(stage, _Course(done))
        course.total = total
        done = course.reached(done, total)
        self._share = self._share_of(stage.partition(": ")[0], course)
        self._said = _line(stage, done, total, course.left(total), numbers)
        if done >= total or time.monotonic() - self._drawn >= _NOTEBOOK_SECONDS:
            self._draw()

    def _share_of(self, name: str, at_work: _Course) -> float:
        """The fraction of the whole with the current step, if it is known; otherwise that of the current step."""
        whole = self._courses.get(name, at_work)
        if whole is at_work:
            return at_work.share
        return min(1.0, (whole.done + min(at_work.share, 0.99)) / whole.total)

    def forget(self, name: str) -> None:
        for stage in [stage for stage in self._courses if stage.partition(":")[0].endswith(f" {name}")]:
            del self._courses[stage]

    def line(self, text: str) -> None:
        self._lines.append(text)
        self._draw()

    def close(self) -> None:
        """Draw the last state."""
        if self._said or self._lines:
            self._draw()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        shown = _NotebookLine(self._share, [self._said, *self._lines] if self._said else self._lines)
        if self._place is None:
            self._place = self._display(shown, display_id=True)
        else:
            self._place.update(shown)


class _NotebookLine:
    """A bar with lines, as HTML and as plain text."""

    def __init__(self, share: float, lines: Sequence[str]) -> None:
        self._share, self._lines = share, [clean(line) for line in lines]

    def __repr__(self) -> str:
        return "\n".join([f"{100 * self._share:.0f} %", *self._lines])

    def _repr_html_(self) -> str:
        lines = "<br>".join(escape(line) for line in self._lines)
        return f'<progress max="1" value="{self._share:.4f}" style="width: 20em"></progress><br>{lines}'


# terminal output


def clean(text: str) -> str:
    """The text with every character that would control a terminal written as an escape."""
    return _STEERING.sub(lambda found: repr(found[0])[1:-1], text)


def open_console(*, stderr: bool = False) -> Console:
    """A console on stdout or stderr. All its output is clean; progress that cannot be written is dropped."""
    if not stderr:
        return _CleanConsole(file=sys.stdout)
    return _CleanConsole(file=cast(TextIO, Stream(sys.stderr, dropped=OSError)))


class _CleanConsole(Console):
    """A console that passes its own control codes, but none from texts."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render with clean texts."""
        for words, style, control in super().render(renderable, options):
            yield Segment(words if control else clean(words), style, control)


class Stream:
    """A stream of text. After an error of the kind ``dropped`` the rest is dropped; any other error is raised once."""

    def __init__(self, stream: TextIO | Any, *, dropped: type[OSError]) -> None:
        self._stream, self._dropped = stream, dropped

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text; letters that the encoding lacks become escapes."""
        with self._forgiving():
            try:
                self._stream.write(text)
            except UnicodeEncodeError as error:
                self._stream.write(text.encode(error.encoding, "backslashreplace").decode(error.encoding))
        return len(text)

    def flush(self) -> None:
        """Flush the output."""
        with self._forgiving():
            self._stream.flush()

    @contextmanager
    def _forgiving(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # Buffered text must go somewhere, or Python reports an error at exit.
            with suppress(OSError, ValueError, AttributeError), Path(os.devnull).open("w") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())
            if not isinstance(error, self._dropped):
                raise


@contextmanager
def lenient_streams() -> Iterator[None]:
    """For a command: a closed reader of stdout is not an error, and neither is any failure on stderr."""
    before = sys.stdout, sys.stderr
    with Path(os.devnull).open("w") as nowhere:  # Python sets a stream to None if it was closed before the start
        sys.stdout = cast(TextIO, Stream(before[0] or nowhere, dropped=BrokenPipeError))
        sys.stderr = cast(TextIO, Stream(before[1] or nowhere, dropped=OSError))
        try:
            yield
        finally:
            with suppress(OSError):
                sys.stdout.flush()
            sys.stderr.flush()
            sys.stdout, sys.stderr = before
