"""Figures as reproducible SVG: points of accuracy and error, and numbers in lines with their intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from attncem.records.statistics import Estimate, Interval
from attncem.records.study import ACCURACY
from attncem.reporting.campaign.plots import Ink, Plot, printed, saved
from attncem.reporting.figures import marker_of
from evidence.source import Setting

WIDE = (8.4, 4.2)
ACROSS = 8.4
"""Width of a figure in inches."""
_ROOM = 0.6
"""Share of the height of a line that its numbers take."""


def svg(name: str, title: str, draw: Callable[[Any, Ink], None], size: tuple[float, float] = WIDE) -> bytes:
    """A figure as SVG, the same bytes every time."""

    def whole(axes: Any, ink: Ink) -> str:
        axes.figure.set_facecolor("white")  # the page may have a dark background
        draw(axes, ink)
        return ""

    return saved(printed(Plot(name, title, whole, size)), "svg", {"Date": None})


def legend(axes: Any) -> None:
    """The legend, to the right of the axes."""
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))


def accuracy_and_error(name: str, draw: Callable[[Any, Ink], None], size: tuple[float, float]) -> bytes:
    """Accuracy against the error of the strongest attack, with the content from `draw`."""

    def whole(axes: Any, ink: Ink) -> None:
        draw(axes, ink)
        legend(axes)
        axes.set_xlabel("accuracy %")
        axes.set_ylabel("MSE of the strongest attack")

    return svg(name, "Accuracy and the strongest attack's error", whole, size)


def seeds(axes: Any, arm: Setting, color: str, marker: str) -> None:
    """Every run of an arm as a small, pale point."""
    accuracies = [100 * value for value in arm.values(ACCURACY)]
    axes.plot(accuracies, arm.values("mse"), color=color, marker=marker, linestyle="", markersize=3, alpha=0.4)


@dataclass(frozen=True)
class Lines:
    """Numbers in lines: each line has a name and a number for each kind; a dashed line is drawn at ``at``."""

    title: str
    across: str
    kinds: Sequence[str]
    lines: Sequence[tuple[str, Sequence[Estimate | None]]]
    at: float | None = None
    logarithmic: bool = False


def of_lines(name: str, content: Lines) -> bytes:
    """Numbers in lines as a figure: the first line above, a colour and a marker for each kind."""

    def draw(axes: Any, ink: Ink) -> None:
        if content.logarithmic:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter("{x:g}")
        if content.at is not None:
            axes.axvline(content.at, color=ink.muted, linewidth=0.8, linestyle="dashed")
        for place, kind in enumerate(content.kinds):
            _kind(axes, [numbers[place] for _, numbers in content.lines], kind, place, len(content.kinds), ink)
        axes.set_yticks(range(len(content.lines)), [line for line, _ in content.lines])
        axes.set_ylim(len(content.lines) - 0.5, -0.5)
        axes.set_xlabel(content.across)
        if len(content.kinds) > 1:
            legend(axes)

    return svg(name, content.title, draw, (ACROSS, 0.9 + 0.42 * len(content.lines)))


def _kind(axes: Any, numbers: Sequence[Estimate | None], kind: str, place: int, kinds: int, ink: Ink) -> None:
    """The numbers of one kind, a little above or below the middle of their lines, each with its interval."""
    shift = _ROOM / kinds * (place - (kinds - 1) / 2)
    there = [(line + shift, number) for line, number in enumerate(numbers) if number is not None]
    ends = [[one.mean - one.low for _, one in there], [one.high - one.mean for _, one in there]]
    style: dict[str, Any] = {"color": ink.of(place), "marker": marker_of(place), "markersize": 5, "linewidth": 1.2}
    at = [one.mean for _, one in there], [height for height, _ in there]
    axes.errorbar(*at, xerr=ends, linestyle="", label=kind, **style)


def exact(value: float) -> Interval:
    """A number without an interval, for a figure."""
    return Interval(value, value, value)
