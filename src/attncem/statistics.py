"""Intervals for means over images. NumPy and SciPy only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


_BATCH_ELEMENTS = 500_000
"""Resamples are drawn in chunks of about this many numbers, which stay in the processor's cache; it changes no draw."""
_KEPT_ELEMENTS = 50_000_000
"""Draws of up to this many numbers are kept, a byte each: every measure of every row of an audit asks for the same."""
_TAIL = 0.025
_ONE_TAIL = 0.05
_BOTH = np.array([1.0, -1.0])
"""The lower and the upper end, as signs of a tail's normal deviate."""


def bootstrap_mean(values: NDArray[np.floating], *, seed: int = 0, num_resamples: int = 2000) -> Interval:
    """Mean with its 95 % bias-corrected bootstrap interval, over images (not over seeds)."""
    data = np.asarray(values, dtype=np.float64)
    if data.size == 0:
        raise ValueError("no values to average")
    mean = float(data.mean())
    if data.size < 2 or np.ptp(data) < 1e-12 * max(1.0, abs(mean)):
        return Interval(mean, mean, mean)
    means = _resampled_means(data, seed, num_resamples)
    low, high = np.quantile(means, _corrected_tails(data, means, _BOTH, _TAIL))
    return Interval(mean, float(low), float(high))


def mean_limit(values: NDArray[np.floating], *, upper: bool = True, seed: int = 0, num_resamples: int = 2000) -> float:
    """What the mean lies below (or above) with 95 % confidence: one end of an interval, by the same bootstrap."""
    data = np.asarray(values, dtype=np.float64)
    if data.size == 0:
        raise ValueError("no values to average")
    mean = float(data.mean())
    if data.size < 2 or np.ptp(data) < 1e-12 * max(1.0, abs(mean)):
        return mean
    means = _resampled_means(data, seed, num_resamples)
    return float(np.quantile(means, _corrected_tails(data, means, -1.0 if upper else 1.0, _ONE_TAIL)))


def _resampled_means(data: NDArray[np.float64], seed: int, count: int) -> NDArray[np.float64]:
    draws = _kept_draws if data.size * count <= _KEPT_ELEMENTS else _draws
    return np.concatenate([times @ data for times in draws(data.size, seed, count)]) / data.size


@lru_cache(maxsize=1)
def _kept_draws(size: int, seed: int, count: int) -> Iterable[NDArray[np.uint8]]:
    return list(_draws(size, seed, count))


def _draws(size: int, seed: int, count: int) -> Iterator[NDArray[np.uint8]]:
    """How often each resample takes each value, [resamples, size], chunk by chunk (never anywhere near 256 times)."""
    rng, batch = np.random.default_rng(seed), max(1, _BATCH_ELEMENTS // size)
    for done in range(0, count, batch):
        taken = rng.integers(0, size, (min(batch, count - done), size))
        taken += size * np.arange(len(taken))[:, None]
        yield np.bincount(taken.ravel(), minlength=taken.size).astype(np.uint8).reshape(taken.shape)


def _corrected_tails(
    data: NDArray[np.float64], means: NDArray[np.float64], ends: NDArray[np.float64] | float, tail: float
) -> NDArray[np.float64]:
    """The quantiles of the resampled means at the ends of an interval (BCa: Efron and Tibshirani 1993, 14.3).

    They are scipy.stats.bootstrap's. The mean without one value is known from the mean, so that the acceleration
    needs no resamples of its own: with 10,000 values these would be most of the work.
    """
    from scipy.special import ndtr, ndtri

    mean = data.mean()
    bias = ndtri(((means < mean).mean() + (means <= mean).mean()) / 2)
    away = data - mean
    acceleration = (away**3).sum() / (away**2).sum() ** 1.5 / 6
    shifted = bias + ends * ndtri(tail)
    tails: NDArray[np.float64] = ndtr(bias + shifted / (1 - acceleration * shifted))
    return tails
