"""Score: one measure over images, with its interval and its spread."""

from __future__ import annotations

from dataclasses import field

from attncem.base.record import Record

KEPT_DIGITS = 6
"""Decimal digits of a number in a file of results: far below its interval."""


class Score(Record):
    """One measure over images: its mean with a 95 % bootstrap interval, its 5th and 95th percentile, the mean of each
    class (None: no image of the class), the median (None: made before it was kept), and the 5th percentile of each
    class.
    """

    mean: float
    low: float
    high: float
    p05: float
    p95: float
    per_class: list[float | None] = field(default_factory=list)
    median: float | None = None
    per_class_p05: list[float | None] = field(default_factory=list)

    @property
    def kept(self) -> list[float]:
        """Mean, low and high with the digits that a file of results keeps."""
        return [round(value, KEPT_DIGITS) for value in (self.mean, self.low, self.high)]

    @property
    def balanced(self) -> float | None:
        """The mean of the class means, with equal weight for every class; None where they are unknown."""
        known = [mean for mean in self.per_class if mean is not None]
        return sum(known) / len(known) if known else None
