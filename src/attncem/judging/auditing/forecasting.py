"""Forecast of an audit's time on a CPU, reported before the first row and, as the time left, with every progress."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import torch

from attncem.base.courses import LEFT, SPENT, format_duration
from attncem.base.progress import Progress, tell
from attncem.base.texts import text
from attncem.base.texts.titles import row_titles
from attncem.base.types import NotApplicable
from attncem.config.options.base import Options
from attncem.judging.attacks.base import Attack
from attncem.judging.attacks.forecast import Seconds, timed
from attncem.judging.auditing.judges import build_judge
from attncem.judging.auditing.measuring import image_values
from attncem.judging.case import BATCH, Case
from attncem.records.image_scores import summarise

RowSeconds = Mapping[str, Seconds | None]
"""The time of rows by name; None where it is unknown."""
_OVERTIME = 0.05
"""A row that takes longer than its forecast is expected to need this share of its time in addition."""
_OWN = 300
"""Largest number of the attacker's images in a trial: more than any batch of the suites."""


def foretell(case: Case, rows: Mapping[str, Options], progress: Progress, workers: int = 1) -> RowSeconds:
    """Report how long these rows will take, on a CPU and if progress has a listener; returns the time of each row."""
    if not rows or case.subject.device.type != "cpu" or not hasattr(progress, "line"):
        return dict.fromkeys(rows)
    seconds = forecasts(case, rows)
    total, unknown = _total(case, seconds, workers)
    run, about = case.subject.name, format_duration(total.middle)
    if unknown:
        tell(progress, text("terminal.forecast.part", run=run, least=about, rows=row_titles(unknown)))
    else:
        tell(progress, text("terminal.forecast.about", run=run, time=about))
    return seconds


def forecast(case: Case, rows: Mapping[str, Options], workers: int = 1) -> tuple[Seconds, list[str]]:
    """Total time of the rows, and the names of the rows without a forecast, which it does not include."""
    return _total(case, forecasts(case, rows), workers)


def forecasts(case: Case, rows: Mapping[str, Options]) -> RowSeconds:
    """The time of each row; None where it is unknown."""
    judging = lru_cache(lambda images: _judging(case, images))
    with torch.random.fork_rng(devices=[]):
        return {name: _of_row(case, options, judging) for name, options in rows.items()}


def _total(case: Case, rows: RowSeconds, workers: int) -> tuple[Seconds, list[str]]:
    """``workers`` run rows in parallel: at best they never wait, at worst the longest row starts last."""
    sure = [seconds for seconds in rows.values() if seconds is not None]
    return _own_features(case) + _beside(sure, workers), [name for name, seconds in rows.items() if seconds is None]


def _beside(rows: Sequence[Seconds], workers: int) -> Seconds:
    """Time of rows shared among workers; no order of the rows takes longer than the upper limit (Graham 1969)."""
    if not rows:
        return Seconds()
    total = sum(rows, Seconds()).times(1 / workers)
    longest = Seconds(max(row.least for row in rows), max(row.most for row in rows))
    return Seconds(max(total.least, longest.least), total.most + (1 - 1 / workers) * longest.most)


class Schedule:
    """The time that the missing rows of an audit still need, by their forecasts and the time since each started.

    ``spent`` is the time of the rows that are already there. Rows start in their order, as many at once as there are
    workers.
    """

    def __init__(self, rows: RowSeconds, workers: int = 1, spent: float = 0.0) -> None:
        self._rows, self._workers, self._before = dict(rows), workers, spent
        self._began = time.monotonic()
        self._started: dict[str, float] = {}
        self._start()

    def _start(self) -> None:
        for name in list(self._rows)[: self._workers]:
            self._started.setdefault(name, time.monotonic())

    def end(self, name: str) -> None:
        """Record that a row is measured."""
        self._rows.pop(name)
        self._start()

    def numbers(self) -> dict[str, float]:
        """Seconds spent and left, for `progress`; rows without a forecast do not count, and nan is unknown."""
        lefts = [self._left(name, seconds) for name, seconds in self._rows.items() if seconds is not None]
        left = max(sum(lefts) / self._workers, *lefts) if lefts else math.nan if self._rows else 0.0
        return {LEFT: left, SPENT: self._before + time.monotonic() - self._began}

    def _left(self, name: str, seconds: Seconds) -> float:
        """The expected rest of a row, if each duration between `least` and `most` is equally likely."""
        taken = time.monotonic() - self._started.get(name, time.monotonic())
        rest = seconds.middle - taken if taken < seconds.least else (seconds.most - taken) / 2
        return max(rest, _OVERTIME * taken)


def _of_row(case: Case, options: Options, judging: Callable[[int], Seconds]) -> Seconds | None:
    """Zero if the row is not applicable, None without a forecast; if a trial fails, the row reports the error."""
    judge = build_judge(options)
    try:
        if not isinstance(judge, Attack):
            case.require(judge.needs)
            return judge.forecast(case.for_row(options))
        images, own = len(case.image_index(judge)), len(case.owned_by(judge))
        seconds = judge.forecast(case.for_row(options).oracle(judge, 0, own=_OWN), own, images)
    except NotApplicable:
        return Seconds()
    except Exception:
        return None
    return None if seconds is None else seconds + judging(images)


def _judging(case: Case, images: int) -> Seconds:
    """Time of the measures of `images` images and of the intervals of their means."""
    x, labels = case.x[:BATCH], case.y[:images].cpu().numpy()
    values, _ = image_values(x.flip(0), x)
    measures = timed(lambda: image_values(x.flip(0), x)).times(images / len(x))
    some = np.resize(values["mse"], images)
    return measures + timed(lambda: summarise(some, labels, case.subject.spec.num_classes)).times(len(values))


def _own_features(case: Case) -> Seconds:
    """Time of the features of the attacker's images, computed once for all rows."""
    x = case.auxiliary.first(0 if case.threat.queries is not None else _OWN).in_parts
    return timed(lambda: case.known_of(x)).times(len(case.auxiliary) / len(x)) if len(x) else Seconds()
