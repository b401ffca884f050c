"""Builds bounds from numbers: intervals, limits, vacuous bounds. No certificate is negative or not a number."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attncem.base.types import RunError
from attncem.records.bounds import About, Bound
from attncem.records.statistics import bootstrap_mean, mean_limit

Numbers = NDArray[np.float64]

INVISIBLE = 1e-4
"""An error below this, 40 dB, is invisible: a proof that the error is at least this large says nothing."""
TOLD_APART = math.log(99)
"""At this ε an attacker may distinguish two inputs 99 times out of 100."""


def measured(values: Numbers, unit: str, about: About, assumptions: Sequence[str], *, at_least: bool = False) -> Bound:
    """A bound that is a mean over images, with its interval and the limit on the safe side."""
    if not np.isfinite(values).all():
        raise RunError(f"{int((~np.isfinite(values)).sum())} of {values.size} numbers of the bound are not finite")
    found = bootstrap_mean(values)
    limit = mean_limit(values, upper=not at_least)
    mean, low, high, safe = (max(0.0, number) for number in (found.mean, found.low, found.high, limit))
    direction = "at_least" if at_least else "at_most"
    return Bound(mean, unit, low, high, "bound", list(assumptions), about, direction, safe)  # type: ignore[arg-type]


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
