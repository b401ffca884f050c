"""Accuracy against the strongest attack's error: one point per method, its seeds as light points, blind guesses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from attncem.base.texts import text
from attncem.base.texts.titles import row_title
from attncem.records.comparison import SeedSummary
from attncem.records.score import Score
from attncem.records.study import ACCURACY, Spread, spread_of
from attncem.reporting.figures import MUTED, Drawing, Spot, color_of, drawing, marker_of
from attncem.reporting.runs.methods import Method
from attncem.reporting.runs.tables import Guess, guesses
from attncem.reporting.table_formats import mean_sd

WIDE, NARROW = (8.4, 4.4), (4.4, 4.2)
"""Sizes in inches: for desktop and for phone screens."""


@dataclass(frozen=True)
class Point:
    """A method with an accuracy and an attack result; ``seeds`` are the pairs of both."""

    method: Method
    accuracy: Spread
    mse: Spread
    seeds: Sequence[tuple[Score, Score]]

    @property
    def place(self) -> tuple[float, float]:
        """Its coordinates: accuracy in percent, and error."""
        return 100 * self.accuracy.seeds.mean, self.mse.seeds.mean

    @property
    def ends(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Ends of accuracy (percent) and error: the interval over images for one seed, mean ± sd for several."""
        low, high = self.accuracy.ends(_deviation(self.accuracy.seeds))
        return (100 * low, 100 * high), self.mse.ends(_deviation(self.mse.seeds))

    @property
    def said(self) -> str:
        """Its numbers in words."""
        accuracy, mse = mean_sd(ACCURACY, self.accuracy.seeds), mean_sd("mse", self.mse.seeds)
        return text("figure.trade_off.point", run=self.method.label, accuracy=accuracy, mse=mse)


def _deviation(seeds: SeedSummary) -> tuple[float, float] | None:
    """The mean ± the standard deviation; None for one seed."""
    return None if seeds.sd is None else (seeds.mean - seeds.sd, seeds.mean + seeds.sd)


def trade_offs(methods: Sequence[Method]) -> list[Drawing]:
    """The figure for wide and for narrow screens; none where no method has both numbers."""
    points = [point for method in methods if (point := _point(method))]
    if not points:
        return []
    audits = [(entry.label, entry.audit) for point in points for entry in point.method.entries]
    shown = _near(guesses(audits), points)
    return [_drawn(f"trade-off{end}", points, shown, size) for end, size in (("", WIDE), ("-narrow", NARROW))]


def _point(method: Method) -> Point | None:
    audits = [entry.audit for entry in method.entries if entry.audit.strongest]
    seeds = [(audit.accuracy, audit.strongest_attack.mse) for audit in audits if audit.accuracy is not None]
    accuracy, mse = spread_of([one for one, _ in seeds]), spread_of([other for _, other in seeds])
    return None if accuracy is None or mse is None else Point(method, accuracy, mse, seeds)


def _near(found: Sequence[Guess], points: Sequence[Point]) -> list[Guess]:
    """The best blind guess, and those within twice the highest point: higher ones would flatten the figure."""
    least = min((min(guess.errors) for guess in found), default=0.0)
    ceiling = max(2 * max(point.ends[1][1] for point in points), least)
    return [guess for guess in found if min(guess.errors) <= ceiling]


def _drawn(key: str, points: Sequence[Point], shown: Sequence[Guess], size: tuple[float, float]) -> Drawing:
    title = text("figure.trade_off")
    with drawing(key, title, size) as (axes, finish):
        for point in points:
            _draw(axes, point)
        axes.margins(x=0.12, y=0.14)
        _guess_lines(axes, shown, narrow=size == NARROW)
        axes.set_ylim(bottom=max(axes.get_ylim()[0], 0.0))
        axes.set_xlabel(text("figure.trade_off.x"))
        axes.set_ylabel(text("figure.trade_off.y"))
        _labels(axes, points, shown, letter=0.1 / size[0])
    spots = [*_seed_spots(points), *(Spot(*point.place, point.said) for point in points)]
    return Drawing(title, finish("; ".join(point.said for point in points), spots))


def _seed_spots(points: Sequence[Point]) -> list[Spot]:
    several = [(point, entry) for point in points if len(point.seeds) > 1 for entry in point.method.entries]
    found = []
    for _, entry in several:
        if entry.audit.accuracy is not None and entry.audit.strongest:
            accuracy, mse = entry.audit.accuracy.mean, entry.audit.strongest_attack.mse.mean
            values = {"accuracy": f"{100 * accuracy:.1f}", "mse": f"{mse:.4f}"}
            found.append(Spot(100 * accuracy, mse, text("figure.trade_off.point", run=entry.label, **values)))
    return found


def _draw(axes: Any, point: Point) -> None:
    color, (x, y), (across, up) = point.method.color, point.place, point.ends
    if len(point.seeds) > 1:
        seeds = [(100 * one.mean, other.mean) for one, other in point.seeds]
        axes.plot(*zip(*seeds, strict=True), marker_of(color), color=color_of(color), alpha=0.4, markersize=3.5)
    axes.errorbar(
        x,
        y,
        xerr=[[max(x - across[0], 0)], [max(across[1] - x, 0)]],
        yerr=[[max(y - up[0], 0)], [max(up[1] - y, 0)]],
        color=color_of(color),
        marker=marker_of(color),
        markersize=6,
        linewidth=1.2,
        capsize=2.5,
    )


def _guess_lines(axes: Any, shown: Sequence[Guess], *, narrow: bool) -> None:
    """A dashed line for each blind guess; a band where it differs between models."""
    for index, guess in enumerate(shown):
        low, high = min(guess.errors), max(guess.errors)
        axes.axhline(low, color=MUTED, linewidth=0.9, linestyle="--")
        if not guess.alike:
            axes.axhspan(low, high, color=MUTED, alpha=0.25, linewidth=0)
        axes.annotate(
            _guess_said(row_title(guess.name), low, high),
            (0.005 + (0.0 if narrow else 0.25 * index), high),
            xycoords=("axes fraction", "data"),
            xytext=(0, 2),
            textcoords="offset points",
            color=MUTED,
            fontsize=8,
        )


def _guess_said(name: str, low: float, high: float) -> str:
    one = f"{low:.4f}" == f"{high:.4f}"
    return (
        text("figure.floor", name=name, mse=low) if one else text("figure.floor.between", name=name, low=low, high=high)
    )


def _labels(axes: Any, points: Sequence[Point], shown: Sequence[Guess], *, letter: float) -> None:
    """Write each method's name next to its point, in the first position that covers no point and no other name."""
    place = (axes.transData - axes.transAxes).transform
    places = [place(point.place) for point in points]
    taken = [(x - 0.012, x + 0.012, y) for x, y in places]
    for point, (_, y) in zip(points, places, strict=True):
        ends = [place((end, 0.0))[0] for end in point.ends[0]]
        taken.append((ends[0], ends[1], y))
    taken += [(0.0, 1.0, place((0.0, error))[1]) for guess in shown for error in guess.errors]
    for point, (x, y) in zip(points, places, strict=True):
        label = _short(point.method.label, most=round(0.6 / letter))
        width = letter * len(label)
        spots = [(x + side, y + rise, side > 0) for rise in (0, 0.055, -0.055, 0.11, -0.11) for side in (0.022, -0.022)]
        free = [spot for spot in spots if _is_free(spot, width, taken)]
        left, height, rightwards = (free or spots)[0]
        taken.append((left, left + width, height) if rightwards else (left - width, left, height))
        axes.annotate(
            label,
            (left, height),
            xycoords="axes fraction",
            color=color_of(point.method.color),
            ha="left" if rightwards else "right",
            va="center",
            fontweight="bold",
        ).set_in_layout(False)


def _short(label: str, *, most: int) -> str:
    """A name cut to ``most`` characters; the full name is shown on hover."""
    return label if len(label) <= most else f"{label[: most - 1]}…"


def _is_free(spot: tuple[float, float, bool], width: float, taken: Sequence[tuple[float, float, float]]) -> bool:
    x, height, rightwards = spot
    left, right = (x, x + width) if rightwards else (x - width, x)
    inside = left >= 0 and right <= 1 and 0 < height < 1
    return inside and not any(left < end and start < right and abs(height - y) < 0.05 for start, end, y in taken)
