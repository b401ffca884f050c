"""The selection rules for settings, used by every selection, with numbers from validation images.

By default the largest error among those that are accurate enough; by `nats` the smallest limit on the leak.
"""

from __future__ import annotations

import math
import statistics as plain
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from attncem.base.types import RunError
from attncem.config.options.search import Rule
from attncem.records.audit import AuditResult
from attncem.records.leak import Leak
from attncem.records.leaks import CONTRARY, LIMIT, leak_of
from attncem.records.statistics import slope

LEVELS: dict[str, float] = {"light": 0.005, "balanced": 0.015, "strong": 0.03}
"""Largest loss of accuracy against the undefended model, by the name of the level."""
_ROUNDING = 1e-9
"""Rounding tolerance: an accuracy, a fraction of images, reaches a level that it misses by less than this."""


@dataclass(frozen=True)
class Candidate:
    """A setting with its accuracy and the error of its strongest attack; larger is better for both.

    ``nats`` is the limit on its leak, smaller is better; None: not measured, or vacuous. ``beside`` are the numbers
    that may contradict it, by name.
    """

    name: str
    accuracy: float
    error: float
    nats: float | None = None
    beside: Mapping[str, Leak] = field(default_factory=dict, hash=False)

    def privacy(self, rule: Rule) -> float:
        """The number that a rule wants as large as possible; without a limit on the leak there is no privacy."""
        if rule == "error":
            return self.error
        return -math.inf if self.nats is None else -self.nats


def error_of(scores: Mapping[str, float]) -> float:
    """The geometric mean of MSE and structure error.

    MSE alone would favour front ends, which remove colour and brightness; structure alone would ignore that removal.
    """
    return math.sqrt(scores["mse"] * scores["structure"])


def candidate(name: str, audit: AuditResult, rule: Rule = "error") -> Candidate:
    """A setting with the numbers of its audit that a rule needs; RunError where no attack has a result."""
    if not audit.strongest:
        raise RunError(f"{name}: no attack has a result, so there is no error to judge it by; see its audit's rows")
    strongest = audit.strongest_attack.scores
    error = error_of({key: score.mean for key, score in strongest.items()})
    if rule == "error":
        return Candidate(name, audit.known_accuracy.mean, error)
    leak, others = leak_of(audit, LIMIT), {measure: leak_of(audit, measure) for measure in CONTRARY}
    nats = None if leak is None or leak.vacuous else leak.mean
    beside = {measure: other for measure, other in others.items() if other is not None}
    return Candidate(name, audit.known_accuracy.mean, error, nats, beside)


def choose(
    candidates: Iterable[Candidate],
    undefended: float,
    levels: Mapping[str, float] = LEVELS,
    rule: Rule = "error",
) -> dict[str, Candidate]:
    """For every level the most private setting among those that are accurate enough, if there is one.

    The first of equals. By `nats`, settings without a limit on their leak are never chosen.
    """
    given = [one for one in candidates if one.privacy(rule) > -math.inf]
    fitting = {
        level: [one for one in given if one.accuracy >= undefended - drop - _ROUNDING] for level, drop in levels.items()
    }
    return {level: max(some, key=lambda one: one.privacy(rule)) for level, some in fitting.items() if some}


def undominated(candidates: Iterable[Candidate], rule: Rule = "error") -> list[Candidate]:
    """The Pareto front of accuracy and privacy by a rule, the most accurate first."""
    front: list[Candidate] = []
    known = [one for one in candidates if one.privacy(rule) > -math.inf]
    for one in sorted(known, key=lambda one: (-one.accuracy, -one.privacy(rule))):
        if not front or one.privacy(rule) > front[-1].privacy(rule):
            front.append(one)
    return front


@dataclass(frozen=True)
class Tried:
    """One run of a setting with a penalty weight, its accuracy and the error of its strongest attack."""

    weight: float
    accuracy: float
    error: float


@dataclass(frozen=True)
class Matched:
    """The weight at which a setting has a given accuracy, and the error there; `within`: among the tried weights."""

    name: str
    weight: float
    error: float
    within: bool


def match(name: str, tried: Sequence[Tried], accuracy: float) -> Matched:
    """The weight at which a setting has this accuracy, by the straight line through all its runs.

    There is no extrapolation: outside the tried weights the nearest of them is taken. Where more weight does not cost
    accuracy there is no such point, and the weight with the nearest mean accuracy is taken, the larger of equals.
    Weights have two digits.
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
    """The weight whose runs have the mean accuracy nearest to this one."""
    means = {
        weight: plain.fmean(one.accuracy for one in tried if one.weight == weight)
        for weight in sorted({one.weight for one in tried}, reverse=True)
    }
    return min(means, key=lambda weight: abs(means[weight] - accuracy))
