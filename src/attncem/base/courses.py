"""The course of every stage of progress: what is done, the time left, and both in words."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

from attncem.base.texts import text
from attncem.base.texts.titles import number_title, stage_title

LEFT, SPENT = "seconds left", "seconds spent"
"""Numbers that report the time of a whole task, such as an audit, from a forecast; nan: nobody can tell.

They come with the task's own stage or with a stage below it. Displays show them as the time, not among the numbers.
"""
_UNITS = {"hours": 3600.0, "minutes": 60.0}


def head_of(stage: str) -> str:
    """The task that a stage belongs to: stages are called TASK, TASK: ROW or TASK: ROW: PART."""
    return stage.partition(": ")[0]


class Course:
    """Monotonic progress of one stage.

    A stage that had ended, or that is back at its start, starts again: a second audit has rows of the same names.
    """

    def __init__(self, done: float) -> None:
        self.shown, self.total = -math.inf, 1.0
        self._left, self._spent, self._at = math.nan, 0.0, 0.0
        self.has_forecast = False
        """Whether the time comes from a forecast: equal steps are then no measure of it."""
        self._begin(done)

    def _begin(self, done: float) -> None:
        self.began, self.first, self.done = time.monotonic(), done, done

    def reach(self, done: float, total: float) -> bool:
        """Record the progress; whether it moved on."""
        if done < total <= self.done or done <= self.first < self.done:
            self._begin(done)
        moved, self.done, self.total = done > self.done, max(self.done, done), total
        return moved

    def forecast(self, numbers: Mapping[str, float]) -> None:
        """Take over the time that is spent and left, where the numbers hold it."""
        if LEFT in numbers:
            self.has_forecast = True
            self._left, self._spent, self._at = numbers[LEFT], numbers.get(SPENT, 0.0), time.monotonic()

    @property
    def ended(self) -> bool:
        """Whether all is done."""
        return self.done >= self.total

    @property
    def seconds_left(self) -> float | None:
        """By the forecast, which runs down, or else by equal steps; None where nobody can tell."""
        if self.ended or (self.has_forecast and math.isnan(self._left)):
            return None
        now = time.monotonic()
        if self.has_forecast:
            return max(0.0, self._left - (now - self._at))
        moved = self.done - self.first
        return (now - self.began) * (self.total - self.done) / moved if moved > 0 else None

    @property
    def seconds_spent(self) -> float:
        """Time since the start, and by the forecast before it."""
        now = time.monotonic()
        return self._spent + now - self._at if self.has_forecast and self._spent else now - self.began

    @property
    def share(self) -> float:
        """The finished fraction: of the time where there is a forecast, otherwise of the steps."""
        if self.has_forecast and (left := self.seconds_left) is not None:
            return self.seconds_spent / max(1e-9, self.seconds_spent + left)
        return min(1.0, self.done / self.total) if self.total > 0 else 1.0

    @property
    def left(self) -> str:
        """The time left in words; empty where nobody can tell."""
        seconds = self.seconds_left
        return "" if seconds is None else text("progress.left", time=format_duration(seconds))

    @property
    def clock(self) -> str:
        """The time left in a few columns, or else the time spent."""
        seconds = self.seconds_left
        if seconds is not None:
            return text("progress.clock.left", time=format_duration(seconds))
        return text("progress.clock.spent", time=format_duration(self.seconds_spent))


class Courses(dict[str, Course]):
    """The courses of all stages by name."""

    def report(self, stage: str, done: float, total: float, numbers: Mapping[str, float]) -> Course:
        """Record the progress of a stage, and the time of its task."""
        course = self.setdefault(stage, Course(done))
        course.reach(done, total)
        self.get(head_of(stage), course).forecast(numbers)
        return course

    def left(self, stage: str) -> str:
        """The time left, in words: of the stage's task where a forecast tells, otherwise of the stage."""
        task = self.get(head_of(stage))
        return task.left if task is not None and task.left and task.has_forecast else self[stage].left

    def line(self, stage: str, numbers: Mapping[str, float]) -> str:
        """The progress of a stage in one line."""
        course = self[stage]
        count = text("said.about", about=stage_title(stage), said=format_count(course.done, course.total))
        return "  ".join(filter(None, (count, self.left(stage), format_numbers(numbers))))

    def forget(self, name: str) -> None:
        """Remove the stages of the tasks with this name."""
        for stage in [stage for stage in list(self) if is_of(stage, name)]:
            self.pop(stage, None)


def is_of(stage: str, name: str) -> bool:
    """Whether a stage belongs to a task with this name, such as the training of this run."""
    return head_of(stage).endswith(f" {name}")


def format_numbers(numbers: Mapping[str, float]) -> str:
    """Numbers in one short line; times are shown elsewhere."""
    shown = {name: value for name, value in numbers.items() if name not in (LEFT, SPENT)}
    return "  ".join(f"{number_title(name)} {value:.4g}" for name, value in shown.items())


def format_duration(seconds: float, digits: int = 2, least: float = 1.0) -> str:
    """A duration in a suitable unit, rounded as an estimate; a measured one may have more digits."""
    unit, size = next(((unit, size) for unit, size in _UNITS.items() if seconds >= 1.5 * size), ("seconds", 1.0))
    return text(f"amount.{unit}", value=float(f"{max(least, seconds / size):.{digits}g}"))


def format_count(done: float, total: float) -> str:
    """Whole steps, epochs or rows only."""
    return text("progress.count", done=math.floor(done), total=total)
