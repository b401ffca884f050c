"""Which of several settings to take: the one rule of every selection, for numbers from validation images."""

from __future__ import annotations

import math
import statistics as plain
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from attncem.base.types import RunError
from attncem.records.audit import AuditResult
from attncem.records.statistics import slope

LEVELS: dict[str, float] = {"light": 0.005, "balanced": 0.015, "strong": 0.03}
"""How far below the undefended accuracy a setting may be, by the name of the level."""
_ROUNDING = 1e-9
"""An accuracy is a fraction of images: what misses a level by less than this is at it."""


@dataclass(frozen=True)
class Candidate:
    """A setting with its accuracy and the error that its strongest attack is left with; both the larger the better."""

    name: str
    accuracy: float
    error: float


def error_of(scores: Mapping[str, float]) -> float:
    """The geometric mean of MSE and structure error.

    MSE alone would flatter front ends, which take out colour and brightness; structure alone would not count them.
    """
    return math.sqrt(scores["mse"] * scores["structure"])


def candidate(name: str, audit: AuditResult) -> Candidate:
    """A setting as an audit of it found it; RunError where no attack has a result."""
    if not audit.strongest:
        raise RunError(f"{name}: no attack has a result, so there is no error to judge it by; see its audit's rows")
    strongest = audit.strongest_attack.scores
    return Candidate(name, audit.known_accuracy.mean, error_of({key: score.mean for key, score in strongest.items()}))


def choose(
    candidates: Iterable[Candidate], undefended: float, levels: Mapping[str, float] = LEVELS
) -> dict[str, Candidate]:
    """For every level the setting with the largest error among those that are accurate enough; levels without none.

    Of equal ones the first.
    """
    given = list(candidates)
    fitting = {
        level: [one for one in given if one.accuracy >= undefended - drop - _ROUNDING] for level, drop in levels.items()
    }
    return {level: max(some, key=lambda one: one.error) for level, some in fitting.items() if some}


def undominated(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Those that no other beats in one of accuracy and error without losing in the other; the most accurate first."""
    front: list[Candidate] = []
    for one in sorted(candidates, key=lambda one: (-one.accuracy, -one.error)):
        if not front or one.error > front[-1].error:
            front.append(one)
    return front


@dataclass(frozen=True)
class Tried:
    """One run of a setting with a penalty weight, its accuracy and the error that its strongest attack is left with."""

    weight: float
    accuracy: float
    error: float


@dataclass(frozen=True)
class Matched:
    """The weight at which a setting has a given accuracy, and the error there; `within` the weights that were tried."""

    name: str
    weight: float
    error: float
    within: bool


def match(name: str, tried: Sequence[Tried], accuracy: float) -> Matched:
    """The weight at which a setting has this accuracy, by the straight line through all its runs.

    Nothing is extrapolated: beyond the weights that were tried the nearest of them is taken. Where more weight does not
    cost accuracy there is no such point, and the weight whose mean accuracy is nearest is taken, of equal ones the
    larger. Weights have two digits.
    """
    weights, accuracies = [one.weight for one in tried], [one.accuracy for one in tried]
    falls = slope(weights, accuracies)
    if falls is None or falls >= 0:
        weight, within = _nearest(tried, accuracy), False
    else:
        exact = plain.fmean(weights) + (accuracy - plain.fmean(accuracies)) / falls
        weight = min(max(exact, min(weights)), max(weights))
        within = weight == exact
    rises = slope(weights, [one.error for one in tried]) or 0.0
    rounded = float(f"{weight:.2g}")
    error = plain.fmean(one.error for one in tried) + rises * (rounded - plain.fmean(weights))
    return Matched(name, rounded, error, within)


def _nearest(tried: Sequence[Tried], accuracy: float) -> float:
    """The weight whose runs' mean accuracy is nearest to one."""
    means = {
        weight: plain.fmean(one.accuracy for one in tried if one.weight == weight)
        for weight in sorted({one.weight for one in tried}, reverse=True)
    }
    return min(means, key=lambda weight: abs(means[weight] - accuracy))
