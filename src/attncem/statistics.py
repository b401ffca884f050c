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


_BATCH_ELEMENTS = 10_000_000
"""SciPy resamples in chunks of about this many numbers, so that 10,000 images fit in memory."""


def bootstrap_mean(values: NDArray[np.floating], *, seed: int = 0, num_resamples: int = 2000) -> Interval:
    """Mean with its 95 % bias-corrected bootstrap interval, over images (not over seeds)."""
    from scipy.stats import bootstrap

    data = np.asarray(values, dtype=np.float64)
    if data.size == 0:
        raise ValueError("no values to average")
    mean = float(data.mean())
    if data.size < 2 or np.ptp(data) < 1e-12 * max(1.0, abs(mean)):
        return Interval(mean, mean, mean)
    result = bootstrap(
        (data,),
        np.mean,
        n_resamples=num_resamples,
        batch=max(1, _BATCH_ELEMENTS // data.size),
        rng=np.random.default_rng(seed),
    )
    low, high = result.confidence_interval
    return Interval(mean, float(low), float(high))
