"""The one rule of every selection: within a level of the undefended accuracy, the largest error."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attncem.campaigning.choosing import LEVELS, Candidate, choose, error_of, undominated

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
