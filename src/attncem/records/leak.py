"""Leak: one number about the leak itself, as an axis beside the accuracy."""

from __future__ import annotations

from attncem.base.record import Record


class Leak(Record):
    """One number of an audit, with the ends of its 95 % interval over images.

    ``mean`` is the number that a claim may use: of a bound its one-sided limit. ``by`` is its row, ``count`` the number
    of releases or candidates (0: neither). ``vacuous``: the bound says nothing that was not known before.
    ``ceiling`` is the largest value that the evidence can give; ``at_ceiling``: the truth may be any larger number.
    """

    mean: float
    low: float
    high: float
    by: str = ""
    count: int = 0
    vacuous: bool = False
    ceiling: float | None = None
    at_ceiling: bool = False
