"""What a certificate gives."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from attncem.base.record import Record

About = Literal["leakage", "mse", "rank_1", "epsilon", "releases", "other"]
"""What a bound is of: nats about the image, its error, the right one of candidates coming first, (ε, δ), a count."""


class Bound(Record):
    """What a certificate gives: a proven bound or an estimate, in a unit, with what it assumes.

    ``value`` has a 95 % interval; ``limit`` is the end of it that a claim may be made with, at 95 % confidence on one
    side (None: nothing of it was measured). ``assumptions`` are codes, whose sentences stand under `assumption.CODE`.
    ``about`` says what is bounded, ``direction`` from which side. ``vacuous``: it says no more than was known anyway.
    ``ceiling`` is the most that the method could have given (None: there is no such end), ``by`` what it was found by:
    cells and axes, an attack, a budget.
    """

    value: float
    unit: str
    low: float
    high: float
    kind: Literal["bound", "estimate"]
    assumptions: list[str] = field(default_factory=list)
    about: About = "other"
    direction: Literal["at_most", "at_least"] = "at_most"
    limit: float | None = None
    vacuous: bool = False
    ceiling: float | None = None
    by: str = ""

    @property
    def claim(self) -> float:
        """The number that may be claimed."""
        return self.value if self.limit is None else self.limit
