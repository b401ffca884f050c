"""Bounds: the results of certificates."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from attncem.base.record import Record

About = Literal["leakage", "mse", "rank_1", "epsilon", "releases", "other"]
"""The bounded quantity: nats about the image, its error, rank-1 probability among candidates, (ε, δ), a count."""


class Bound(Record):
    """The result of a certificate: a proven bound or an estimate, in a unit, with its assumptions.

    ``value`` has a 95 % interval; ``limit`` is its one-sided 95 % end, which a claim may use (None: nothing was
    measured). ``assumptions`` are codes, whose sentences have the keys `assumption.CODE`. ``about`` names the bounded
    quantity, ``direction`` the side. ``vacuous``: it says nothing that was not known before. ``ceiling`` is the largest
    value that the method can give (None: there is no largest), ``by`` how it was obtained: cells and axes, an attack, a
    budget.
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
        """The number that a claim may use."""
        return self.value if self.limit is None else self.limit
