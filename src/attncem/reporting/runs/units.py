"""An error in words that people know: a thumbnail, some principal components, no more than the mean image."""

from __future__ import annotations

import math

from attncem.base.texts import text
from attncem.records.units import Place, Units

_NEAR = 0.2
"""A thumbnail so near to a measured one, in powers of two, has its name; else it lies between two."""


def describe(units: Units | None, mse: float) -> str:
    """What an error is worth, as the end of a sentence; empty where the floors were not measured."""
    places = _places(units, mse)
    if places is None:
        return ""
    if _is_blind(places[1]):
        return text("units.blind")
    return text("units.both", thumbnail=_thumbnail(places[0]), components=_components(places[1]))


def short(units: Units | None, mse: float) -> str:
    """The same for a table."""
    places = _places(units, mse)
    if places is None:
        return ""
    if _is_blind(places[1]):
        return text("units.short.blind")
    side, more = _side(places[0]), "> " if places[1].high is None else ""
    bound = {(True, False): "< ", (False, True): "> "}.get((places[0].low is None, places[0].high is None), "")
    return text("units.short", side=f"{bound}{side}", components=f"{more}{_count(places[1])}")


def _places(units: Units | None, mse: float) -> tuple[Place, Place] | None:
    thumbnail, component = (None, None) if units is None else (units.thumbnail(mse), units.component(mse))
    return None if thumbnail is None or component is None else (thumbnail, component)


def _is_blind(component: Place) -> bool:
    """Whether it is no better than the mean image."""
    return component.low is None


def _thumbnail(place: Place) -> str:
    if place.low is None:
        return text("units.thumbnail.less")
    if place.high is None:
        return text("units.thumbnail.more", side=_side(place))
    return text("units.thumbnail", side=_side(place))


def _side(place: Place) -> str:
    """The side of a thumbnail, e.g. 4×4, or of the two that it lies between."""
    for size in (place.low, place.high):
        if size is not None and abs(math.log2(place.size / size)) < _NEAR:
            return _square(size)
    return f"{_square(place.low or 0)}–{_square(place.high or 0)}"


def _square(size: int) -> str:
    return f"{size}×{size}"


def _components(place: Place) -> str:
    if place.high is None:
        return text("units.components.more", count=_count(place))
    return text("units.components.one") if _count(place) == 1 else text("units.components", count=_count(place))


def _count(place: Place) -> int:
    return max(1, round(place.size))
