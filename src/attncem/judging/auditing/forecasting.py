"""Forecast of an audit's time on a CPU, reported before the first row: from trials on this machine during the audit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import torch

from attncem.base.progress import Progress, format_duration, tell
from attncem.base.texts import text
from attncem.base.texts.titles import row_titles
from attncem.base.types import NotApplicable
from attncem.config.options.base import Options
from attncem.judging.attacks.base import Attack
from attncem.judging.attacks.forecast import Seconds, timed
from attncem.judging.auditing.judges import build_judge
from attncem.judging.auditing.measuring import image_values, summarise
from attncem.judging.case import BATCH, Case

_OWN = 300
"""Largest number of the attacker's images in a trial: more than any batch of the suites."""


def foretell(case: Case, rows: Mapping[str, Options], progress: Progress, workers: int = 1) -> None:
    """Report how long these rows will take, on a CPU and if progress has a listener."""
    if not rows or case.subject.device.type != "cpu" or not hasattr(progress, "line"):
        return
    seconds, unknown = forecast(case, rows, workers)
    run, least, most = case.subject.name, format_duration(seconds.least), format_duration(seconds.most)
    if unknown:
        tell(progress, text("terminal.forecast.part", run=run, least=least, rows=row_titles(unknown)))
    elif least == most:
        tell(progress, text("terminal.forecast.about", run=run, time=least))
    else:
        tell(progress, text("terminal.forecast.range", run=run, least=least, most=most))


def forecast(case: Case, rows: Mapping[str, Options], workers: int = 1) -> tuple[Seconds, list[str]]:
    """Total time of the rows, and the names of the rows without a forecast, which it does not include.

    ``workers`` run rows in parallel: at best they never wait, at worst the longest row starts last.
    """
    judging = lru_cache(lambda images: _judging(case, images))
    with torch.random.fork_rng(devices=[]):
        found = {name: _of_row(case, options, judging) for name, options in rows.items()}
    known = [seconds for seconds in found.values() if seconds is not None]
    return _own_features(case) + _beside(known, workers), [name for name, seconds in found.items() if seconds is None]


def _beside(rows: Sequence[Seconds], workers: int) -> Seconds:
    """Time of rows shared among workers; no order of the rows takes longer than the upper limit (Graham 1969)."""
    if not rows:
        return Seconds()
    total = sum(rows, Seconds()).times(1 / workers)
    longest = Seconds(max(row.least for row in rows), max(row.most for row in rows))
    return Seconds(max(total.least, longest.least), total.most + (1 - 1 / workers) * longest.most)


def _of_row(case: Case, options: Options, judging: Callable[[int], Seconds]) -> Seconds | None:
    """Zero if the row is not applicable, None without a forecast; if a trial fails, the row reports the error."""
    judge = build_judge(options)
    if not isinstance(judge, Attack):
        return None
    images, own = len(case.image_index(judge)), len(case.auxiliary)
    try:
        found = judge.forecast(case.for_row(options).oracle(judge, 0, own=_OWN), own, images)
    except NotApplicable:
        return Seconds()
    except Exception:
        return None
    return None if found is None else found + judging(images)


def _judging(case: Case, images: int) -> Seconds:
    """Time of the measures of `images` images and of the intervals of their means."""
    x, labels = case.x[:BATCH], case.y[:images].cpu().numpy()
    values, _ = image_values(x.flip(0), x)
    measures = timed(lambda: image_values(x.flip(0), x)).times(images / len(x))
    some = np.resize(values["mse"], images)
    return measures + timed(lambda: summarise(some, labels, case.subject.spec.num_classes)).times(len(values))


def _own_features(case: Case) -> Seconds:
    """Time of the features of the attacker's images, computed once for all rows."""
    x = case.auxiliary.first(_OWN).in_parts
    return timed(lambda: case.known_of(x)).times(len(case.auxiliary) / len(x)) if len(x) else Seconds()
