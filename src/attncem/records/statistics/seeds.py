"""Statistics over seeds, which describe a method and not one trained model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from attncem.records.comparison import LEVEL, Comparison, SeedSummary, VerdictCode

MOST_SPLITS = 200_000
"""Above this number of splits (more than 10 + 10 seeds) the test draws a sample of them."""
_DRAWN = 20_000
_TAIL = 0.975
Values = Sequence[float] | NDArray[np.floating]


def seed_summary(values: Values) -> SeedSummary:
    """Mean ± standard deviation over seeds with Student's 95 % interval of the mean; both are absent for one seed."""
    data = finite_values(values)
    mean = float(data.mean())
    if len(data) < 2:
        return SeedSummary(1, mean, None, None, None)
    from scipy.stats import t  # takes half a second, which pages of single runs can skip

    sd = float(data.std(ddof=1))
    reach = float(t.ppf(_TAIL, len(data) - 1)) * sd / math.sqrt(len(data))
    return SeedSummary(len(data), mean, sd, mean - reach, mean + reach)


def finite_values(values: Values) -> NDArray[np.float64]:
    """The numbers as an array; ValueError where it is empty or has a number that is not finite."""
    data = np.asarray(values, dtype=np.float64)
    if data.ndim != 1 or data.size == 0 or not np.isfinite(data).all():
        raise ValueError(f"one finite number for each seed is needed, not {values!r}")
    return data


def smallest_p(count_a: int, count_b: int) -> float:
    """The smallest two-sided p that a test with these numbers of seeds can give: 3 + 3 reach 0.1, 6 + 6 reach 0.002.

    It is 1 where a side has one seed: one seed shows no spread of its arm, and there is no test.
    """
    if min(count_a, count_b) < 2:
        return 1.0
    splits = math.comb(count_a + count_b, count_a)
    return 2 / (splits if splits <= MOST_SPLITS else _DRAWN + 1)


def permutation_p(a: Values, b: Values) -> float | None:
    """Two-sided p of the difference of means where all splits of the seeds into two groups are equally likely.

    Exact up to `MOST_SPLITS` splits; None where a side has one seed. Unpaired: runs with the same seed in two arms are
    as independent as runs with two seeds.
    """
    first, second = finite_values(a), finite_values(b)
    if min(len(first), len(second)) < 2:
        return None
    if math.comb(len(first) + len(second), len(first)) > MOST_SPLITS:
        return _drawn_p(first, second)
    pooled = np.concatenate([first, second])
    pooled -= pooled.mean()
    # The sum of the first group is equivalent to the difference of the means; sums that differ by rounding are equal.
    sums, rounding = pooled[_splits(len(first), len(pooled))].sum(axis=1), 1e-12 * float(np.abs(pooled).sum())
    observed = sums[0]
    tails = (sums >= observed - rounding).mean(), (sums <= observed + rounding).mean()
    return min(1.0, 2 * float(min(tails)))


@lru_cache(maxsize=4)
def _splits(size: int, of: int) -> NDArray[np.intp]:
    """All choices of `size` among `of` seeds [splits, size]; the first is the first group itself."""
    return np.array(list(combinations(range(of), size)), dtype=np.intp)


def _drawn_p(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """The same p from a random sample of splits."""
    from scipy.stats import permutation_test

    found = permutation_test(
        (a, b),
        lambda x, y, axis: x.mean(axis) - y.mean(axis),
        permutation_type="independent",
        vectorized=True,
        n_resamples=_DRAWN,
        rng=np.random.default_rng(0),
    )
    return float(found.pvalue)


def welch_interval(a: Values, b: Values) -> tuple[float, float] | None:
    """Student's 95 % interval of the difference of means, with separate variances (Welch); None for one seed."""
    from scipy.stats import t

    first, second = finite_values(a), finite_values(b)
    if min(len(first), len(second)) < 2:
        return None
    parts = np.array([first.var(ddof=1) / len(first), second.var(ddof=1) / len(second)])
    difference, variance = float(first.mean() - second.mean()), float(parts.sum())
    if variance == 0:
        return difference, difference
    freedom = variance**2 / float((parts**2 / [len(first) - 1, len(second) - 1]).sum())
    reach = float(t.ppf(_TAIL, freedom)) * math.sqrt(variance)
    return difference - reach, difference + reach


def ratio_interval(a: Values, b: Values) -> tuple[float, float] | None:
    """95 % interval of the ratio of means: Welch's of the logarithms; None for one seed, or where a value is not > 0.

    For values that spread by a few percent the logarithm of the mean equals the mean of the logarithms up to second
    order.
    """
    first, second = finite_values(a), finite_values(b)
    if min(first.min(), second.min()) <= 0:
        return None
    interval = welch_interval(np.log(first), np.log(second))
    return None if interval is None else (math.exp(interval[0]), math.exp(interval[1]))


def compare_arms(
    values_a: Values, values_b: Values, *, a: str = "a", b: str = "b", measure: str = "", level: float = LEVEL
) -> Comparison:
    """Two arms by one number for each seed: Welch's interval, the exact permutation test, and a verdict by the test."""
    first, second = finite_values(values_a), finite_values(values_b)
    interval, p, least = (
        welch_interval(first, second),
        permutation_p(first, second),
        smallest_p(len(first), len(second)),
    )
    mean_a, mean_b = float(first.mean()), float(second.mean())
    return Comparison(
        a=a,
        b=b,
        measure=measure,
        over="seeds",
        count_a=len(first),
        count_b=len(second),
        mean_a=mean_a,
        mean_b=mean_b,
        difference=mean_a - mean_b,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        ratio=mean_a / mean_b if mean_b else None,
        p=p,
        smallest_p=least,
        verdict=_verdict(mean_a - mean_b, p, least, level),
        level=level,
        exact=math.comb(len(first) + len(second), len(first)) <= MOST_SPLITS,
    )


def _verdict(difference: float, p: float | None, least: float, level: float) -> VerdictCode:
    if p is None or least > level:
        return "too_few_seeds"
    if p > level:
        return "no_difference_shown"
    return "a_higher" if difference > 0 else "b_higher"


def adjust(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The same comparisons with p adjusted for their number (Benjamini and Hochberg) and verdicts by the adjusted p.

    Comparisons with too few seeds to reach the level are not counted as tests (Tarone); comparisons over images have no
    p and stay unchanged.
    """
    from scipy.stats import false_discovery_control

    tested = [number for number, item in enumerate(comparisons) if _is_test(item)]
    found = list(comparisons)
    if tested:
        for number, p in zip(tested, false_discovery_control([found[number].p for number in tested]), strict=True):
            found[number] = _adjusted(found[number], float(p))
    return found


def _is_test(item: Comparison) -> bool:
    return item.p is not None and item.verdict != "too_few_seeds"


def _adjusted(item: Comparison, p: float) -> Comparison:
    verdict = _verdict(item.difference, p, item.smallest_p or 0.0, item.level)
    return replace(item, adjusted_p=p, verdict=verdict)
