"""Bars on a terminal: one line per task at work, one below it per row; never wider than the terminal.

Bar, count and time come first and have fixed widths, so nothing moves when names and numbers change. What has ended
is removed; the last task stays until the display ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from attncem.base.courses import LEFT, SPENT, Course, format_count, format_numbers, head_of, is_of
from attncem.base.texts import text
from attncem.base.texts.titles import stage_title

_BAR, _COUNT, _TIME = 8, 8, 14
"""Columns of the bar, the count and the time."""
_NUMBERS = 3
"""Largest number of values in a line."""
_WITH_BAR, _WITH_TIME = 60, 44
"""Narrower terminals show no bar; even narrower ones no time either."""
_INDENT = "  "
_DRAWN = ("━", "╸", "─", "…")
_DRAWN_IN_ASCII = ("#", "#", "-", "~")


@dataclass
class _Line:
    """A stage at work: its course and its newest numbers."""

    stage: str
    course: Course
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass
class _Task:
    """A task's own line, where it reports itself, and its rows at work by name."""

    line: _Line | None = None
    rows: dict[str, _Line] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        return self.line is not None and self.line.course.ended


class Bars:
    """Draws the reported stages. A context manager: at its end the bars disappear, and printed lines stay."""

    def __init__(self, console: Console, show: Callable[[str], None]) -> None:
        self._console, self.line = console, show
        self._tasks: dict[str, _Task] = {}
        encoding = (console.encoding or "").lower()
        self._glyphs = _DRAWN if encoding.startswith("utf") else _DRAWN_IN_ASCII
        self._live = Live(get_renderable=self._drawn, console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Bars:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def __call__(self, stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
        """Record the progress of a stage."""
        name = head_of(stage)
        if name not in self._tasks:
            self._replace_ended(name)
        task = self._tasks.setdefault(name, _Task())
        if stage == name:
            task.line = task.line or _Line(stage, Course(done))
            if task.line.course.reach(done, total):
                task.rows.clear()  # those still at work report again
            task.line.numbers = numbers
        else:
            self._report_row(task, stage, done, total, numbers)
        if task.line is not None:
            task.line.course.forecast(numbers)

    def _replace_ended(self, name: str) -> None:
        """Remove what has ended of the same run, or of anything without a run's name."""
        run = name.partition(" ")[2]
        for other, task in list(self._tasks.items()):
            if task.ended and is_of(other, run):
                self._tasks.pop(other, None)

    def _report_row(self, task: _Task, stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
        """Of the parts of a row, only the one at work has a line."""
        row = stage.split(": ")[1]
        line = task.rows.get(row)
        if line is None or line.stage != stage:
            line = _Line(stage, Course(done))
        line.course.reach(done, total)
        line.numbers = numbers
        task.rows[row] = line
        if line.course.ended and task.line is not None:
            task.rows.pop(row)

    def forget(self, name: str) -> None:
        """Remove the lines of the tasks with this name."""
        for task in [task for task in list(self._tasks) if is_of(task, name)]:
            self._tasks.pop(task, None)

    # drawing

    def _drawn(self) -> Group:
        lines = self.lines(self._console.width, self._console.height - 1)
        return Group(*map(self._coloured, lines))

    def _coloured(self, line: str) -> Text:
        made = Text(line, no_wrap=True, overflow="crop")
        if self._console.width >= _WITH_BAR:
            filled = len(line[:_BAR].rstrip(self._glyphs[2]))
            made.stylize("bar.complete", 0, filled)
            made.stylize("dim", filled, _BAR)
        return made

    def lines(self, width: int, height: int) -> list[str]:
        """The lines for a terminal of this size; rows are left out where there are too many lines."""
        tasks = list(self._tasks.values())
        at_work = [task for task in tasks if not task.ended] or tasks[-1:]
        lines = [line for task in at_work for line in self._task_lines(task, width)]
        return lines if len(lines) <= height else [self._task_lines(task, width)[0] for task in at_work][:height]

    def _task_lines(self, task: _Task, width: int) -> list[str]:
        rows = list(task.rows.values())
        if task.line is None:
            return [self._written(row, row.course.clock, stage_title(row.stage), width) for row in rows]
        whole = task.line.course
        lines = [self._written(task.line, whole.clock, stage_title(task.line.stage), width)]
        for row in rows:
            alone = whole.has_forecast and whole.seconds_left is None and row.course.seconds_left is not None
            title = _INDENT + stage_title(row.stage.partition(": ")[2])
            lines.append(self._written(row, row.course.clock if alone else "", title, width))
        return lines

    def _written(self, line: _Line, clock: str, title: str, width: int) -> str:
        parts = [_right(_short_count(line.course), _COUNT)]
        if width >= _WITH_BAR:
            parts.insert(0, self._bar(line.course.share))
        if width >= _WITH_TIME:
            parts.append(_right(clock, _TIME))
        front = " ".join(parts) + "  "
        room = max(0, width - cell_len(front))
        name = self._cut(title, room)
        numbers = _fitting(line.numbers, room - cell_len(name) - 2)
        return f"{front}{name}  {numbers}".rstrip()

    def _bar(self, share: float) -> str:
        full, half, rest, _ = self._glyphs
        halves = min(2 * _BAR, round(2 * _BAR * share))
        return (full * (halves // 2) + half * (halves % 2)).ljust(_BAR, rest)

    def _cut(self, title: str, room: int) -> str:
        """The title in this many columns: its first words, the run's name, give way to what is at work."""
        if cell_len(title) <= room:
            return title
        first, colon, rest = title.partition(text("progress.colon"))
        more = self._glyphs[3]
        first = set_cell_size(first, max(0, room - cell_len(more + colon + rest))) + more
        return set_cell_size(first + colon + rest, max(0, room)).rstrip()


def _right(words: str, columns: int) -> str:
    return " " * (columns - cell_len(words)) + words


def _short_count(course: Course) -> str:
    """The count; a percentage from 100 steps on."""
    if course.total < 100:
        return format_count(course.done, course.total)
    return f"{100 * min(1.0, course.done / course.total):.0f} %"


def _fitting(numbers: Mapping[str, float], room: int) -> str:
    """The first numbers, as many as fit."""
    shown = {name: value for name, value in numbers.items() if name not in (LEFT, SPENT)}
    some = (format_numbers(dict(islice(shown.items(), count))) for count in range(_NUMBERS, 0, -1))
    return next((words for words in some if cell_len(words) <= room), "")
