"""Intervals for means over images. NumPy and SciPy only."""

from __future__ import annotations

from dataclasses import dataclass

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
_TAIL = 0.025


def bootstrap_mean(values: NDArray[np.floating], *, seed: int = 0, num_resamples: int = 2000) -> Interval:
    """Mean with its 95 % bias-corrected bootstrap interval, over images (not over seeds)."""
    data = np.asarray(values, dtype=np.float64)
    if data.size == 0:
        raise ValueError("no values to average")
    mean = float(data.mean())
    if data.size < 2 or np.ptp(data) < 1e-12 * max(1.0, abs(mean)):
        return Interval(mean, mean, mean)
    means = _resampled_means(data, np.random.default_rng(seed), num_resamples)
    low, high = np.quantile(means, _corrected_tails(data, means))
    return Interval(mean, float(low), float(high))


def _resampled_means(data: NDArray[np.float64], rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    batch = max(1, _BATCH_ELEMENTS // data.size)
    sizes = [min(batch, count - done) for done in range(0, count, batch)]
    return np.concatenate([data[rng.integers(0, data.size, (size, data.size))].mean(axis=1) for size in sizes])


def _corrected_tails(data: NDArray[np.float64], means: NDArray[np.float64]) -> NDArray[np.float64]:
    """The two quantiles of the resampled means that bound the interval (BCa: Efron and Tibshirani 1993, 14.3).

    They are scipy.stats.bootstrap's. The mean without one value is known from the mean, so that the acceleration
    needs no resamples of its own: with 10,000 values these would be most of the work.
    """
    from scipy.special import ndtr, ndtri

    mean = data.mean()
    bias = ndtri(((means < mean).mean() + (means <= mean).mean()) / 2)
    away = data - mean
    acceleration = (away**3).sum() / (away**2).sum() ** 1.5 / 6
    shifted = bias + np.array([1.0, -1.0]) * ndtri(_TAIL)
    tails: NDArray[np.float64] = ndtr(bias + shifted / (1 - acceleration * shifted))
    return tails
