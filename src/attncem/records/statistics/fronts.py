"""Arms compared with each other: the Pareto front, and the error of an arm at a given accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from attncem.records.comparison import ErrorAt, FrontPoint, SeedSummary, Standing
from attncem.records.statistics.images import Interval
from attncem.records.statistics.seeds import Values, finite_values, seed_summary

Box: TypeAlias = tuple[Interval, Interval]
"""The intervals of both axes."""


def pareto(
    points: Mapping[str, Sequence[tuple[float, float]]], *, seed: int = 0, num_resamples: int = 2000
) -> list[FrontPoint]:
    """The standing of every point among the others; a point is the pairs (x, y) of its seeds, more is better.

    A point's seeds are resampled as pairs. The spread of resampled means is widened by √(n / (n − 1)), because the
    spread of n seeds around their own mean is too small by this factor. A point with one seed has no spread for the
    others, and is itself never more than `possibly` on the front or off it.
    """
    pairs = {name: _pairs(name, own) for name, own in points.items()}
    axes = {name: (seed_summary(own[:, 0]), seed_summary(own[:, 1])) for name, own in pairs.items()}
    standings = place({name: (_interval(x), _interval(y)) for name, (x, y) in axes.items()})
    shares = _shares(list(pairs.values()), np.random.default_rng(seed), num_resamples)
    return [
        FrontPoint(name, *axes[name], standing=standings[name] if len(pairs[name]) > 1 else "possibly", share=share)
        for name, share in zip(points, shares, strict=True)
    ]


def _pairs(name: str, given: Sequence[tuple[float, float]]) -> NDArray[np.float64]:
    data = np.asarray(given, dtype=np.float64)
    if data.ndim != 2 or data.shape[1] != 2 or not len(data) or not np.isfinite(data).all():
        raise ValueError(f"{name}: a pair of finite numbers for each seed is needed")
    return data


def _interval(axis: SeedSummary) -> Interval:
    if axis.low is None or axis.high is None:
        return Interval(axis.mean, axis.mean, axis.mean)
    return Interval(axis.mean, axis.low, axis.high)


def place(boxes: Mapping[str, Box]) -> dict[str, Standing]:
    """The standing of every point by the intervals of both axes."""
    return {name: _standing(box, [other for key, other in boxes.items() if key != name]) for name, box in boxes.items()}


def _standing(own: Box, others: Sequence[Box]) -> Standing:
    lowest, highest = (own[0].low, own[1].low), (own[0].high, own[1].high)
    if not any(_beats((x.high, y.high), lowest) for x, y in others):
        return "surely"
    return "not" if any(_beats((x.low, y.low), highest) for x, y in others) else "possibly"


def _beats(a: tuple[float, float], b: tuple[float, float]) -> bool:
    """At least as good on both axes, and better on one."""
    return a[0] >= b[0] and a[1] >= b[1] and a != b


def _shares(points: Sequence[NDArray[np.float64]], rng: np.random.Generator, count: int) -> list[float]:
    """The fraction of resamples in which no other point beats each point."""
    if not points:
        return []
    means = np.stack([_resampled(own, rng, count) for own in points], axis=1)
    x, y = means[..., 0], means[..., 1]
    shares = []
    for number in range(len(points)):
        own_x, own_y = x[:, [number]], y[:, [number]]
        beaten = (x >= own_x) & (y >= own_y) & ((x > own_x) | (y > own_y))
        shares.append(1 - float(beaten.any(axis=1).mean()))
    return shares


def _resampled(own: NDArray[np.float64], rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Means of resampled seeds [resamples, 2]; one seed has no spread."""
    size, centre = len(own), own.mean(axis=0)
    if size < 2:
        return np.broadcast_to(centre, (count, 2))
    moved = own[rng.integers(0, size, (count, size))].mean(axis=1) - centre
    means: NDArray[np.float64] = centre + np.sqrt(size / (size - 1)) * moved
    return means


# error at an accuracy


def error_at(accuracies: Sequence[Values] | Values, errors: Sequence[Values] | Values, at: float) -> ErrorAt:
    """The error of an arm where its accuracy is ``at``: a curve for each seed (or one), points in any order.

    Each seed's curve is interpolated linearly between the two points whose accuracies enclose ``at``; the interval is
    Student's over the seeds. There is no result where the curve of any seed does not reach ``at``: leaving out the
    seeds that do not reach it would select by the outcome.
    """
    curves = [_curve(x, y) for x, y in zip(_by_seed(accuracies), _by_seed(errors), strict=True)]
    low, high = max(float(x[0]) for x, _ in curves), min(float(x[-1]) for x, _ in curves)
    if not low <= at <= high:
        return ErrorAt(at, len(curves), low, high)
    values = [float(np.interp(at, x, y)) for x, y in curves]
    return ErrorAt(at, len(curves), low, high, values, seed_summary(values))


def _by_seed(given: Sequence[Values] | Values) -> list[NDArray[np.float64]]:
    rows = given if len(given) and np.ndim(given[0]) else [given]
    return [finite_values(row) for row in rows]  # type: ignore[arg-type]


def _curve(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The curve sorted by accuracy; points of the same accuracy are averaged."""
    if x.shape != y.shape:
        raise ValueError(f"a curve needs as many errors as accuracies, not {len(y)} and {len(x)}")
    found, places = np.unique(x, return_inverse=True)
    return found, np.bincount(places, weights=y) / np.bincount(places)


def slope(accuracies: Values, values: Values) -> float | None:
    """The change of a value per unit of accuracy, by least squares over the points of a curve.

    None without two different accuracies. A point should be a mean over seeds: the spread of the accuracy inside a
    point flattens the line.
    """
    x, y = finite_values(accuracies), finite_values(values)
    if x.shape != y.shape:
        raise ValueError(f"a slope needs as many values as accuracies, not {len(y)} and {len(x)}")
    away = x - x.mean()
    spread = float((away**2).sum())
    return float(away @ (y - y.mean())) / spread if spread > 0 else None


def common_slope(curves: Sequence[tuple[Values, Values, Values]]) -> float | None:
    """The change of a value per unit of accuracy: one slope for several curves of weights, accuracies, values.

    The covariance of the value with the logarithm of the weight over that of the accuracy, each summed over the curves
    around their own means. So the noise of single accuracies, which are close together, neither flattens nor steepens
    the slope. None where more weight costs no accuracy.
    """
    costs = moves = 0.0
    for weights, accuracies, values in curves:
        strength, x, y = np.log(finite_values(weights)), finite_values(accuracies), finite_values(values)
        if not len(strength) == len(x) == len(y):
            counts = f"{len(y)}, {len(x)} and {len(strength)}"
            raise ValueError(f"a curve needs as many values as accuracies and weights, not {counts}")
        away = strength - strength.mean()
        costs, moves = costs + float(away @ x), moves + float(away @ y)
    return moves / costs if costs < 0 else None
