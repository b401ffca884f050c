from __future__ import annotations

import time

import numpy as np
import pytest
from scipy.stats import bootstrap

from attncem.statistics import Interval, bootstrap_mean


def test_interval_holds_the_mean_and_has_the_normal_width() -> None:
    values = np.random.default_rng(1).normal(3.0, 2.0, 400)
    interval = bootstrap_mean(values)
    assert interval.mean == pytest.approx(values.mean(), abs=1e-12)
    assert interval.low < interval.mean < interval.high
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.1)


def test_interval_covers_the_truth_about_95_times_in_100() -> None:
    rng = np.random.default_rng(2)
    covered = 0
    for trial in range(100):
        interval = bootstrap_mean(rng.exponential(1.0, 60), seed=trial, num_resamples=400)
        covered += interval.low <= 1.0 <= interval.high
    assert 86 <= covered <= 100


@pytest.mark.parametrize("values", [[0.25], [0.25] * 50, [0.0] * 3, [1.0] * 1000])
def test_constant_values_have_no_width(values: list[float]) -> None:
    assert bootstrap_mean(np.array(values)) == Interval(values[0], values[0], values[0])


@pytest.mark.parametrize("values", [[0.0, 1.0], [0.0] * 999 + [1.0], [1e-9, 2e-9]])
def test_few_or_lopsided_values_give_finite_bounds(values: list[float]) -> None:
    interval = bootstrap_mean(np.array(values))
    assert min(values) <= interval.low <= interval.mean <= interval.high <= max(values)
    assert interval.low < interval.high


def test_the_seed_decides_the_resamples() -> None:
    values = np.random.default_rng(3).random(100)
    assert bootstrap_mean(values, seed=5) == bootstrap_mean(values, seed=5)
    assert bootstrap_mean(values, seed=5) != bootstrap_mean(values, seed=6)


def test_single_precision_is_averaged_in_double() -> None:
    values = np.full(1000, 0.1, dtype=np.float32)
    values[0] = 0.2
    assert bootstrap_mean(values).mean == pytest.approx(float(values.astype(np.float64).mean()), abs=1e-12)


def test_ten_thousand_values_take_seconds() -> None:
    started = time.perf_counter()
    interval = bootstrap_mean(np.random.default_rng(4).random(10_000))
    assert time.perf_counter() - started < 20
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * 0.2887 / 100, rel=0.1)


@pytest.mark.parametrize("count", [2, 60, 1000, 3000])
def test_the_interval_is_that_of_scipy(count: int) -> None:
    values = np.random.default_rng(count).exponential(1.0, count)
    slow = bootstrap((values,), np.mean, n_resamples=2000, batch=100, rng=np.random.default_rng(0))
    interval = bootstrap_mean(values)
    assert (interval.low, interval.high) == pytest.approx(tuple(slow.confidence_interval), abs=1e-12)


def test_no_values_are_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        bootstrap_mean(np.array([]))
