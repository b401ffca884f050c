"""Errors in familiar units: the size of a thumbnail in pixels, the number of principal components of the data set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from attncem.base.record import Record

_TINY = 1e-12
"""Errors below this are rounding."""


class Rung(Record):
    """The MSE that remains on the evaluation images when a thumbnail or number of components of this size is known."""

    size: int
    mse: float


@dataclass(frozen=True)
class Place:
    """The position of an error on a ladder: between the sizes ``low`` and ``high``, at ``size`` by interpolation.

    Without ``low`` it is above the first rung's error, without ``high`` below the last one's.
    """

    low: int | None
    high: int | None
    size: float


class Units(Record):
    """Reference errors of the data set: MSE of the evaluation images with partial knowledge of each.

    ``thumbnails``: known means over n×n blocks. ``components``: known coefficients along the first k principal axes of
    the training images, and their mean image; k = 0 is the mean image alone.
    """

    thumbnails: list[Rung] = field(default_factory=list)
    components: list[Rung] = field(default_factory=list)

    def thumbnail(self, mse: float) -> Place | None:
        """The thumbnail with the same error; None where none was measured."""
        return place(self.thumbnails, mse)

    def component(self, mse: float) -> Place | None:
        """The number of principal components with the same error."""
        return place(self.components, mse)


def place(rungs: Sequence[Rung], mse: float) -> Place | None:
    """The position of an error; sizes and errors are interpolated as logarithms."""
    if not rungs:
        return None
    ordered = sorted(rungs, key=lambda rung: rung.size)
    known = [rung for rung in ordered if rung.mse >= mse]
    if not known:
        return Place(None, ordered[0].size, ordered[0].size)
    low = known[-1]
    high = next((rung for rung in ordered if rung.size > low.size), None)
    if high is None:
        return Place(low.size, None, low.size)
    return Place(low.size, high.size, _between(low, high, mse))


def _between(low: Rung, high: Rung, mse: float) -> float:
    top, bottom, error = (math.log(max(value, _TINY)) for value in (low.mse, high.mse, mse))
    share = (top - error) / (top - bottom) if top > bottom else 0.0
    if low.size == 0:  # 0 has no logarithm
        return share * high.size
    return float(low.size * (high.size / low.size) ** min(max(share, 0.0), 1.0))
