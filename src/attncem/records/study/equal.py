"""Arms at equal accuracy: the change of a measure with the accuracy, and the differences between pairs of arms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from attncem.records.campaign_table import CellAudit
from attncem.records.comparison import Comparison
from attncem.records.leaks import private_of
from attncem.records.metrics import ACCURACY, METRICS, PERFECT
from attncem.records.statistics import adjust, common_slope, compare_arms, ratio_interval
from attncem.records.study.arms import Arm, Cell

Answer = Literal["more_private", "less_private", "no_difference_shown", "too_few_seeds"]
ResultArm = TypeVar("ResultArm", bound=Arm[CellAudit])
Curve = Sequence[tuple[float, Arm[Any]]]
"""One setting at several weights: each weight with its arm."""


def slopes(curves: Sequence[Curve]) -> dict[str, float]:
    """The relative change of each measure per unit of accuracy, one slope for all these settings.

    A single setting has a few seeds at two or three weights, with similar accuracies: too few for a separate slope.
    Empty where more weight costs no accuracy.
    """
    names = _shared([arm for curve in curves for _, arm in curve])
    lines = {name: common_slope([_points(curve, name) for curve in curves]) for name in names}
    return {name: line for name, line in lines.items() if line is not None}


def _shared(arms: Sequence[Arm[Any]]) -> list[str]:
    """The measures that every seed of every arm has, in their usual order."""
    measures = [arm.measures() for arm in arms]
    return [name for name in METRICS if measures and all(name in names for names in measures)]


def _points(curve: Curve, measure: str) -> tuple[list[float], list[float], list[float]]:
    """Weights, mean accuracies and the logarithms of a measure's means along a setting's points."""
    levels = [math.log(arm.mean(measure)) for _, arm in curve]
    return [weight for weight, _ in curve], [arm.accuracy for _, arm in curve], levels


def moved(arm: ResultArm, accuracy: float, along: Mapping[str, float]) -> ResultArm:
    """The arm at another accuracy: each seed's measures move along the slope by that seed's distance in accuracy.

    Because each seed moves separately, the spread of the accuracies enters the spread of the measures. Measures without
    a slope are left out.
    """
    return replace(arm, cells=[_moved(cell, accuracy, along) for cell in arm.cells])


def _moved(cell: Cell[CellAudit], accuracy: float, along: Mapping[str, float]) -> Cell[CellAudit]:
    kind, audit = next(iter(cell.audits.items()))
    assert audit.accuracy is not None and audit.attacks is not None and audit.strongest is not None
    away, scores = accuracy - audit.accuracy[0], audit.attacks[audit.strongest]
    there = {name: [value * math.exp(line * away) for value in scores[name]] for name, line in along.items()}
    moved_to = replace(audit, accuracy=[accuracy], attacks={audit.strongest: there}, judged=audit.state)
    return replace(cell, audits={kind: moved_to})


@dataclass(frozen=True)
class PairEffect:
    """One measure of two arms, a over b: the comparison with the interval of its ratio, and the answer."""

    measure: str
    comparison: Comparison
    answer: Answer


def effects(pairs: Iterable[tuple[Arm[Any], Arm[Any]]]) -> list[dict[str, PairEffect]]:
    """The first arm of every pair over the second, by measure; p is adjusted for all pairs and measures together.

    Decibels are left out: a ratio of decibels means nothing, and they follow from the MSE.
    """
    both = [(pair, [name for name in _shared(pair) if name in PERFECT]) for pair in pairs]
    tests = iter(adjust([_compare(a, b, name) for (a, b), names in both for name in names]))
    return [{name: _effect(next(tests)) for name in names} for _, names in both]


def _compare(a: Arm[Any], b: Arm[Any], measure: str) -> Comparison:
    values, others = a.values(measure), b.values(measure)
    test = compare_arms(values, others, a=a.name, b=b.name, measure=measure)
    ratio = ratio_interval(values, others)
    return test if ratio is None else replace(test, ratio_low=ratio[0], ratio_high=ratio[1])


def _effect(test: Comparison) -> PairEffect:
    if test.verdict in ("no_difference_shown", "too_few_seeds"):
        return PairEffect(test.measure, test, test.verdict)
    return PairEffect(test.measure, test, "more_private" if is_better(test) else "less_private")


def is_better(comparison: Comparison) -> bool | None:
    """Whether the first arm is better (more accurate, or less recovered).

    None where the test shows no difference, and for evidence: little evidence is not privacy.
    """
    wanted = "higher" if comparison.measure == ACCURACY else private_of(comparison.measure)
    if comparison.verdict not in ("a_higher", "b_higher") or not wanted:
        return None
    return (comparison.verdict == "a_higher") == (wanted == "higher")
