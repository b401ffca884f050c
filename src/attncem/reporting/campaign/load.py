"""A campaign's folder → what its report shows: its study, its plan and the portraits of its arms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from attncem.base.texts import text
from attncem.base.types import AttncemError
from attncem.records.audit import AuditResult
from attncem.records.campaign import CampaignPlan
from attncem.records.campaign_folder import CampaignFolder
from attncem.records.files import read_record
from attncem.records.metrics import shown_in
from attncem.records.portrait import PORTRAIT, Portrait
from attncem.records.study import ACCURACY, Arm, Cell, Study
from attncem.records.study.campaign import study_of_campaign

ERRORS = shown_in("compared")
"""Measures of the strongest attack that arms are compared by; the first one ranks attacks."""
MEASURES = (ACCURACY, *ERRORS)
Judged = Study[AuditResult]
JudgedArm = Arm[AuditResult]
JudgedCell = Cell[AuditResult]


@dataclass(frozen=True)
class CampaignView:
    """A campaign as its report sees it; ``portraits`` are by the labels of arms."""

    path: Path
    plan: CampaignPlan
    study: Judged
    portraits: Mapping[str, Portrait]
    problems: list[str]


def load_campaign(path: Path) -> CampaignView:
    """Read a campaign; RunError where the folder is none, else whatever is there."""
    folder = CampaignFolder.open(path)
    study = study_of_campaign(folder)
    problems = list(study.problems)
    portraits = {arm.label: portrait for arm in study.arms if (portrait := _portrait(arm, problems))}
    return CampaignView(folder.path, folder.plan, study, portraits, problems)


def _portrait(arm: JudgedArm, problems: list[str]) -> Portrait | None:
    """The portrait of the first seed that has one."""
    for cell in arm.cells:
        file = cell.path / PORTRAIT
        if file.is_file():
            try:
                return read_record(Portrait, file)
            except AttncemError as error:
                problems.append(text("arms.problem", cell=cell.id, reason=str(error)))
    return None
