"""Which of several settings to take: the one rule of every selection, for numbers from validation images."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from attncem.results.audit import AuditResult
from attncem.types import RunError

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
