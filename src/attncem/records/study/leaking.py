"""Arms ranked by the limit on the leak, and the pairs in which an attack or a probe says the opposite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Any, NamedTuple

from attncem.base.texts import Sentence, written
from attncem.records.findings import Finding, finding
from attncem.records.leaks import CONTRARY, LIMIT, have_equal_scale, private_of, say_leak
from attncem.records.statistics import welch_interval
from attncem.records.study.arms import Arm
from attncem.records.study.keys import AuditKind


class Contradiction(NamedTuple):
    """The first arm has the lower limit, but leaks more by these measures; ``seeds``: all intervals are over seeds."""

    a: Arm[Any]
    b: Arm[Any]
    measures: Sequence[str]
    seeds: bool


def ranked(arms: Sequence[Arm[Any]], kind: AuditKind | None = None) -> list[Arm[Any]]:
    """The arms that have a limit, the smallest mean first; a vacuous one after all others."""
    having = [arm for arm in arms if arm.leaks(LIMIT, kind)]
    return sorted(having, key=lambda arm: (vacuous(arm, kind), arm.mean(LIMIT, kind)))


def vacuous(arm: Arm[Any], kind: AuditKind | None = None, measure: str = LIMIT) -> bool:
    """Whether the bound of any seed is vacuous."""
    return any(leak.vacuous for leak in arm.leaks(measure, kind))


def contradictions(arms: Sequence[Arm[Any]], kind: AuditKind | None = None) -> list[Contradiction]:
    """Pairs whose limits differ beyond their intervals, with the measures that differ the other way beyond their own.

    Intervals are Welch's over seeds; where an arm has one seed, those over images. InfoNCE contradicts nothing where
    the arm with less of it is at its ceiling, nor do numbers with other counts of releases or candidates.
    """
    return [
        Contradiction(a, b, measures, _over_seeds(a, b, [LIMIT, *measures], kind))
        for a, b in permutations(ranked(arms, kind), 2)
        if not vacuous(a, kind) and _is_lower(a, b, LIMIT, kind) and (measures := list(_contrary(a, b, kind)))
    ]


def _over_seeds(a: Arm[Any], b: Arm[Any], measures: Sequence[str], kind: AuditKind | None) -> bool:
    """Whether both arms have each number for several seeds."""
    return all(len(arm.leaks(measure, kind)) > 1 for arm in (a, b) for measure in measures)


def _contrary(a: Arm[Any], b: Arm[Any], kind: AuditKind | None) -> Iterator[str]:
    for measure in CONTRARY:
        of_a, of_b = a.leaks(measure, kind), b.leaks(measure, kind)
        may_be_larger = any(leak.at_ceiling for leak in of_b)
        leaks_more = (
            _is_lower(a, b, measure, kind) if private_of(measure) == "higher" else _is_lower(b, a, measure, kind)
        )
        if leaks_more and not may_be_larger and have_equal_scale([*of_a, *of_b], measure):
            yield measure


def _is_lower(a: Arm[Any], b: Arm[Any], measure: str, kind: AuditKind | None) -> bool:
    """Whether the first arm's number is lower beyond the interval."""
    one, other = a.summary(measure, kind), b.summary(measure, kind)
    if one is None or other is None:
        return False
    if min(one.seeds.count, other.seeds.count) > 1:
        interval = welch_interval(a.values(measure, kind), b.values(measure, kind))
        return interval is not None and interval[1] < 0
    return one.image_high < other.image_low


def nats_disagree(arms: Sequence[Arm[Any]], kind: AuditKind | None = None) -> list[Finding]:
    """A finding for every pair of arms that a ranking by the limit alone would mislead about."""
    return [_finding(item, kind) for item in contradictions(arms, kind)]


def _finding(item: Contradiction, kind: AuditKind | None) -> Finding:
    limits = [item.a.mean(LIMIT, kind), item.b.mean(LIMIT, kind)]
    first, *others = (_said(item, measure, kind) for measure in item.measures)
    against = first
    for other in others:
        against = written("leak.and", first=against, second=other)
    ends = {"limit_a": say_leak(LIMIT, limits[0]), "limit_b": say_leak(LIMIT, limits[1], unit=True)}
    how = written("leak.over_seeds") if item.seeds else written("leak.one_seed")
    return finding("nats_disagree", a=item.a.label, b=item.b.label, **ends, against=against, how=how)


def _said(item: Contradiction, measure: str, kind: AuditKind | None) -> Sentence:
    """What one measure says instead."""
    return written(
        "leak.against",
        measure=written(f"measure.{measure}"),
        value_a=say_leak(measure, item.a.mean(measure, kind)),
        value_b=say_leak(measure, item.b.mean(measure, kind), unit=True),
    )
