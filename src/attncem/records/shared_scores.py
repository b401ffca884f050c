"""The numbers of an audit that compare rows image by image: shared errors, gains of repeated releases, rivals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace

import numpy as np
from numpy.typing import NDArray

from attncem.base.record import Record
from attncem.base.types import RunError
from attncem.records.audit import Row
from attncem.records.averaging import Averaging
from attncem.records.image_scores import NEAR, ImageScores
from attncem.records.rivals import Rival
from attncem.records.statistics import bootstrap_mean, bootstrap_ratio

Errors = NDArray[np.float64]
Scores = Callable[[str], ImageScores | None]
"""The per-image scores of a row, with its MSE; None where they were not kept."""


class Shared(Record):
    """Errors on the images that all rows share, by row, the gains of repeated releases, and attacks that may lose.

    ``missing`` are rows whose per-image scores were not kept: the errors are then those on all images of each row, and
    gains that need them are left out.
    """

    errors: dict[str, float] = field(default_factory=dict)
    averaging: list[Averaging] = field(default_factory=list)
    rivals: list[Rival] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def shared_errors(rows: Sequence[Row], scores: Scores) -> Shared:
    """Mean MSE of each attack and floor on the images that all of them share; empty where they share none."""
    judged = [row for row in rows if row.ok and row.kind in ("floor", "attack")]
    errors = {row.name: row.mse.mean for row in judged}
    if len({row.num_images for row in judged}) < 2:
        return Shared(errors)
    kept = {row.name: scores(row.name) for row in judged}
    present = {name: item for name, item in kept.items() if item is not None}
    if len(present) < len(kept):
        return Shared(errors, missing=[name for name in kept if name not in present])
    common = set.intersection(*(set(item.index.tolist()) for item in present.values()))
    chosen = np.array(sorted(common), dtype=np.int64)
    means = {name: item.values["mse"][np.isin(item.index, chosen)].mean() for name, item in present.items() if common}
    return Shared({name: float(mean) for name, mean in means.items()})


def with_averaging(
    shared: Shared, pairs: Sequence[tuple[Row, Row]], scores: Scores, older: Callable[[], Sequence[Averaging]]
) -> Shared:
    """The shared numbers with the gain of each row over its base.

    ``older`` reads gains without a seal, which are used where they follow from the rows.
    """
    stored = {(item.row, item.base): item for item in (older() if pairs else ())}
    gains, missing = list[Averaging](), list(shared.missing)
    for row, base in pairs:
        item = stored.get((row.name, base.name))
        item = item if item and _follows(item, row, base) else _gain(row, base, scores)
        if item is None:
            missing += [it.name for it in (row, base) if scores(it.name) is None]
        else:
            gains.append(item)
    return replace(shared, averaging=gains, missing=list(dict.fromkeys(missing)))


def with_rivals(shared: Shared, pairs: Sequence[tuple[Row, Row]], scores: Scores) -> Shared:
    """The shared numbers with each attack beside the one that it loses to by its mean; none without scores."""
    compared = ((row, other, _paired(row, other, scores)) for row, other in pairs)
    rivals = [_rival(row, other, *errors) for row, other, errors in compared if errors is not None]
    return replace(shared, rivals=[rival for rival in rivals if rival is not None])


def _rival(row: Row, other: Row, own: Errors, others: Errors) -> Rival | None:
    ratio = bootstrap_ratio(own, others)
    if ratio is None:
        return None
    return Rival(row.name, other.name, ratio.mean - 1, ratio.low - 1, ratio.high - 1)


def _paired(row: Row, other: Row, scores: Scores) -> tuple[Errors, Errors] | None:
    """The errors of two rows on the images of both; None without scores."""
    first, second = scores(row.name), scores(other.name)
    if first is None or second is None:
        return None
    _, places, others = np.intersect1d(first.index, second.index, return_indices=True)
    if not len(places):
        raise RunError(f"the rows {row.name} and {other.name} share no image: one of their .npz files is damaged")
    return first.values["mse"][places], second.values["mse"][others]


def _gain(row: Row, base: Row, scores: Scores) -> Averaging | None:
    """How much lower the error of a row is than that of its base, on the images of both; None without scores."""
    errors = _paired(row, base, scores)
    if errors is None:
        return None
    after, before = errors
    lower, whole = bootstrap_mean(before - after), max(float(before.mean()), 1e-12)
    gain, low, high = (part / whole for part in (lower.mean, lower.low, lower.high))
    return Averaging(row.name, base.name, row.releases, row.jitter, gain, low, high)


def _follows(item: Averaging, row: Row, base: Row) -> bool:
    """Whether a gain follows from the means of two rows; rows with different images cannot show it."""
    gain = 1 - row.mse.mean / max(base.mse.mean, 1e-12)
    return row.num_images == base.num_images and abs(item.gain - gain) <= NEAR and item.low <= item.gain <= item.high
