"""A learned attack beside a simpler one that it must beat: whether it loses, or both are equally strong."""

from __future__ import annotations

from collections.abc import Iterable

from attncem.base.record import Record

MARGIN = 0.01
"""A learned attack whose error is larger by more than this fraction loses, whatever the interval."""


class Rival(Record):
    """The error of ``row`` relative to that of ``other``, which it must beat, on the images of both.

    ``excess`` is the fraction by which it is larger, with a 95 % interval of the paired bootstrap.
    """

    row: str
    other: str
    excess: float
    low: float
    high: float

    @property
    def level(self) -> bool:
        """Whether no difference is shown: the interval reaches 0, and the excess is at most `MARGIN`."""
        return self.low <= 0 and self.excess <= MARGIN


def are_level(rivals: Iterable[Rival], row: str, other: str) -> bool:
    """Whether a learned attack and one that it must beat are equally strong, by name."""
    return any((rival.row, rival.other) == (row, other) and rival.level for rival in rivals)
