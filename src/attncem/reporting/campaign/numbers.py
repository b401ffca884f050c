"""What a campaign's numbers say: each arm over its seeds, tests against a reference arm, the front."""

from __future__ import annotations

import statistics as plain
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attncem.records.audit import AuditResult, Score
from attncem.records.comparison import Comparison, FrontPoint, SeedSummary
from attncem.records.findings import unique
from attncem.records.metrics import METRICS
from attncem.records.statistics import adjust, compare_arms, pareto, seed_summary
from attncem.reporting.campaign.load import ACCURACY, ERRORS, CampaignView, CellEntry, Group
from attncem.reporting.runs.health import comparison_findings, is_useless

MEASURES = (ACCURACY, *ERRORS)


@dataclass(frozen=True)
class Spread:
    """One number of an arm: over its seeds, and over the images (ends of the intervals, averaged over the seeds)."""

    seeds: SeedSummary
    image_low: float
    image_high: float


@dataclass(frozen=True)
class ArmRow:
    """One arm at one point under one kind of audit; ``attack`` is the strongest one of most seeds."""

    group: Group
    spreads: Mapping[str, Spread]
    attack: str
    unreliable: int

    @property
    def count(self) -> int:
        """Seeds with a result."""
        return max((spread.seeds.count for spread in self.spreads.values()), default=0)


def arm_rows(view: CampaignView, kind: str) -> list[ArmRow]:
    """Every arm at every point, also those without a result yet."""
    return [_arm_row(group, kind) for group in view.groups]


def _arm_row(group: Group, kind: str) -> ArmRow:
    spreads = {measure: found for measure in MEASURES if (found := spread(group.cells, kind, measure))}
    audits = [audit for entry in group.cells if (audit := entry.audits.get(kind)) and audit.strongest]
    attacks = Counter(audit.strongest for audit in audits)
    unreliable = sum(not audit.strongest_attack.verdict.reliable for audit in audits)
    return ArmRow(group, spreads, attacks.most_common(1)[0][0] if attacks else "", unreliable)


def spread(cells: Sequence[CellEntry], kind: str, measure: str) -> Spread | None:
    """A measure over seeds and over images; None where no seed has it."""
    return of_scores([score for entry in cells if (score := entry.score(kind, measure)) is not None])


def of_scores(scores: Sequence[Score]) -> Spread | None:
    """One score a seed, together."""
    if not scores:
        return None
    low, high = plain.fmean(score.low for score in scores), plain.fmean(score.high for score in scores)
    return Spread(seed_summary([score.mean for score in scores]), low, high)


# honesty


def lost(view: CampaignView, kind: str) -> set[str]:
    """Labels of arms that have lost their use: at least half of their seeds are near chance or far below the best arm.

    Nothing that such a model hides is privacy.
    """
    best: dict[str, float] = {}
    for group, _, audit in view.pairs(kind):
        accuracies = group.values(kind, ACCURACY)
        own = plain.fmean(accuracies) if accuracies else 0.0
        best[audit.subject.dataset] = max(best.get(audit.subject.dataset, 0.0), own)
    found: dict[str, list[bool]] = {}
    for group, _, audit in view.pairs(kind):
        found.setdefault(group.label, []).append(is_useless(audit, best[audit.subject.dataset]))
    return {label for label, own in found.items() if 2 * sum(own) >= len(own)}


def cautions(view: CampaignView, kind: str) -> list[str]:
    """What forbids comparing arms: other images, suites or devices within the same seed."""
    by_seed: dict[int, list[AuditResult]] = {}
    for _, entry, audit in view.pairs(kind):
        by_seed.setdefault(entry.cell.seed, []).append(audit)
    found = [item for own in by_seed.values() for item in comparison_findings(own)]
    return [item.text for item in unique(found)]


# tests


def against(view: CampaignView, kind: str, reference: str) -> dict[tuple[str, str], Comparison]:
    """Every arm against the reference arm, by label and measure, with false discoveries controlled over them all.

    An arm is compared with the reference at the same point of the grid, as far as both know its keys.
    """
    found = []
    for group in view.groups:
        other = counterpart(view, group, reference)
        if other is None or group.arm == reference:
            continue
        for measure in MEASURES:
            own, beside = group.values(kind, measure), other.values(kind, measure)
            if own and beside:
                found.append(compare_arms(own, beside, a=group.label, b=other.label, measure=measure))
    return {(item.a, item.measure): item for item in adjust(found)}


def counterpart(view: CampaignView, group: Group, reference: str) -> Group | None:
    """The reference arm at the group's point: the first of its groups that agrees in every key both have."""
    of_arm = [other for other in view.groups if other.arm == reference]
    return next((other for other in of_arm if _agree(group, other)), None)


def _agree(one: Group, other: Group) -> bool:
    return all(repr(one.point[key]) == repr(other.point[key]) for key in one.point.keys() & other.point.keys())


def is_better(comparison: Comparison) -> bool | None:
    """Whether the first arm is the better one (more accurate, or less recovered); None where nothing is shown."""
    if comparison.verdict not in ("a_higher", "b_higher"):
        return None
    wanted = "higher" if comparison.measure == ACCURACY else METRICS[comparison.measure].private
    return (comparison.verdict == "a_higher") == (wanted == "higher")


# the front


def front(view: CampaignView, kind: str, measure: str) -> dict[str, FrontPoint]:
    """Where each arm stands between accuracy and this error, by label; the seeds that have both count."""
    sign = 1.0 if METRICS[measure].private == "higher" else -1.0
    points = {}
    for group in view.groups:
        both = [(entry.score(kind, ACCURACY), entry.score(kind, measure)) for entry in group.cells]
        pairs = [(one.mean, sign * other.mean) for one, other in both if one is not None and other is not None]
        if pairs:
            points[group.label] = pairs
    return {point.name: point for point in pareto(points)}


# sensitivity


@dataclass(frozen=True)
class Effect:
    """One arm at one value of a grid's key: a measure over seeds, the other keys averaged within each seed."""

    value: object
    summary: SeedSummary


def effects(view: CampaignView, kind: str, arm: str, key: str, measure: str) -> list[Effect]:
    """How a measure changes with a key. Of the other keys only those points count that a seed has at every value."""
    table: dict[tuple[int, str], dict[str, float]] = {}
    values: dict[str, object] = {}
    for group in (group for group in view.groups if group.arm == arm and key in group.point):
        values[repr(group.point[key])] = group.point[key]
        rest = repr({name: value for name, value in group.point.items() if name != key})
        for entry in group.cells:
            if score := entry.score(kind, measure):
                table.setdefault((entry.cell.seed, rest), {})[repr(group.point[key])] = score.mean
    present = {name for row in table.values() for name in row}
    whole = {place: row for place, row in table.items() if row.keys() == present}
    found = []
    for name in (name for name in values if name in present):
        by_seed: dict[int, list[float]] = {}
        for (seed, _), row in whole.items():
            by_seed.setdefault(seed, []).append(row[name])
        if by_seed:
            found.append(Effect(values[name], seed_summary([plain.fmean(own) for own in by_seed.values()])))
    return found


def heat(view: CampaignView, kind: str, arm: str, keys: tuple[str, str], measure: str) -> dict[tuple[str, str], float]:
    """The mean of a measure at every pair of values of two keys, over everything else; by their repr."""
    found: dict[tuple[str, str], list[float]] = {}
    for group in (group for group in view.groups if group.arm == arm and set(keys) <= group.point.keys()):
        place = repr(group.point[keys[0]]), repr(group.point[keys[1]])
        found.setdefault(place, []).extend(group.values(kind, measure))
    return {place: plain.fmean(own) for place, own in found.items() if own}
