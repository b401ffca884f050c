"""An error in familiar units: a thumbnail, some principal components, or no better than the mean image."""

from __future__ import annotations

import math

from attncem.base.texts import text
from attncem.records.units import Place, Units

_NEAR = 0.2
"""Maximum distance from a measured thumbnail, in powers of two, to use its name; otherwise it lies between two."""


def describe(units: Units | None, mse: float) -> str:
    """An error in familiar units, as the end of a sentence; empty where the floors were not measured."""
    if (places := _places(units, mse)) is None:
        return ""
    thumbnail, component = places
    if component.low is None:  # no better than the mean image
        return text("units.blind")
    if thumbnail.low is None:
        size = text("units.thumbnail.less")
    elif thumbnail.high is None:
        size = text("units.thumbnail.more", side=_side(thumbnail))
    else:
        size = text("units.thumbnail", side=_side(thumbnail))
    components = text("units.components", count=_count(component))
    if component.high is None:
        components = text("units.components.more", count=_count(component))
    elif _count(component) == 1:
        components = text("units.components.one")
    return text("units.both", thumbnail=size, components=components)


def short(units: Units | None, mse: float) -> str:
    """The same for a table."""
    if (places := _places(units, mse)) is None:
        return ""
    thumbnail, component = places
    if component.low is None:
        return text("units.short.blind")
    bound = {(True, False): "< ", (False, True): "> "}.get((thumbnail.low is None, thumbnail.high is None), "")
    more = "> " if component.high is None else ""
    return text("units.short", side=f"{bound}{_side(thumbnail)}", components=f"{more}{_count(component)}")


def _places(units: Units | None, mse: float) -> tuple[Place, Place] | None:
    thumbnail, component = (None, None) if units is None else (units.thumbnail(mse), units.component(mse))
    return None if thumbnail is None or component is None else (thumbnail, component)


def _side(place: Place) -> str:
    """The side of a thumbnail, e.g. 4×4, or the sides of the two nearest ones."""
    for size in (place.low, place.high):
        if size is not None and abs(math.log2(place.size / size)) < _NEAR:
            return f"{size}×{size}"
    low, high = place.low or 0, place.high or 0
    return f"{low}×{low}–{high}×{high}"


def _count(place: Place) -> int:
    return max(1, round(place.size))
