"""What asking again gives: the error that further releases of each image take off."""

from __future__ import annotations

from attncem.base.record import Record

HELPS = 0.01
"""Averaging helps where it takes off at least this part of the error, for sure; less is called flat."""


class Averaging(Record):
    """What asking again gave a row, beside ``base``, the row that asks the same as often as the threat model says.

    ``gain`` is the part of the base's error that it takes off, with a 95 % interval of the paired bootstrap.
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
        """Whether more releases told more."""
        return self.low > 0 and self.gain >= HELPS
