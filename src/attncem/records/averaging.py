"""The gain of repeated releases: how much further releases of each image lower the error."""

from __future__ import annotations

from attncem.base.record import Record

HELPS = 0.01
"""Averaging helps if its gain is at least this fraction and its interval lies above 0; otherwise it is called flat."""


class Averaging(Record):
    """The gain of a row over ``base``, the same attack with the threat model's number of releases.

    ``gain`` is the fraction by which it lowers the base's error, with a 95 % interval of the paired bootstrap.
    """

    row: str
    base: str
    releases: int
    jitter: int
    gain: float
    low: float
    high: float

    @property
    def helps(self) -> bool:
        """Whether more releases lowered the error."""
        return self.low > 0 and self.gain >= HELPS
