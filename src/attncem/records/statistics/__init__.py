"""Intervals and tests over images (bootstrap) and over seeds (Student, exact permutations, fronts). NumPy and SciPy."""

from __future__ import annotations

from attncem.records.statistics.fronts import common_slope, error_at, pareto, place, slope
from attncem.records.statistics.images import (
    NORMAL,
    Estimate,
    Interval,
    bootstrap_mean,
    bootstrap_ratio,
    compare_apart,
    compare_images,
    difference_apart,
    mean_limit,
    share_interval,
)
from attncem.records.statistics.seeds import (
    adjust,
    compare_arms,
    permutation_p,
    ratio_interval,
    seed_summary,
    smallest_p,
    welch_interval,
)

__all__ = [
    "NORMAL",
    "Estimate",
    "Interval",
    "adjust",
    "bootstrap_mean",
    "bootstrap_ratio",
    "common_slope",
    "compare_apart",
    "compare_arms",
    "compare_images",
    "difference_apart",
    "error_at",
    "mean_limit",
    "pareto",
    "permutation_p",
    "place",
    "ratio_interval",
    "seed_summary",
    "share_interval",
    "slope",
    "smallest_p",
    "welch_interval",
]
