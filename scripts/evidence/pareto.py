"""The claim's figure: accuracy against the strongest attack's error, every seed of every arm."""

from __future__ import annotations

from typing import Any

from attncem.records.statistics import seed_summary
from attncem.records.study import ACCURACY
from attncem.reporting.campaign.plots import Ink
from attncem.reporting.figures import marker_of
from evidence.claim import Claim, ClaimResult, find
from evidence.drawing import accuracy_and_error, seeds
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
