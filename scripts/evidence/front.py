"""The front: accuracy against what the attacker is left with, as a table and as a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from attncem.campaigning.claims import ACCURACY, Arm, arms_of
from attncem.reporting.campaign_plots import Ink
from attncem.reporting.figures import marker_of
from attncem.results.comparison import FrontPoint
from attncem.statistics import pareto, seed_summary
from evidence.drawing import accuracy_and_error
from evidence.source import Source, config_of, not_measured
from evidence.words import front_end, method, spread, table, title, whence

CAMPAIGN = "front-cifar10"
FIGURE = "results-front.svg"
SHOWN = ("mse", "structure", "ssim")
BEHIND = "front-end-"
"""How the names of arms with a front end begin."""
_STANDINGS = {"surely": "on it", "possibly": "perhaps", "not": "no"}


def section(source: Source) -> str:
    """The front's table below its figure, or that it is not measured yet."""
    found = source.table(CAMPAIGN)
    if found is None:
        return not_measured(CAMPAIGN)
    arms = arms_of(found)
    standing = {name: point.standing for name, point in standings(arms).items()}
    lines = []
    for arm in sorted(arms, key=lambda one: -one.accuracy):
        config = config_of(CAMPAIGN, arm)
        numbers = [spread(name, arm.values[name]) for name in (ACCURACY, *SHOWN)]
        lines.append([front_end(config), method(config), *numbers, _STANDINGS[standing[label(arm)]]])
    head = ["front end", "surrogate", *(title(name) for name in (ACCURACY, *SHOWN)), "on the front"]
    told = (
        f"{whence(found, arms)}\n\n"
        f"![Accuracy against the strongest attack's MSE]({FIGURE})\n\n"
        "*On the front* goes by accuracy and MSE and by the intervals of both ([Statistics](statistics.md#fronts)): "
        "so few seeds leave most of it open.\n\n"
    )
    return told + table(head, lines, left=2)


def label(arm: Arm) -> str:
    """An arm and its point, as the figure tells them apart."""
    return " ".join([arm.name, *(f"{value:g}" for value in arm.point.values())])


def standings(arms: Sequence[Arm]) -> Mapping[str, FrontPoint]:
    """Where every arm stands by accuracy and MSE."""
    points = {label(arm): list(zip(arm.values[ACCURACY], arm.values["mse"], strict=True)) for arm in arms}
    return {point.name: point for point in pareto(points)}


# the figure


def figure(source: Source) -> bytes | None:
    """The front as SVG, the same bytes every time; None where it is not measured yet."""
    found = source.table(CAMPAIGN)
    if found is None:
        return None
    arms = arms_of(found)
    return accuracy_and_error("front", lambda axes, ink: _draw(axes, ink, arms), (8.4, 4.8))


def _draw(axes: Any, ink: Ink, arms: Sequence[Arm]) -> None:
    """A line for every surrogate through its weights, filled points behind a front end, with intervals over seeds."""
    surrogates = list(dict.fromkeys(arm.name.removeprefix(BEHIND) for arm in arms))
    for name, group in groupby(arms, key=lambda arm: arm.name):
        own, place = list(group), surrogates.index(name.removeprefix(BEHIND))
        _curve(axes, own, ink.of(place), marker_of(place), filled=name.startswith(BEHIND))
    for place, name in enumerate(surrogates):
        axes.plot([], [], color=ink.of(place), marker=marker_of(place), linestyle="", markersize=5, label=name)
    for filled, name in ((True, "with a front end"), (False, "without")):
        face = ink.muted if filled else "none"
        axes.plot([], [], color=ink.muted, marker="o", markerfacecolor=face, linestyle="", markersize=5, label=name)


def _curve(axes: Any, arms: Sequence[Arm], color: str, marker: str, *, filled: bool) -> None:
    spreads = [(seed_summary(arm.values[ACCURACY]), seed_summary(arm.values["mse"])) for arm in arms]
    axes.errorbar(
        [100 * x.mean for x, _ in spreads],
        [y.mean for _, y in spreads],
        xerr=[100 * (x.mean - x.low if x.low is not None else 0.0) for x, _ in spreads],
        yerr=[y.mean - y.low if y.low is not None else 0.0 for _, y in spreads],
        color=color,
        marker=marker,
        markerfacecolor=color if filled else "none",
        markersize=5,
        linewidth=0.8,
        elinewidth=0.6,
    )
