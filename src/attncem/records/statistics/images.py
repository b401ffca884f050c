"""Statistics over images, for one trained model or two on the same images; they do not generalise to other seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from attncem.records.comparison import Comparison, VerdictCode


class Estimate(Protocol):
    """A mean with the ends of its interval over images."""

    @property
    def mean(self) -> float:
        """The mean over images."""

    @property
    def low(self) -> float:
        """The lower end."""

    @property
    def high(self) -> float:
        """The upper end."""


@dataclass(frozen=True)
class Interval:
    """A mean, or a ratio of means, with its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


NORMAL = 1.96
"""Standard deviations of a normal distribution on each side that hold 95 %."""
_BATCH_ELEMENTS = 500_000
"""Resamples are drawn in chunks of about this many numbers, which fit the CPU cache; the draws do not change."""
_KEPT_ELEMENTS = 50_000_000
"""Draws of up to this many numbers are cached, a byte each: every measure of every row of an audit uses the same."""
_TAIL, _ONE_TAIL = 0.025, 0.05


def bootstrap_mean(values: NDArray[np.floating], *, seed: int = 0, num_resamples: int = 2000) -> Interval:
    """Mean with its 95 % bias-corrected bootstrap interval, over images (not over seeds)."""
    data = np.asarray(values, dtype=np.float64)
    if data.size == 0:
        raise ValueError("no values to average")
    mean = float(data.mean())
    if data.size < 2 or _is_constant(data):
        return Interval(mean, mean, mean)
    (sums,) = _resampled_sums((data,), seed, num_resamples)
    return _corrected(mean, sums / data.size, data - mean)


def mean_limit(values: NDArray[np.floating], *, upper: bool = True, seed: int = 0, num_resamples: int = 2000) -> float:
    """One-sided 95 % confidence limit of the mean, upper or lower, by the same bootstrap."""
    data = np.asarray(values, dtype=np.float64)
    if data.size == 0:
        raise ValueError("no values to average")
    mean = float(data.mean())
    if data.size < 2 or _is_constant(data):
        return mean
    (sums,) = _resampled_sums((data,), seed, num_resamples)
    found = _corrected(mean, sums / data.size, data - mean, _ONE_TAIL)
    return found.high if upper else found.low


def bootstrap_ratio(
    a: NDArray[np.floating], b: NDArray[np.floating], *, seed: int = 0, num_resamples: int = 2000
) -> Interval | None:
    """mean(a) / mean(b) of the same images with its 95 % interval, paired; None where a resample of b sums to 0."""
    first, second = _paired(a, b)
    if not second.sum():
        return None
    ratio = float(first.sum() / second.sum())
    if first.size < 2 or _is_constant(first - ratio * second):
        return Interval(ratio, ratio, ratio)
    above, below = _resampled_sums((first, second), seed, num_resamples)
    left = second.sum() - second
    if not (below.all() and left.all()):
        return None
    without = (first.sum() - first) / left
    return _corrected(ratio, above / below, without.mean() - without)


def _paired(a: NDArray[np.floating], b: NDArray[np.floating]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.size == 0 or first.ndim != 1 or first.shape != second.shape:
        raise ValueError(f"pairs are needed, one number each for the same images: {first.shape} and {second.shape}")
    return first, second


def _is_constant(data: NDArray[np.float64]) -> bool:
    return bool(np.ptp(data) < 1e-12 * max(1.0, abs(float(data.mean()))))


# two models


def compare_images(
    values_a: NDArray[np.floating], values_b: NDArray[np.floating], *, a: str = "a", b: str = "b", measure: str = ""
) -> Comparison:
    """Two runs on the same images, paired: the bootstrap of the differences and of the ratio of the means."""
    first, second = _paired(values_a, values_b)
    found, ratio = bootstrap_mean(first - second), bootstrap_ratio(first, second)
    return Comparison(
        a=a,
        b=b,
        measure=measure,
        over="images",
        count_a=len(first),
        count_b=len(second),
        mean_a=float(first.mean()),
        mean_b=float(second.mean()),
        difference=found.mean,
        low=found.low,
        high=found.high,
        ratio=ratio.mean if ratio else None,
        ratio_low=ratio.low if ratio else None,
        ratio_high=ratio.high if ratio else None,
        verdict=_verdict(found),
    )


def compare_apart(
    first: Estimate, second: Estimate, counts: tuple[int, int], *, a: str = "a", b: str = "b", measure: str = ""
) -> Comparison:
    """Two runs by their means and intervals only, where no pairs are available."""
    found = difference_apart(first, second)
    return Comparison(
        a=a,
        b=b,
        measure=measure,
        over="images_apart",
        count_a=counts[0],
        count_b=counts[1],
        mean_a=first.mean,
        mean_b=second.mean,
        difference=found.mean,
        low=found.low,
        high=found.high,
        ratio=first.mean / second.mean if second.mean else None,
        verdict=_verdict(found),
    )


def difference_apart(a: Estimate, b: Estimate) -> Interval:
    """The difference a − b of two estimates (Zou and Donner 2008), treated as independent.

    It is too wide where both saw the same images.
    """
    difference = a.mean - b.mean
    below = math.hypot(a.mean - a.low, b.high - b.mean)
    above = math.hypot(a.high - a.mean, b.mean - b.low)
    return Interval(difference, difference - below, difference + above)


def share_interval(share: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a share of so many images (Wilson)."""
    square = NORMAL**2
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = NORMAL / (1 + square / count) * math.sqrt(share * (1 - share) / count + square / (4 * count**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def _verdict(difference: Interval) -> VerdictCode:
    if difference.low > 0:
        return "a_higher"
    return "b_higher" if difference.high < 0 else "no_difference_shown"


# the bootstrap


def _resampled_sums(parts: Sequence[NDArray[np.float64]], seed: int, count: int) -> list[NDArray[np.float64]]:
    """Sums of every part over each resample; all parts belong to the same images and use the same draws."""
    size = parts[0].size
    draws = _kept_draws if size * count <= _KEPT_ELEMENTS else _draws
    sums = [[times @ data for data in parts] for times in draws(size, seed, count)]
    return [np.concatenate(part) for part in zip(*sums, strict=True)]


@lru_cache(maxsize=1)
def _kept_draws(size: int, seed: int, count: int) -> Iterable[NDArray[np.uint8]]:
    return list(_draws(size, seed, count))


def _draws(size: int, seed: int, count: int) -> Iterator[NDArray[np.uint8]]:
    """How often each resample draws each value, [resamples, size], chunk by chunk (always far below 256)."""
    rng, batch = np.random.default_rng(seed), max(1, _BATCH_ELEMENTS // size)
    for done in range(0, count, batch):
        taken = rng.integers(0, size, (min(batch, count - done), size))
        taken += size * np.arange(len(taken))[:, None]
        yield np.bincount(taken.ravel(), minlength=taken.size).astype(np.uint8).reshape(taken.shape)


def _corrected(
    value: float, resampled: NDArray[np.float64], away: NDArray[np.float64], tail: float = _TAIL
) -> Interval:
    """The interval between two quantiles of the resampled values (BCa: Efron and Tibshirani 1993, 14.3).

    The quantiles are those of scipy.stats.bootstrap. ``away`` is, up to a factor, the change of the value without each
    image; for means and their ratios it has a closed form: with 10,000 images, recomputing it would be most of the
    work. If every resampled value is on one side, which rounding can do to values that hardly differ, half a resample
    counts as on the other side.
    """
    from scipy.special import ndtr, ndtri

    least = 0.5 / resampled.size
    below = np.clip(((resampled < value).mean() + (resampled <= value).mean()) / 2, least, 1 - least)
    bias = ndtri(below)
    acceleration = (away**3).sum() / (away**2).sum() ** 1.5 / 6
    shifted = bias + np.array([1.0, -1.0]) * ndtri(tail)
    low, high = np.quantile(resampled, ndtr(bias + shifted / (1 - acceleration * shifted)))
    return Interval(value, float(low), float(high))
