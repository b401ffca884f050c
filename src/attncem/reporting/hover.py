"""Figures that tell their values: points and curves of an SVG, where they lie and what is said of them.

The page's script shows them beside the mouse and the focus; without it a point has its title.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

_POINTS = 72.0
"""Units of an SVG by matplotlib to an inch."""
_REACH = 8
"""How near to a point one must be, in these units."""


@dataclass(frozen=True)
class Line:
    """One curve in the colour of its run."""

    label: str
    color: int
    x: list[float]
    y: list[float]


@dataclass(frozen=True)
class Spot:
    """A point of a figure that tells its values to who points at it."""

    x: float
    y: float
    said: str


def with_spots(svg: str, axes: Any, spots: Sequence[Spot]) -> str:
    """The figure with a circle over each point that nobody sees, and that tells."""
    if not spots:
        return svg
    circles = "".join(_circle(*_place(axes, spot.x, spot.y), spot.said) for spot in spots)
    body = svg.removesuffix("\n").removesuffix("</svg>").replace('role="img"', 'role="group"', 1)
    return f'{body}<g class="spots">{circles}</g></svg>\n'


def _circle(x: float, y: float, said: str) -> str:
    words = escape(said)
    place = f'cx="{x:.1f}" cy="{y:.1f}" r="{_REACH}"'
    return f'<circle class="spot" {place} tabindex="0" role="img" aria-label="{words}"><title>{words}</title></circle>'


def with_lines(svg: str, axes: Any, lines: Sequence[Line]) -> str:
    """The figure with the numbers of its curves, and where on the page the x axis has which."""
    if not lines:
        return svg
    left, right = axes.get_xlim()
    (start, bottom), (end, top) = (_place(axes, x, y) for x, y in zip((left, right), axes.get_ylim(), strict=True))
    numbers = {
        "title": axes.get_xlabel(),
        "from": [round(start, 1), left],
        "to": [round(end, 1), right],
        "top": round(top, 1),
        "bottom": round(bottom, 1),
        "lines": [[line.label, line.color, *(list(map(_short, part)) for part in (line.x, line.y))] for line in lines],
    }
    data = escape(json.dumps(numbers, separators=(",", ":")))
    return svg.replace("<svg ", f'<svg tabindex="0" data-lines="{data}" ', 1)


def _place(axes: Any, x: float, y: float) -> tuple[float, float]:
    """Where a point of the data lies in the SVG, which counts from its top."""
    figure = axes.figure
    across, up = axes.transData.transform((x, y)) * _POINTS / figure.dpi
    return float(across), float(figure.get_figheight() * _POINTS - up)


def _short(value: float) -> float:
    return float(f"{value:.5g}")
