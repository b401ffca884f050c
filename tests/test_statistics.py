from __future__ import annotations

import math
import statistics as plain
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.stats import bootstrap

from attncem.records.comparison import SeedSummary
from attncem.records.files import read_record, write_record
from attncem.records.statistics import (
    Interval,
    adjust,
    bootstrap_mean,
    bootstrap_ratio,
    common_slope,
    compare_apart,
    compare_arms,
    compare_images,
    difference_apart,
    error_at,
    mean_limit,
    pareto,
    permutation_p,
    place,
    ratio_interval,
    seed_summary,
    slope,
    smallest_p,
    welch_interval,
)


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


@pytest.mark.parametrize("difference", [1e-11, 2e-11, 5e-11])
def test_values_that_differ_by_little_more_than_rounding_have_an_interval(difference: float) -> None:
    """Of an InfoNCE near ln N: rounding put every resampled mean on the same side."""
    for count in range(1900, 2200, 30):
        values = np.full(count, np.log(count))
        values[0] -= difference
        interval = bootstrap_mean(values, num_resamples=200)
        assert (interval.low, interval.high) == pytest.approx((interval.mean, interval.mean), abs=1e-11)
        assert mean_limit(values, num_resamples=200) == pytest.approx(interval.mean, abs=1e-11)


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


# pairs of runs on the same images


@pytest.mark.parametrize("count", [30, 60, 1000])
def test_paired_differences_and_ratios_are_those_of_scipy(count: int) -> None:
    rng = np.random.default_rng(count)
    a = rng.exponential(1.0, count) + 0.1
    b = 0.7 * a + rng.exponential(0.3, count)
    found = compare_images(a, b)

    def ratio(x: Any, y: Any, axis: int) -> Any:
        return x.mean(axis) / y.mean(axis)

    options: dict[str, Any] = {"n_resamples": 2000, "batch": 2000 if count < 250 else 500}
    plain = bootstrap((a - b,), np.mean, rng=np.random.default_rng(0), **options)
    paired = bootstrap((a, b), ratio, paired=True, vectorized=True, rng=np.random.default_rng(0), **options)
    assert (found.low, found.high) == pytest.approx(tuple(plain.confidence_interval), abs=1e-12)
    assert (found.ratio_low, found.ratio_high) == pytest.approx(tuple(paired.confidence_interval), abs=1e-12)
    assert found.ratio == pytest.approx(a.mean() / b.mean())
    assert (found.p, found.smallest_p, found.over) == (None, None, "images")


def test_pairs_find_what_two_intervals_do_not() -> None:
    rng = np.random.default_rng(0)
    images = rng.exponential(1.0, 400)
    better = images + 0.05 + rng.normal(0, 0.1, 400)
    one, other = bootstrap_mean(better), bootstrap_mean(images)
    assert one.low < other.high, "the two intervals overlap widely"
    assert compare_apart(one, other, (400, 400)).verdict == "no_difference_shown"
    found = compare_images(better, images, a="new", b="old", measure="MSE")
    assert found.verdict == "a_higher"
    assert found.sentence.startswith("MSE: new is higher than old. ")
    assert "the same 400 images, one run each" in found.sentence
    assert compare_images(images, better).verdict == "b_higher"


def test_intervals_of_a_difference_without_pairs_cover_the_truth() -> None:
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(200):
        a, b = (bootstrap_mean(rng.normal(0, 1, 80), num_resamples=400) for _ in range(2))
        found = difference_apart(a, b)
        held += found.low <= 0 <= found.high
    assert 180 <= held <= 199


@pytest.mark.parametrize(
    ("a", "b", "ratio"),
    [
        ([1.0, 2.0], [0.0, 0.0], None),
        ([2.0, 2.0], [1.0, 1.0], 2.0),
        ([3.0], [2.0], 1.5),
        ([1.0, 2.0], [0.0, 1.0], None),
    ],
    ids=["by zero", "constant", "one image", "a resample sums to zero"],
)
def test_ratios_that_cannot_be_are_left_out(a: list[float], b: list[float], ratio: float | None) -> None:
    found = bootstrap_ratio(np.array(a), np.array(b))
    assert found == (None if ratio is None else Interval(ratio, ratio, ratio))


def test_pairs_must_be_pairs() -> None:
    for a, b in (([1.0], [1.0, 2.0]), ([], [])):
        with pytest.raises(ValueError, match="pairs are needed"):
            compare_images(np.array(a), np.array(b))


# seeds


def test_student_intervals_are_those_of_scipy() -> None:
    values = [0.81, 0.84, 0.79, 0.86]
    found = seed_summary(values)
    scipys = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert (found.low, found.high) == pytest.approx(scipys, abs=1e-12)
    assert (found.count, found.mean) == (4, pytest.approx(0.825))
    assert found.sd == pytest.approx(np.std(values, ddof=1))
    assert seed_summary([0.5]) == SeedSummary(1, 0.5, None, None, None)


@pytest.mark.parametrize(("a", "b"), [(3, 3), (6, 6), (2, 7)])
def test_intervals_of_differences_are_those_of_welchs_test(a: int, b: int) -> None:
    rng = np.random.default_rng(a)
    first, second = rng.normal(0, 1, a), rng.normal(1, 3, b)
    scipys = stats.ttest_ind(first, second, equal_var=False).confidence_interval()
    assert welch_interval(first, second) == pytest.approx((scipys.low, scipys.high), abs=1e-10)


def test_intervals_of_differences_at_the_edges() -> None:
    assert welch_interval([1.0], [2.0, 3.0]) is None
    assert welch_interval([1.0, 1.0], [3.0, 3.0]) == (-2.0, -2.0)


def test_intervals_of_ratios_hold_the_ratio_and_turn_over_with_it() -> None:
    rng = np.random.default_rng(5)
    first, second = rng.normal(0.026, 3e-4, 6), rng.normal(0.016, 2e-4, 6)
    found, turned = ratio_interval(first, second), ratio_interval(second, first)
    assert found is not None and turned is not None
    assert found[0] < first.mean() / second.mean() < found[1]
    assert found == pytest.approx((1 / turned[1], 1 / turned[0]))
    assert ratio_interval([0.02, 0.02], [0.01, 0.01]) == pytest.approx((2.0, 2.0))


def test_intervals_of_ratios_hold_the_truth_about_95_times_in_100() -> None:
    rng, held = np.random.default_rng(6), 0
    for _ in range(400):
        found = ratio_interval(rng.normal(1.6, 0.05, 6), rng.normal(1.0, 0.02, 6))
        assert found is not None
        held += found[0] <= 1.6 <= found[1]
    assert 368 <= held <= 396


@pytest.mark.parametrize(("a", "b"), [([1.0], [1.0, 2.0]), ([1.0, 0.0], [1.0, 2.0]), ([1.0, 2.0], [-1.0, 2.0])])
def test_a_ratio_without_an_interval(a: list[float], b: list[float]) -> None:
    assert ratio_interval(a, b) is None


def test_slopes_are_those_of_scipy() -> None:
    x, y = np.random.default_rng(7).normal(0, 1, (2, 5))
    assert slope(x, y) == pytest.approx(stats.linregress(x, y).slope)
    assert slope([0.9, 0.88], [0.01, 0.02]) == pytest.approx(-0.5)
    assert slope([0.9, 0.9], [0.01, 0.02]) is None
    with pytest.raises(ValueError, match="as many values as accuracies"):
        slope([0.9, 0.8], [0.01])


def test_one_slope_for_several_curves() -> None:
    """Each curve has a level of its own; noise of the accuracies alone leaves the slope where it was."""
    rng, weights = np.random.default_rng(0), [0.5, 1.0, 2.0]

    def curve(level: float, noise: float) -> tuple[list[float], list[float], list[float]]:
        accuracies = [0.88 - 0.01 * math.log(weight) for weight in weights]
        values = [level - 3 * accuracy for accuracy in accuracies]
        return weights, [one + noise * rng.normal() for one in accuracies], values

    assert common_slope([curve(1, 0), curve(5, 0)]) == pytest.approx(-3)
    noisy = [curve(level, 0.01) for level in range(2000)]
    assert common_slope(noisy) == pytest.approx(-3, rel=0.1)
    flattened = plain.fmean(slope(x, y) or 0.0 for _, x, y in noisy)
    assert abs(flattened) < 2, "least squares of each alone is too flat"
    assert common_slope([([1, 2], [0.8, 0.9], [1, 2])]) is None, "more weight costs no accuracy"
    assert common_slope([]) is None
    with pytest.raises(ValueError, match="as many values as accuracies and weights, not 1, 2 and 2"):
        common_slope([([1, 2], [0.8, 0.9], [1])])


@pytest.mark.parametrize(("a", "b"), [(2, 2), (3, 3), (2, 5), (5, 2), (4, 3), (6, 6), (7, 4)])
@pytest.mark.parametrize("decimals", [1, 12], ids=["ties", "no ties"])
def test_permutation_tests_are_those_of_scipy(a: int, b: int, decimals: int) -> None:
    rng = np.random.default_rng([a, b])
    for shift in (0.0, 0.5, 2.0):
        first, second = rng.normal(size=a).round(decimals), (rng.normal(size=b) + shift).round(decimals)
        assert permutation_p(first, second) == pytest.approx(scipys_p(first, second), abs=1e-12)


def scipys_p(first: Any, second: Any) -> float:
    def difference(x: Any, y: Any, axis: int) -> Any:
        return x.mean(axis) - y.mean(axis)

    return float(stats.permutation_test((first, second), difference, vectorized=True, n_resamples=np.inf).pvalue)


def test_the_smallest_p_is_reached_and_not_passed() -> None:
    assert smallest_p(3, 3) == 0.1
    assert smallest_p(6, 6) == pytest.approx(0.00216, abs=1e-5)
    for a, b in ((3, 3), (4, 4), (6, 6), (2, 5), (3, 6)):
        assert permutation_p(range(a), range(100, 100 + b)) == pytest.approx(smallest_p(a, b))


def test_many_seeds_are_drawn_and_say_so() -> None:
    found = compare_arms(np.arange(12.0), np.arange(12.0) + 100)
    assert not found.exact and found.verdict == "b_higher"
    assert found.p == found.smallest_p == pytest.approx(1e-4, rel=0.01)
    assert compare_arms(np.arange(10.0), np.arange(10.0)).exact


def test_a_large_offset_takes_nothing_from_the_test() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=5), rng.normal(size=5)
    assert permutation_p(1e6 + a, 1e6 + b) == permutation_p(a, b)


@pytest.mark.parametrize(("a", "b"), [(3, 3), (1, 1), (1, 6), (2, 4), (3, 4)])
def test_too_few_seeds_are_called_so(a: int, b: int) -> None:
    found = compare_arms(np.arange(a), 100.0 + np.arange(b), measure="MSE")
    assert found.verdict == ("too_few_seeds" if smallest_p(a, b) > 0.05 else "b_higher")
    assert ("too few seeds of a and b to tell" in found.sentence) == (found.verdict == "too_few_seeds")


def test_at_most_seven_false_alarms_in_a_hundred() -> None:
    """500 nulls with 6 + 6 seeds: the test may give 5 %, and the smallest p is far below."""
    rng = np.random.default_rng(2)
    told = [compare_arms(*rng.normal(size=(2, 6))).verdict for _ in range(500)]
    assert set(told) <= {"a_higher", "b_higher", "no_difference_shown"}
    false = sum(verdict != "no_difference_shown" for verdict in told)
    assert 0 < false <= 35


def test_a_planted_difference_is_found() -> None:
    rng = np.random.default_rng(3)
    told = [compare_arms(rng.normal(3, 1, 6), rng.normal(0, 1, 6)).verdict for _ in range(100)]
    assert told.count("a_higher") >= 95
    assert told.count("b_higher") == 0


def test_no_difference_shown_is_an_answer_with_numbers() -> None:
    found = compare_arms([1, 2, 3, 4], [1.5, 2.5, 3.5, 2.0], a="slot", b="none", measure="MSE")
    assert found.verdict == "no_difference_shown"
    assert found.sentence == (
        "MSE: no difference between slot and none is shown. 2.5 and 2.375, difference +0.125 "
        "(95 % interval -1.84 to +2.09); seeds: 4 and 4; p = 1."
    )
    assert compare_arms([1.0] * 4, [1.0] * 4).sentence.startswith("no difference between a and b is shown. ")


@pytest.mark.parametrize("values", [[], [np.nan, 1.0], [np.inf], [[1.0, 2.0]]])
def test_seeds_need_finite_numbers(values: Any) -> None:
    for call in (seed_summary, lambda it: compare_arms(it, [1.0, 2.0])):
        with pytest.raises(ValueError, match="one finite number for each seed"):
            call(values)


# many comparisons


def test_false_discoveries_are_controlled_as_scipy_does() -> None:
    rng = np.random.default_rng(4)
    plain = [compare_arms(rng.normal(shift, 1, 6), rng.normal(0, 1, 6)) for shift in (0, 0, 0, 1, 1.5, 2, 3)]
    found = adjust(plain)
    assert [item.adjusted_p for item in found] == pytest.approx(
        stats.false_discovery_control([item.p for item in plain])
    )
    assert [item.p for item in found] == [item.p for item in plain]
    for item in found:
        assert item.adjusted_p is not None
        assert (item.verdict == "no_difference_shown") == (item.adjusted_p > 0.05)
    assert "among all comparisons" in found[-1].sentence


def test_what_is_no_test_does_not_count_among_the_tests() -> None:
    test = compare_arms(np.arange(6), 100.0 + np.arange(6))
    few = compare_arms(np.arange(3), 100.0 + np.arange(3))
    images = compare_images(np.arange(9.0), np.arange(9.0) + 1)
    found = adjust([few, test, images])
    assert found[0] is few and found[2] is images
    assert found[1].adjusted_p == test.p
    assert adjust([]) == [] and adjust([few]) == [few]


def test_one_chance_difference_among_many_is_no_longer_told() -> None:
    values = np.random.default_rng(5).normal(size=(40, 2, 6))
    plain = [compare_arms(a, b) for a, b in values]
    assert any(item.verdict != "no_difference_shown" for item in plain)
    assert {item.verdict for item in adjust(plain)} == {"no_difference_shown"}


# fronts


def test_standings_on_a_front() -> None:
    rng = np.random.default_rng(6)

    def arm(x: float, y: float, seeds: int = 6) -> list[tuple[float, float]]:
        return [(x + rng.normal(0, 0.002), y + rng.normal(0, 0.002)) for _ in range(seeds)]

    points = {
        "accurate": arm(0.9, 0.1),
        "private": arm(0.7, 0.3),
        "beaten": arm(0.65, 0.05),
        "twin": arm(0.9, 0.1),
        "once": arm(0.6, 0.01, seeds=1),
    }
    found = {point.name: point for point in pareto(points)}
    assert list(found) == list(points)
    assert found["private"].standing == "surely" and found["private"].share == 1
    assert found["beaten"].standing == "not" and found["beaten"].share == 0
    assert found["twin"].standing == found["accurate"].standing == "possibly"
    assert 0 < found["twin"].share < 1
    assert found["once"].standing == "possibly", "one seed has no interval"
    assert found["accurate"].x == seed_summary([x for x, _ in points["accurate"]])


def test_a_lone_point_and_equal_points_are_on_the_front() -> None:
    assert pareto({}) == []
    (alone,) = pareto({"a": [(1.0, 1.0), (2.0, 0.0)]})
    assert (alone.standing, alone.share) == ("surely", 1.0)
    same = pareto({"a": [(1.0, 1.0)] * 3, "b": [(1.0, 1.0)] * 3})
    assert [(point.standing, point.share) for point in same] == [("surely", 1.0)] * 2


def test_boxes_that_overlap_on_one_axis_alone() -> None:
    def box(x: float, y: float) -> tuple[Interval, Interval]:
        return Interval(x, x - 0.1, x + 0.1), Interval(y, y - 0.1, y + 0.1)

    assert place({"a": box(1, 1), "b": box(0.9, 0.5)}) == {"a": "surely", "b": "possibly"}
    assert place({"a": box(1, 1), "b": box(0.5, 0.5)}) == {"a": "surely", "b": "not"}


def test_resampled_means_spread_as_wide_as_the_standard_error() -> None:
    """A rival that lies one standard error below is better in 16 of 100 resamples, as a normal law has it."""
    own = [(float(x), 1.0) for x in stats.norm.ppf((np.arange(50) + 0.5) / 50)]
    error = seed_summary([x for x, _ in own]).sd or 0.0
    found = pareto({"own": own, "rival": [(-error / np.sqrt(50), 1.0)] * 2}, num_resamples=20_000)
    assert found[1].share == pytest.approx(0.16, abs=0.015)


@pytest.mark.parametrize("pairs", [[], [(1.0,)], [(1.0, np.nan)]])
def test_points_need_pairs(pairs: Any) -> None:
    with pytest.raises(ValueError, match="arm: a pair of finite numbers"):
        pareto({"arm": pairs})


# error at an accuracy


def test_error_at_an_accuracy_is_interpolated_for_each_seed() -> None:
    accuracies, errors = [[0.9, 0.8, 0.6], [0.91, 0.81, 0.61]], [[1.0, 2.0, 4.0], [1.1, 2.1, 4.1]]
    found = error_at(accuracies, errors, 0.7)
    assert found.values == pytest.approx([3.0, 3.2])
    assert found.error == seed_summary(found.values)
    assert (found.reached_low, found.reached_high) == (0.61, 0.9)
    assert "at accuracy 0.7 the error is 3.1 (95 % interval" in found.sentence
    assert error_at(accuracies, errors, 0.9).error is not None, "its ends belong to a curve"


def test_nothing_is_extrapolated() -> None:
    accuracies, errors = [[0.9, 0.6], [0.95, 0.7]], [[1.0, 4.0], [1.0, 4.0]]
    for at in (0.5, 0.65, 0.93, 0.99):
        found = error_at(accuracies, errors, at)
        assert found.error is None and found.values == []
        assert "nothing is extrapolated" in found.sentence and "0.7 to 0.9" in found.sentence


def test_one_curve_has_no_interval_and_equal_accuracies_are_averaged() -> None:
    found = error_at([0.5, 0.7, 0.7, 0.9], [4.0, 2.0, 3.0, 1.0], 0.7)
    assert found.values == [2.5]
    assert found.sentence == "at accuracy 0.7 the error is 2.5 (one seed, so no interval)"


def test_curves_must_fit() -> None:
    with pytest.raises(ValueError, match="as many errors as accuracies"):
        error_at([0.5, 0.7], [1.0], 0.6)
    with pytest.raises(ValueError, match="finite number"):
        error_at([], [], 0.6)
    with pytest.raises(ValueError, match="zip"):
        error_at([[0.5, 0.7], [0.5, 0.7]], [[1.0, 2.0]], 0.6)


# records


def test_results_come_back_from_their_files(tmp_path: Path) -> None:
    kept = [
        compare_arms([1, 2, 3], [2, 3, 4]),
        compare_images(np.arange(5.0), np.arange(5.0) + 1),
        error_at([0.5, 0.9], [2.0, 1.0], 0.7),
        *pareto({"a": [(1.0, 2.0), (2.0, 1.0)]}),
    ]
    for number, record in enumerate(kept):
        write_record(tmp_path / f"{number}.json", record)
        assert read_record(type(record), tmp_path / f"{number}.json") == record
