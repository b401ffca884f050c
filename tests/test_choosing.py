"""The one rule of every selection: within a level of the undefended accuracy, the largest error."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attncem.campaigns.choosing import LEVELS, Candidate, Tried, choose, error_of, match, undominated

NUMBERS = st.floats(0, 1, allow_subnormal=False)
CANDIDATES = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=12).map(
    lambda found: [Candidate(str(place), *values) for place, values in enumerate(found)]
)


def test_the_error_is_the_geometric_mean_of_mse_and_structure() -> None:
    assert error_of({"mse": 0.04, "structure": 0.01, "ssim": 0.5}) == pytest.approx(0.02)
    with pytest.raises(KeyError):
        error_of({"mse": 0.04})


def test_a_level_takes_the_largest_error_among_what_is_accurate_enough() -> None:
    found = [
        Candidate("accurate", 0.90, 0.010),
        Candidate("at the level", 0.885, 0.020),
        Candidate("private", 0.872, 0.030),
        Candidate("broken", 0.20, 0.060),
    ]
    chosen = choose(found, 0.90)
    assert {level: one.name for level, one in chosen.items()} == {
        "light": "accurate",
        "balanced": "at the level",
        "strong": "private",
    }
    assert list(LEVELS.values()) == [0.005, 0.015, 0.03]


def test_a_level_that_nothing_reaches_is_absent_and_of_equal_ones_the_first_is_taken() -> None:
    assert choose([Candidate("poor", 0.5, 0.1)], 0.9) == {}
    assert choose([], 0.9) == {}
    twins = [Candidate("first", 0.9, 0.1), Candidate("second", 0.9, 0.1)]
    assert choose(twins, 0.9)["light"].name == "first"


def test_a_model_better_than_the_undefended_fits_every_level() -> None:
    assert set(choose([Candidate("better", 0.95, 0.01)], 0.9)) == set(LEVELS)


@given(CANDIDATES)
def test_the_front_holds_exactly_what_nothing_beats(candidates: list[Candidate]) -> None:
    def beats(a: Candidate, b: Candidate) -> bool:
        return (a.accuracy >= b.accuracy and a.error >= b.error) and (a.accuracy, a.error) != (b.accuracy, b.error)

    front = undominated(candidates)
    values = {(one.accuracy, one.error) for one in front}
    assert values == {
        (one.accuracy, one.error) for one in candidates if not any(beats(other, one) for other in candidates)
    }
    assert len(values) == len(front), "of equal ones one stands for all"
    assert all(a.accuracy > b.accuracy and a.error < b.error for a, b in pairwise(front))


# the weight at which a setting has a given accuracy

CURVE = [Tried(1, 0.90, 0.010), Tried(1, 0.88, 0.012), Tried(2, 0.86, 0.020), Tried(2, 0.88, 0.022)]


def test_the_weight_of_an_accuracy_lies_on_the_line_through_all_runs() -> None:
    found = match("one", CURVE, 0.88)
    assert (found.name, found.weight, found.within) == ("one", 1.5, True)
    assert found.error == pytest.approx(0.016)
    assert match("one", CURVE, 0.8766).weight == 1.7, "two digits"


@pytest.mark.parametrize(("accuracy", "weight", "error"), [(0.95, 1, 0.011), (0.5, 2, 0.021)])
def test_nothing_is_extrapolated(accuracy: float, weight: float, error: float) -> None:
    found = match("one", CURVE, accuracy)
    assert (found.weight, found.within) == (weight, False)
    assert found.error == pytest.approx(error)


def test_where_weight_costs_nothing_the_nearest_accuracy_is_taken_and_of_equal_ones_the_larger_weight() -> None:
    risen = [Tried(1, 0.86, 0.010), Tried(2, 0.88, 0.020)]
    assert (match("odd", risen, 0.87).weight, match("odd", risen, 0.85).weight) == (2, 1)
    assert match("alone", [Tried(2, 0.9, 0.02)], 0.8).weight == 2
    assert not match("odd", risen, 0.87).within
