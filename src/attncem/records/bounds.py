"""Bounds: the results of certificates."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from attncem.base.record import Record

About = Literal["leakage", "over_all", "not_sent", "beyond_label", "mse", "rank_1", "epsilon", "releases", "other"]
"""The bounded quantity: nats about the image, nats on average over images of which only some are sent, nats of the
images that are not sent if they were, nats beyond its label, its error, rank-1 probability among candidates, (ε, δ), a
count."""
NEAR_CEILING = 0.7
"""Evidence within so many nats of its ceiling, about ln 2, is at the ceiling: the method cannot show more."""


class Bound(Record):
    """The result of a certificate: a proven bound or an estimate, in a unit, with its assumptions.

    ``value`` has a 95 % interval; ``limit`` is its one-sided 95 % end, which a claim may use (None: nothing was
    measured). ``assumptions`` are codes, whose sentences have the keys `assumption.CODE`. ``about`` names the bounded
    quantity, ``direction`` the side. ``vacuous``: it says nothing that was not known before. ``ceiling`` is the largest
    value that the method can give (None: there is no largest), ``by`` how it was obtained: cells and axes, an attack, a
    budget. ``any_number``: it holds for any number of releases of the same pixels.
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
    any_number: bool = False

    @property
    def claim(self) -> float:
        """The number that a claim may use."""
        return self.value if self.limit is None else self.limit

    @property
    def at_ceiling(self) -> bool:
        """Whether the method could not show much more leakage than it does."""
        is_evidence = self.about in ("leakage", "beyond_label") and self.direction == "at_least"
        return is_evidence and self.ceiling is not None and self.value >= self.ceiling - NEAR_CEILING
