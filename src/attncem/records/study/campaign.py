"""A campaign's folder as a study of its finished audits. An unreadable file becomes a problem."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attncem.base.texts import text
from attncem.base.types import AttncemError
from attncem.records.audit import AuditResult
from attncem.records.campaign_folder import CampaignFolder, CellView
from attncem.records.runs import RunDirectory
from attncem.records.study.arms import A, Arm, Cell, RunFacts, Study
from attncem.records.study.keys import newest


def study_of_campaign(folder: CampaignFolder) -> Study[AuditResult]:
    """Cells of the same arm and point, in the order of the plan, arm by arm."""
    problems: list[str] = []
    cells = [(view.cell.arm, view.cell.point, _cell(folder, view, problems)) for view in folder.views()]
    return Study(grouped(cells), problems)


def grouped(cells: Iterable[tuple[str, Mapping[str, Any], Cell[A]]]) -> list[Arm[A]]:
    """Cells with the names and points of their arms, grouped into arms in the order of their first cells."""
    methods: dict[str, dict[str, list[tuple[Mapping[str, Any], Cell[A]]]]] = {}
    for name, point, cell in cells:
        methods.setdefault(name, {}).setdefault(repr(point), []).append((point, cell))
    arms = []
    for color, (name, groups) in enumerate(methods.items()):
        points = [group[0][0] for group in groups.values()]
        for point, label, group in zip(points, labels(name, points), groups.values(), strict=True):
            arms.append(Arm(name, label, color, [cell for _, cell in group], point))
    return arms


def _cell(folder: CampaignFolder, view: CellView, problems: list[str]) -> Cell[AuditResult]:
    """A cell with its finished audits: with half of its attacks, an audit shows less leakage than there is."""
    manifest: Mapping[str, Any] = {}
    audits: list[AuditResult] = []
    whole: list[AuditResult] = []
    try:
        if (view.path / "manifest.json").exists():
            manifest = RunDirectory.open(view.path).manifest
            recorded = set(folder.finished(view.cell.id).audits.values())
            audits = view.audits()
            whole = [audit for audit in audits if Path(audit.folder).name in recorded or _has_all_rows(audit)]
    except AttncemError as error:
        problems.append(text("arms.problem", cell=view.cell.id, reason=str(error)))
    kinds = newest(whole, lambda audit: audit.plan)
    run = RunFacts(view.path, view.cell.id, manifest)
    unfinished = len(audits) - len(whole)
    return Cell(view.cell.id, view.cell.seed, kinds, run, view.state, view.reason, unfinished=unfinished)


def _has_all_rows(audit: AuditResult) -> bool:
    """Whether every row of the suite is there and none failed."""
    return {row.name for row in audit.rows if row.outcome != "failed"}.issuperset(audit.plan.rows)


def labels(name: str, points: Sequence[Mapping[str, Any]]) -> list[str]:
    """The method and its grid point: the ends of keys and short values, or the full ones where these are ambiguous."""
    varied = [key for key in points[0] if len({repr(point.get(key)) for point in points}) > 1]
    if not varied:
        return [name] * len(points)
    ends = [key.rsplit(".", 1)[-1] for key in varied]
    shown = ends if len(set(ends)) == len(ends) else varied
    short = [_place(point, shown, varied, short_value) for point in points]
    unique = short if len(set(short)) == len(short) else [_place(point, shown, varied, repr) for point in points]
    return [f"{name} ({words})" for words in unique]


def _place(point: Mapping[str, Any], names: Sequence[str], keys: Sequence[str], write: Callable[[Any], str]) -> str:
    return ", ".join(f"{name}={write(point.get(key))}" for name, key in zip(names, keys, strict=True))


def short_value(value: Any) -> str:
    """A grid value in its shortest form."""
    return f"{value:g}" if isinstance(value, float) else str(value)
