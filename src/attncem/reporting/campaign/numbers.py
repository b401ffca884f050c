"""What a campaign's numbers say: each arm over its seeds, which arms have lost their use, what forbids comparing."""

from __future__ import annotations

import statistics as plain
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from attncem.records.audit import AuditResult
from attncem.records.comparison import Comparison
from attncem.records.findings import unique
from attncem.records.metrics import METRICS
from attncem.records.study import ACCURACY, AuditKind, Spread
from attncem.reporting.campaign.load import MEASURES, Judged, JudgedArm
from attncem.reporting.runs.health import comparison_findings, is_useless


@dataclass(frozen=True)
class ArmRow:
    """One arm under one kind of audit; ``attack`` is the strongest one of most seeds."""

    arm: JudgedArm
    spreads: Mapping[str, Spread]
    attack: str
    unreliable: int

    @property
    def count(self) -> int:
        """Seeds with a result."""
        return max((spread.seeds.count for spread in self.spreads.values()), default=0)


def arm_rows(study: Judged, kind: AuditKind) -> list[ArmRow]:
    """Every arm at every point, also those without a result yet."""
    return [_arm_row(arm, kind) for arm in study.arms]


def _arm_row(arm: JudgedArm, kind: AuditKind) -> ArmRow:
    spreads = {measure: spread for measure in MEASURES if (spread := arm.summary(measure, kind))}
    attacks = Counter(audit.strongest for audit in arm.attacked(kind))
    return ArmRow(arm, spreads, attacks.most_common(1)[0][0] if attacks else "", arm.unreliable(kind))


def lost(study: Judged, kind: AuditKind) -> set[str]:
    """Labels of arms that have lost their use: at least half of their seeds are near chance or far below the best arm.

    Nothing that such a model hides is privacy.
    """
    best: dict[str, float] = {}
    for arm, _, audit in study.pairs(kind):
        accuracies = arm.values(ACCURACY, kind)
        mean = plain.fmean(accuracies) if accuracies else 0.0
        best[audit.subject.dataset] = max(best.get(audit.subject.dataset, 0.0), mean)
    useless: dict[str, list[bool]] = {}
    for arm, _, audit in study.pairs(kind):
        useless.setdefault(arm.label, []).append(is_useless(audit, best[audit.subject.dataset]))
    return {label for label, seeds in useless.items() if 2 * sum(seeds) >= len(seeds)}


def cautions(study: Judged, kind: AuditKind) -> list[str]:
    """What forbids comparing arms: other images, suites or devices within the same seed."""
    by_seed: dict[int, list[AuditResult]] = {}
    for _, cell, audit in study.pairs(kind):
        by_seed.setdefault(cell.seed, []).append(audit)
    findings = [item for audits in by_seed.values() for item in comparison_findings(audits)]
    return [item.text for item in unique(findings)]


def is_better(comparison: Comparison) -> bool | None:
    """Whether the first arm is the better one (more accurate, or less recovered); None where nothing is shown."""
    if comparison.verdict not in ("a_higher", "b_higher"):
        return None
    wanted = "higher" if comparison.measure == ACCURACY else METRICS[comparison.measure].private
    return (comparison.verdict == "a_higher") == (wanted == "higher")
