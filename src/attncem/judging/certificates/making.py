"""Builds bounds from numbers: intervals, limits, vacuous bounds. No certificate is negative or not a number."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attncem.base.texts import written
from attncem.base.types import NotApplicable, RunError
from attncem.records.bounds import About, Bound
from attncem.records.statistics import bootstrap_mean, mean_limit

Numbers = NDArray[np.float64]

INVISIBLE = 1e-4
"""An error below this, 40 dB, is invisible: a proof that the error is at least this large says nothing."""
TOLD_APART = math.log(99)
"""At this ε an attacker may distinguish two inputs 99 times out of 100."""
FEWEST_IMAGES = 5
"""With fewer images, one of the five parts has none, and the resampled limit of a mean says next to nothing."""


def require_images(count: int) -> None:
    """NotApplicable where there are too few evaluation images for an upper limit."""
    if count < FEWEST_IMAGES:
        raise NotApplicable(written("reason.few_images", count=count, least=FEWEST_IMAGES))


def measured(values: Numbers, unit: str, about: About, assumptions: Sequence[str], *, at_least: bool = False) -> Bound:
    """A bound that is a mean over images, with its interval and its one-sided limit: upper or, if `at_least`, lower."""
    if not at_least:
        require_images(len(values))
    if not np.isfinite(values).all():
        raise RunError(f"{int((~np.isfinite(values)).sum())} of {values.size} numbers of the bound are not finite")
    interval = bootstrap_mean(values)
    end = mean_limit(values, upper=not at_least)
    mean, low, high, limit = (max(0.0, number) for number in (interval.mean, interval.low, interval.high, end))
    direction = "at_least" if at_least else "at_most"
    return Bound(mean, unit, low, high, "bound", list(assumptions), about, direction, limit)  # type: ignore[arg-type]


def certain(value: float, unit: str, about: About, assumptions: Sequence[str] = ()) -> Bound:
    """An upper bound without a measured part."""
    value = checked(value)
    return Bound(value, unit, value, value, "bound", list(assumptions), about)


def checked(value: float) -> float:
    """The number of a certificate, at least 0; RunError if it is not finite."""
    if not math.isfinite(value):
        raise RunError(f"a certificate came out as {value}: nothing is claimed")
    return max(0.0, float(value))


def largest_entropy(image_shape: Sequence[int]) -> float:
    """Nats that an image of 8-bit pixels can hold: more can never leak."""
    return math.prod(image_shape) * 8 * math.log(2)
