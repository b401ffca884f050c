"""Reads a campaign folder for its report: study, plan, the arms' portraits, and arms that lost their utility."""

from __future__ import annotations

import math
import statistics as plain
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from attncem.base.texts import text
from attncem.base.types import AttncemError
from attncem.records.audit import AuditResult
from attncem.records.campaign import CampaignPlan
from attncem.records.campaign_folder import CampaignFolder
from attncem.records.comparison import SeedSummary
from attncem.records.files import read_record
from attncem.records.metrics import shown_in
from attncem.records.portrait import PORTRAIT, Portrait
from attncem.records.study import ACCURACY, Arm, AuditKind, Cell, Study
from attncem.records.study.campaign import short_value, study_of_campaign
from attncem.reporting.runs.health import is_useless

ERRORS = shown_in("compared")
"""Measures of the strongest attack that arms are compared by; the first one ranks attacks."""
MEASURES = (ACCURACY, *ERRORS)
Judged = Study[AuditResult]
JudgedArm = Arm[AuditResult]
JudgedCell = Cell[AuditResult]


@dataclass(frozen=True)
class CampaignView:
    """The data of a campaign's report; ``portraits`` and ``alone``, the references of the arms, are by arm label."""

    path: Path
    plan: CampaignPlan
    study: Judged
    portraits: Mapping[str, Portrait]
    problems: list[str]


def load_campaign(path: Path) -> CampaignView:
    """Read a campaign, finished or not; RunError if the folder is none. An arm's portrait is of its first seed."""
    folder = CampaignFolder.open(path)
    study = study_of_campaign(folder)
    problems = list(study.problems)
    portraits: dict[str, Portrait] = {}
    for arm in study.arms:
        for cell in arm.cells:
            file = cell.path / PORTRAIT
            if arm.label in portraits or not file.is_file():
                continue
            try:
                portraits[arm.label] = read_record(Portrait, file)
            except AttncemError as error:
                problems.append(text("arms.problem", cell=cell.id, reason=str(error)))
    return CampaignView(folder.path, folder.plan, study, portraits, problems)


def compared(study: Judged, kind: AuditKind) -> tuple[str, ...]:
    """The measures that arms are compared by: accuracy, errors, and the numbers of the leak that any arm has."""
    return (*MEASURES, *study.leaks(kind))


def point_words(study: Judged) -> dict[str, str]:
    """The values of the grid that tell the points of one method apart, by label; empty for a method with one point."""
    words = {}
    for arm in study.arms:
        points = [other.point for other in study.arms if other.name == arm.name]
        varied = [key for key in arm.point if len({repr(point.get(key)) for point in points}) > 1]
        words[arm.label] = ", ".join(short_value(arm.point[key]) for key in varied)
    return words


def drawn_interval(seeds: SeedSummary) -> tuple[float, float] | None:
    """The interval over seeds that figures draw: Student's, but for two seeds their range; None for one seed.

    Student's factor for two seeds is 12.7: such a bar would hide all other points.
    """
    if seeds.low is None or seeds.high is None or seeds.sd is None:
        return None
    half = seeds.sd / math.sqrt(2)  # of two values, half their distance
    return (seeds.mean - half, seeds.mean + half) if seeds.count == 2 else (seeds.low, seeds.high)


def training_seconds(arm: JudgedArm) -> list[float]:
    """Training time of each finished seed."""
    return [cell.training_seconds for cell in arm.cells if cell.training_seconds is not None]


def lost(study: Judged, kind: AuditKind) -> set[str]:
    """Labels of arms that lost their utility: at least half of their seeds are near chance or far below the best arm.

    A high attack error on such a model is not privacy.
    """
    best: dict[str, float] = {}
    for arm in study.arms:
        accuracy = plain.fmean(arm.values(ACCURACY, kind) or [0.0])
        for audit in arm.audits(kind):
            best[audit.subject.dataset] = max(best.get(audit.subject.dataset, 0.0), accuracy)
    labels = set()
    for arm in study.arms:
        useless = [is_useless(audit, best[audit.subject.dataset]) for audit in arm.audits(kind)]
        if useless and 2 * sum(useless) >= len(useless):
            labels.add(arm.label)
    return labels
