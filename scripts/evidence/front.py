"""The front: accuracy against the error of the strongest attack, as tables and as a figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from attncem.campaigns.choosing import Candidate, undominated
from attncem.records.study import ACCURACY, Study
from attncem.records.study.equal import moved
from attncem.reporting.campaign.plots import Ink
from attncem.reporting.figures import marker_of
from evidence.beyond import beside_baseline
from evidence.claim import Slope, slope_of
from evidence.drawing import accuracy_and_error, seeds
from evidence.others import named
from evidence.source import Setting, Source
from evidence.words import front_end, method, not_measured, number, spreads, table, table_of, title

CAMPAIGN = "front-cifar10"
FIGURE = "results-front.svg"
SHOWN = ("mse", "structure", "ssim")
BEHIND = "front-end-"
"""Prefix of the names of arms with a front end."""
AT = 0.88
"""The accuracy at which surrogates are compared: most settings lie within one point of it."""
_STANDINGS = {"surely": "on it", "possibly": "perhaps", "not": "no"}


def standings(arms: Sequence[Setting]) -> str:
    """Every arm at every point, the most accurate first."""
    places = Study(arms).front("mse")
    columns: dict[str, Callable[[Setting], str]] = {
        "front end": lambda arm: front_end(arm.config),
        "surrogate": lambda arm: method(arm.config),
        **spreads((ACCURACY, *SHOWN)),
        "on the front": lambda arm: f"{_STANDINGS[places[arm.label].standing]}, {100 * places[arm.label].share:.0f} %",
    }
    return table_of(sorted(arms, key=lambda arm: -arm.accuracy), columns, left=2)


# at equal accuracy


@dataclass(frozen=True)
class Sides:
    """Every surrogate at one accuracy: without a front end, and with it."""

    slope: Slope
    without: Mapping[str, Setting]
    behind: Mapping[str, Setting]

    def times(self, measure: str) -> list[float]:
        """Ratio of each surrogate's error with the front end to that without one."""
        return [self.behind[name].mean(measure) / self.without[name].mean(measure) for name in self.without]

    def range(self, measure: str) -> str:
        """The smallest and the largest ratio of a measure."""
        return f"{min(self.times(measure)):.2f} to {max(self.times(measure)):.2f}"

    def ends(self, arms: Mapping[str, Setting]) -> str:
        """The smallest and the largest MSE."""
        errors = [arm.mean("mse") for arm in arms.values()]
        return f"{number('mse', min(errors))} to {number('mse', max(errors))}"

    def table(self) -> str:
        """Every surrogate without and with the front end."""
        measures = [title(name) for name in SHOWN]
        head = ["surrogate", *measures, *(f"{name}, front end" for name in measures), "times MSE", "times structure"]
        lines = [
            [surrogate]
            + [number(name, side[surrogate].mean(name)) for side in (self.without, self.behind) for name in SHOWN]
            + [f"{mse:.2f}", f"{structure:.2f}"]
            for surrogate, mse, structure in zip(self.without, self.times("mse"), self.times("structure"), strict=True)
        ]
        return table(head, lines)

    def short(self) -> str:
        """Every surrogate with its MSE without and with the front end, the largest behind it first."""
        columns: dict[str, Callable[[str], str]] = {
            "surrogate": lambda name: f"`{name}`",
            "MSE ↑": lambda name: number("mse", self.without[name].mean("mse")),
            "MSE ↑, front end": lambda name: number("mse", self.behind[name].mean("mse")),
            "times MSE": lambda name: f"{self.behind[name].mean('mse') / self.without[name].mean('mse'):.2f}",
        }
        return table_of(sorted(self.without, key=lambda name: -self.behind[name].mean("mse")), columns)

    def best(self, arms: Mapping[str, Setting]) -> str:
        """The surrogate with the largest MSE, with that."""
        name, arm = max(arms.items(), key=lambda pair: pair[1].mean("mse"))
        return f"`{name}` (MSE {number('mse', arm.mean('mse'))})"

    def apart(self, arms: Mapping[str, Setting]) -> float:
        """How many times the smallest MSE the largest is."""
        errors = [arm.mean("mse") for arm in arms.values()]
        return max(errors) / min(errors)


def answer(source: Source) -> str:
    """Which surrogate leaves most at one accuracy, and the setting with the largest gain of all that were tried."""
    both = sides(source)
    if both is None:
        return f"The comparison is {not_measured(CAMPAIGN)}."
    without, behind = both.apart(both.without), both.apart(both.behind)
    ranking = (
        f"At {100 * AT:g} % accuracy {both.best(both.without)} leaves the attacker the most error without a front end "
        f"and {both.best(both.behind)} behind it, where best and worst are {behind:.2f} times apart ({without:.2f} "
        "without it); three seeds are too few for a ranking."
    )
    return f"{ranking} {_largest(source)}".strip()


def _largest(source: Source) -> str:
    """The setting with the largest gain over the baseline of all that were tried."""
    tried = beside_baseline(source)
    if not tried:
        return ""
    best, model = tried[0], tried[0].arm.config.model
    behind = "without a front end" if model.front_end.name == "none" else f"behind {front_end(best.arm.config)}"
    return (
        f"Of the settings tried at an accuracy that the baseline reaches, `{model.name}` {behind} with "
        f"{named(best.arm.config)} leaves the most error: {best.times['mse']:.2f} times the baseline's MSE, on "
        f"validation images with {len(best.arm.seeds)} seeds."
    )


def sides(source: Source) -> Sides | None:
    """The surrogates with a value at that accuracy, both without and with a front end; None if there are none."""
    return source.once(CAMPAIGN, lambda: _sides(source))


def _sides(source: Source) -> Sides | None:
    arms = source.arms(CAMPAIGN)
    if not arms:
        return None
    slope = slope_of(source, arms[0].config)
    without, behind = (equal(arms, slope, behind=one) for one in (False, True))
    both = [name for name in without if name in behind]
    return Sides(slope, {name: without[name] for name in both}, {name: behind[name] for name in both}) if both else None


def equal(arms: Sequence[Setting], slope: Slope, *, behind: bool) -> dict[str, Setting]:
    """For each surrogate, with or without a front end, the weight with the largest error at that accuracy."""
    largest: dict[str, Setting] = {}
    for arm in arms:
        asked = arm.weight > 0 and arm.name.startswith(BEHIND) == behind
        if asked and slope.corrects(arm.accuracy - AT):
            there, name = moved(arm, AT, slope.lines), arm.name.removeprefix(BEHIND)
            largest[name] = max(largest.get(name, there), there, key=lambda one: one.error)
    return largest


# the figure


def figure(source: Source) -> bytes | None:
    """The front as SVG, the same bytes every time; None if not measured yet."""
    arms = source.arms(CAMPAIGN)
    if not arms:
        return None
    return accuracy_and_error("front", lambda axes, ink: _draw(axes, ink, arms), (8.4, 5.4))


def _draw(axes: Any, ink: Ink, arms: Sequence[Setting]) -> None:
    """A line per surrogate through its weights, filled points with a front end, and the front of the means."""
    surrogates = list(dict.fromkeys(arm.name.removeprefix(BEHIND) for arm in arms))
    best = undominated(Candidate(arm.label, arm.accuracy, arm.mean("mse")) for arm in arms)
    xs, ys = [100 * one.accuracy for one in best], [one.error for one in best]
    axes.plot(xs, ys, color=ink.muted, linewidth=1.0, linestyle="dashed", label="no other is better in both", zorder=1)
    for name, group in groupby(arms, key=lambda arm: arm.name):
        own, place = list(group), surrogates.index(name.removeprefix(BEHIND))
        _curve(axes, own, ink.of(place), marker_of(place), filled=name.startswith(BEHIND))
    for place, name in enumerate(surrogates):
        axes.plot([], [], color=ink.of(place), marker=marker_of(place), linestyle="", markersize=6, label=name)
    for filled, name in ((True, "with a front end"), (False, "without")):
        face = ink.muted if filled else "none"
        axes.plot([], [], color=ink.muted, marker="o", markerfacecolor=face, linestyle="", markersize=6, label=name)


def _curve(axes: Any, arms: Sequence[Setting], color: str, marker: str, *, filled: bool) -> None:
    for arm in arms:
        seeds(axes, arm, color, marker)
    axes.plot(
        [100 * arm.accuracy for arm in arms],
        [arm.mean("mse") for arm in arms],
        color=color,
        marker=marker,
        markerfacecolor=color if filled else "white",
        markersize=6,
        linewidth=0.8,
    )
