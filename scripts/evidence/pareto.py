"""Figures of the page, as reproducible SVG: accuracy against the strongest attack's error, every seed of every arm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attncem.records.statistics import seed_summary
from attncem.records.study import ACCURACY
from attncem.reporting.campaign.plots import Ink, Plot, files
from attncem.reporting.figures import marker_of
from evidence.claim import Claim, ClaimResult, find
from evidence.source import Setting, Source

FIGURE = "results-claim.svg"
FLOORS = {"mean image": "a blind guess", "class mean": "a guess that knows the class"}
"""Rows that use no release, and their names in the figure."""
_NAMES = {
    "a": "a: kmeans",
    "b": "b: front end, kmeans",
    "c": "c: front end, attention",
    "d": "d: thin client, front end, attention",
}


def figure(source: Source, claim: Claim) -> bytes | None:
    """The arms of a claim as SVG, the same bytes every time; None if not measured yet."""
    result = find(source, claim)
    if result is None:
        return None
    return accuracy_and_error("claim", lambda axes, ink: _draw(axes, ink, result), (8.4, 4.2))


def _draw(axes: Any, ink: Ink, result: ClaimResult) -> None:
    for place, (part, arm) in enumerate(result.arms.items()):
        _arm(axes, arm, _NAMES[part], ink.of(place), marker_of(place))
    for row, label in FLOORS.items():
        if row in result.arms["a"].rows:
            level = seed_summary(result.arms["a"].values("mse", row=row)).mean
            axes.axhline(level, color=ink.muted, linewidth=0.8, linestyle="dashed")
            where = {"transform": axes.get_yaxis_transform(), "va": "bottom", "fontsize": 8, "color": ink.muted}
            axes.text(0.01, level, label, **where)
    axes.set_ylim(0, None)


def _arm(axes: Any, arm: Setting, name: str, color: str, marker: str) -> None:
    """The arm's seeds as small points, and their mean with its 95 % intervals."""
    seeds(axes, arm, color, marker)
    x, y = seed_summary([100 * value for value in arm.values(ACCURACY)]), seed_summary(arm.values("mse"))
    spread = {key: None if one.low is None else one.mean - one.low for key, one in (("xerr", x), ("yerr", y))}
    axes.errorbar([x.mean], [y.mean], color=color, marker=marker, linestyle="", markersize=6, label=name, **spread)


# parts of all figures


def accuracy_and_error(name: str, draw: Callable[[Any, Ink], None], size: tuple[float, float]) -> bytes:
    """A figure with the content from `draw`, axis labels and legend."""

    def whole(axes: Any, ink: Ink) -> str:
        axes.figure.set_facecolor("white")  # the page may have a dark background
        draw(axes, ink)
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
        axes.set_xlabel("accuracy %")
        axes.set_ylabel("MSE of the strongest attack")
        return ""

    plot = Plot(name, "Accuracy and the strongest attack's error", whole, size)
    return next(content for file, content in files(plot) if file.endswith(".svg"))


def seeds(axes: Any, arm: Setting, color: str, marker: str) -> None:
    """Every run of an arm as a small, pale point."""
    accuracies = [100 * value for value in arm.values(ACCURACY)]
    axes.plot(accuracies, arm.values("mse"), color=color, marker=marker, linestyle="", markersize=3, alpha=0.4)
