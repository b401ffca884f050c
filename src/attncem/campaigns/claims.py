"""What committed results say of a claim: arms over their seeds, their differences, and both at equal accuracy."""

from __future__ import annotations

import math
import statistics as plain
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from attncem.base.types import RunError
from attncem.records.campaign_table import CampaignTable, CellResult
from attncem.records.comparison import Comparison
from attncem.records.metrics import METRICS, PERFECT
from attncem.records.statistics import adjust, common_slope, compare_arms, ratio_interval

Answer = Literal["more_private", "less_private", "no_difference_shown", "too_few_seeds"]
ACCURACY = "accuracy"
"""Stands among the measures of an arm; it has no side that is more private."""


@dataclass(frozen=True)
class Arm:
    """An arm at one point: of every seed its accuracy and each measure of its strongest attack.

    ``values`` has the accuracy under `ACCURACY`; ``strongest`` names the strongest attack of each seed, ``unreliable``
    counts the seeds whose audit calls that attack unreliable. ``rows`` has the MSE of every row that all seeds have.
    ``collapsed`` are seeds that ended near chance: they are in the values, and no point of any curve.
    """

    name: str
    point: Mapping[str, Any]
    seeds: tuple[int, ...]
    values: Mapping[str, Sequence[float]]
    strongest: tuple[str, ...]
    unreliable: int
    rows: Mapping[str, Sequence[float]]
    collapsed: tuple[int, ...] = ()

    def mean(self, measure: str) -> float:
        """Of a measure over the seeds."""
        return plain.fmean(self.values[measure])

    @property
    def accuracy(self) -> float:
        """The mean over the seeds."""
        return self.mean(ACCURACY)

    @property
    def measures(self) -> list[str]:
        """The attacks' measures that every seed has, in their usual order."""
        return [name for name in METRICS if name in self.values]


Curve = Sequence[tuple[float, Arm]]
"""One setting at several weights: each weight with the arm there."""


def arms_of(table: CampaignTable, *, audit: int = 0, balanced: bool = False) -> list[Arm]:
    """Every arm at every point, in the campaign's order; ``balanced``: by the accuracy that counts classes alike."""
    groups: dict[tuple[str, str], list[CellResult]] = {}
    for cell in table.cells:
        groups.setdefault((cell.arm, repr(cell.point)), []).append(cell)
    return [_arm(table.campaign, cells, audit, balanced) for cells in groups.values()]


def _arm(campaign: str, cells: Sequence[CellResult], audit: int, balanced: bool) -> Arm:
    found = [_scores(campaign, cell, audit) for cell in cells]
    shared = [name for name in METRICS if all(name in scores for _, scores in found)]
    values = {name: [scores[name][0] for _, scores in found] for name in shared}
    values[ACCURACY] = [_accuracy(campaign, cell, audit, balanced) for cell in cells]
    return Arm(
        name=cells[0].arm,
        point=cells[0].point,
        seeds=tuple(cell.seed for cell in cells),
        values=values,
        strongest=tuple(name for name, _ in found),
        unreliable=sum(not scores["reliable"] for _, scores in found),
        rows=_rows([cell.audits[audit].attacks or {} for cell in cells]),
        collapsed=tuple(cell.seed for cell in cells if "near_chance" in (cell.warnings or ())),
    )


def _rows(seeds: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    return {row: [own[row]["mse"][0] for own in seeds] for row in seeds[0] if all(row in own for own in seeds)}


def _scores(campaign: str, cell: CellResult, audit: int) -> tuple[str, Mapping[str, Any]]:
    own = cell.audits[audit]
    if own.strongest is None or own.attacks is None:
        raise RunError(f"{campaign}: {cell.arm} with seed {cell.seed} has no attack with a result")
    return own.strongest, own.attacks[own.strongest]


def _accuracy(campaign: str, cell: CellResult, audit: int, balanced: bool) -> float:
    own = cell.audits[audit]
    value = own.balanced_accuracy if balanced else own.accuracy[0] if own.accuracy else None
    if value is None:
        kind = "balanced accuracy" if balanced else "accuracy"
        raise RunError(f"{campaign}: {cell.arm} with seed {cell.seed} has no {kind}")
    return value


# at equal accuracy


def slopes(curves: Sequence[Curve]) -> dict[str, float]:
    """By what part of itself each measure changes for each unit of accuracy, one slope for all these settings.

    Single settings have a few seeds at two or three weights, and accuracies that differ little: too few for a slope of
    their own. Empty where more weight costs no accuracy.
    """
    shared = _shared([arm for curve in curves for _, arm in curve]) if curves else []
    found = {name: common_slope([_points(curve, name) for curve in curves]) for name in shared}
    return {name: line for name, line in found.items() if line is not None}


def _points(curve: Curve, measure: str) -> tuple[list[float], list[float], list[float]]:
    """Weights, mean accuracies and the logarithms of a measure's means along a setting's points."""
    levels = [math.log(arm.mean(measure)) for _, arm in curve]
    return [weight for weight, _ in curve], [arm.accuracy for _, arm in curve], levels


def moved(arm: Arm, accuracy: float, along: Mapping[str, float]) -> Arm:
    """The arm as it would be at this accuracy: every seed's measure moved along the slope by what that seed is off.

    Seed by seed, so that the spread of the accuracies is in what is said of the measures. Measures without a slope are
    left out, as nothing is known of them there.
    """
    missing = [accuracy - own for own in arm.values[ACCURACY]]
    values = {
        name: [value * math.exp(line * off) for value, off in zip(arm.values[name], missing, strict=True)]
        for name, line in along.items()
    }
    values[ACCURACY] = [accuracy] * len(missing)
    return replace(arm, values=values)


# differences


@dataclass(frozen=True)
class Effect:
    """One measure of two arms, a over b: the comparison with the interval of its ratio, and what it means."""

    measure: str
    comparison: Comparison
    answer: Answer


def effects(pairs: Iterable[tuple[Arm, Arm]]) -> list[list[Effect]]:
    """The first of every pair over the second, in every measure that both have; p adjusted for all of them together.

    Decibels are left out: how many times as many there are says nothing, and the MSE has told it already.
    """
    given = list(pairs)
    plan = [(place, name) for place, pair in enumerate(given) for name in _shared(pair) if name in PERFECT]
    compared = adjust([_compare(*given[place], name) for place, name in plan])
    found: list[list[Effect]] = [[] for _ in given]
    for (place, name), item in zip(plan, compared, strict=True):
        found[place].append(Effect(name, item, _answer(name, item)))
    return found


def _shared(arms: Sequence[Arm]) -> list[str]:
    return [name for name in arms[0].measures if all(name in arm.values for arm in arms)]


def _compare(a: Arm, b: Arm, measure: str) -> Comparison:
    found = compare_arms(a.values[measure], b.values[measure], a=a.name, b=b.name, measure=measure)
    ratio = ratio_interval(a.values[measure], b.values[measure])
    return found if ratio is None else replace(found, ratio_low=ratio[0], ratio_high=ratio[1])


def _answer(measure: str, found: Comparison) -> Answer:
    if found.verdict in ("no_difference_shown", "too_few_seeds"):
        return found.verdict
    higher_is_private = METRICS[measure].private == "higher"
    return "more_private" if (found.verdict == "a_higher") == higher_is_private else "less_private"
