"""Studies that the source documents plan: early shut-off and class gate; the sweep over λ, scale and threshold."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from attncem.records.campaign_table import CellAudit
from attncem.records.comparison import SeedSummary
from attncem.records.metrics import ACCURACY
from attncem.records.statistics import Interval, seed_summary
from attncem.records.study import Study
from evidence.drawing import Lines, of_lines
from evidence.source import Setting, Source
from evidence.words import counted, missing_arms, not_measured, number, spreads, table_of

GATES, SWEEP = "documents-gates", "documents-sweep"
FIGURE = "results-gates.svg"
WEIGHT = "training.penalty_weight"
SWITCHES = {"surrogate.early_shut_off": "early shut-off", "surrogate.class_gate": "class gate"}
"""Options of the documents that are on or off."""
SWEPT = {WEIGHT: "λ", "surrogate.attention_loss_scale": "scale of the loss", "surrogate.snr_thresh": "SNR threshold"}
"""Options of the sweep."""


@dataclass(frozen=True)
class Switch:
    """A switch of a surrogate: what turning it on does to accuracy and MSE, over seeds, all other options equal."""

    arm: str
    option: str
    accuracy: SeedSummary
    error: SeedSummary
    """The logarithm of the ratio of the MSE."""

    @property
    def name(self) -> str:
        """The switch and its surrogate."""
        return f"{SWITCHES[self.option]}, `{self.arm}`"

    @property
    def points(self) -> str:
        """The change of the accuracy in points."""
        return _written(self.accuracy, lambda value: f"{100 * value:+.2f}")

    @property
    def times(self) -> Interval:
        """The ratio of the MSE, with its interval over seeds."""
        ends = self.error.low, self.error.high
        low, high = (self.error.mean if end is None else end for end in ends)
        return Interval(math.exp(self.error.mean), math.exp(low), math.exp(high))

    @property
    def shown(self) -> bool:
        """Whether an interval over seeds excludes that the switch does nothing."""
        return any(_excludes_none(one) for one in (self.accuracy, self.error))


def _excludes_none(one: SeedSummary) -> bool:
    """Whether the interval of a difference does not contain 0."""
    return one.low is not None and one.high is not None and (one.low > 0 or one.high < 0)


def _written(one: SeedSummary, write: Callable[[float], str]) -> str:
    """A mean with its interval over seeds."""
    if one.low is None or one.high is None:
        return write(one.mean)
    return f"{write(one.mean)} ({write(one.low)} to {write(one.high)})"


def switches(source: Source) -> list[Switch]:
    """Every switch of every surrogate of the campaign; empty if not measured yet."""
    arms = source.arms(GATES)
    places = [(name, option) for name in dict.fromkeys(arm.name for arm in arms) for option in SWITCHES]
    made = [_switch([arm for arm in arms if arm.name == name], option) for name, option in places]
    return [one for one in made if one is not None]


def _switch(arms: Sequence[Setting], option: str) -> Switch | None:
    """The differences on − off of every seed, each the mean over all other options that were measured at both."""
    there = [arm for arm in arms if option in arm.point]
    pairs = [(on, off) for on in there for off in there if on.point[option] and not off.point[option]]
    apart: dict[int, list[tuple[float, float]]] = {}
    for on, off in (pair for pair in pairs if _rest(pair[0], option) == _rest(pair[1], option)):
        without = _by_seed(off)
        for seed, (accuracy, error) in _by_seed(on).items():
            if seed in without:
                apart.setdefault(seed, []).append((accuracy - without[seed][0], math.log(error / without[seed][1])))
    if not apart:
        return None
    accuracies, errors = ([fmean(pair[place] for pair in seed) for seed in apart.values()] for place in (0, 1))
    return Switch(arms[0].name, option, seed_summary(accuracies), seed_summary(errors))


def _rest(arm: Setting, option: str) -> str:
    return repr({key: value for key, value in arm.point.items() if key != option})


def _by_seed(arm: Setting) -> Mapping[int, tuple[float, float]]:
    """Accuracy and MSE of every seed."""
    return dict(zip(arm.seeds, zip(arm.values(ACCURACY), arm.values("mse"), strict=True), strict=True))


def switches_table(source: Source) -> str:
    """What every switch does, on over off."""
    columns: dict[str, Callable[[Switch], str]] = {
        "on over off": lambda one: one.name,
        "seeds": lambda one: str(one.accuracy.count),
        "accuracy, points": lambda one: one.points,
        "MSE, times": lambda one: f"{one.times.mean:.2f} ({one.times.low:.2f} to {one.times.high:.2f})",
    }
    return table_of(switches(source), columns)


def gates(source: Source) -> str:
    """What the switches do, and how many runs ended near chance."""
    rows, arms = switches(source), source.arms(GATES)
    if not rows:
        return f"Early shut-off and class gate are {not_measured(GATES)}."
    shown = [f"{one.name} ({one.points} points, {one.times.mean:.2f} times the MSE)" for one in rows if one.shown]
    effects = f": {', '.join(shown)}" if shown else ""
    collapsed, runs = sum(len(arm.collapsed) for arm in arms), sum(len(arm.cells) for arm in arms)
    least, most = (100 * choose(arm.accuracy for arm in arms) for choose in (min, max))
    return (
        f"{len(shown) or 'None'} of {len(rows)} switches {'have' if len(shown) > 1 else 'has'} an effect that the "
        f"interval over seeds shows{effects}. Mean accuracies are {least:.1f} to {most:.1f} %, and "
        f"{collapsed or 'none'} of {runs} runs ended near chance.{_missing(source, GATES)}"
    )


def _missing(source: Source, campaign: str) -> str:
    """The runs that are missing."""
    made = source.table(campaign)
    if made is None or not made.unfinished:
        return ""
    return f" **Not complete**: {len(made.unfinished)} runs are missing: {counted(missing_arms(made))}."


def figure(source: Source) -> bytes | None:
    """The ratio of the MSE for every switch; None if not measured yet."""
    rows = switches(source)
    if not rows:
        return None
    lines = [(one.name.replace("`", ""), [one.times]) for one in rows]
    across = "MSE with the switch on, times that without"
    return of_lines(FIGURE, Lines("Switches of the documents", across, ("MSE",), lines, at=1))


# the sweep


@dataclass(frozen=True)
class Value:
    """An option of the sweep at one value: accuracy and MSE over seeds, the other options averaged."""

    option: str
    value: object
    accuracy: SeedSummary
    error: SeedSummary


def sweep_values(source: Source) -> list[Value]:
    """Every value of every swept option; empty if not measured yet."""
    study = Study(source.arms(SWEEP))
    options = [(name, option) for name in study.names for option in SWEPT if option in study.options]
    return [value for name, option in options for value in _values(study, name, option)]


def _values(study: Study[CellAudit], name: str, option: str) -> list[Value]:
    """An option of a surrogate at every value."""
    accuracies, errors = (study.effects(option, name, measure, study.kinds[0]) for measure in (ACCURACY, "mse"))
    both = zip(accuracies, errors, strict=True)
    return [Value(option, one.value, one.summary, other.summary) for one, other in both]


def sweep_table(source: Source) -> str:
    """Accuracy and MSE at every value of the swept options."""
    columns: dict[str, Callable[[Value], str]] = {
        "option": lambda one: SWEPT[one.option],
        "value": lambda one: f"{one.value:g}",
        "accuracy %": lambda one: _written(one.accuracy, lambda value: number(ACCURACY, value)),
        "MSE ↑": lambda one: _written(one.error, lambda value: number("mse", value)),
    }
    return table_of(sweep_values(source), columns, left=2)


def sweep(source: Source) -> str:
    """Which swept option moves the accuracy most, and which the MSE."""
    values = sweep_values(source)
    if not values:
        return f"The sweep is {not_measured(SWEEP)}."
    moves = {option: _moves([one for one in values if one.option == option]) for option in SWEPT}
    distances = [
        f"{SWEPT[option]} {100 * points:.1f} points and {error:.4f}" for option, (points, error) in moves.items()
    ]
    first = SWEPT[max(moves, key=lambda option: moves[option][1])]
    return (
        f"In the sweep {first} moves the MSE most; from the smallest to the largest mean, accuracy and MSE move by: "
        f"{', '.join(distances)}.{_missing(source, SWEEP)}"
    )


def _moves(values: Sequence[Value]) -> tuple[float, float]:
    """How far accuracy and MSE move between the values of an option."""
    means = [[one.accuracy.mean for one in values], [one.error.mean for one in values]]
    accuracy, error = (max(of) - min(of) if of else 0.0 for of in means)
    return accuracy, error


def points_table(source: Source, campaign: str) -> str:
    """Every point of a campaign, with its usual measures."""
    arms = source.arms(campaign)
    keys = list(dict.fromkeys(key for arm in arms for key in arm.point))
    columns: dict[str, Callable[[Setting], str]] = {"surrogate": lambda arm: f"`{arm.name}`"}
    columns |= {key.rpartition(".")[2]: partial(_value, key=key) for key in keys}
    return table_of(arms, columns | spreads((ACCURACY, "mse", "structure")), left=1)


def _value(arm: Setting, key: str) -> str:
    """The value of an option at an arm's point; switches are on or off."""
    value = arm.point.get(key, "")
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else f"{value}"
