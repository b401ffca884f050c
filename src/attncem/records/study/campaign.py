"""A campaign's folder as a study. An unreadable file becomes a problem; everything else is included."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from attncem.base.texts import text
from attncem.base.types import AttncemError
from attncem.records.audit import AuditResult
from attncem.records.campaign_folder import CampaignFolder, CellView
from attncem.records.runs import RunDirectory
from attncem.records.study.arms import A, Arm, Cell, RunFacts, Study
from attncem.records.study.keys import AuditKind, newest


def study_of_campaign(folder: CampaignFolder) -> Study[AuditResult]:
    """Cells of the same arm and point, in the order of the plan, arm by arm."""
    problems: list[str] = []
    cells = [(view.cell.arm, view.cell.point, _cell(view, problems)) for view in folder.views()]
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


def _cell(view: CellView, problems: list[str]) -> Cell[AuditResult]:
    manifest: Mapping[str, Any] = {}
    audits: dict[AuditKind, AuditResult] = {}
    try:
        if (view.path / "manifest.json").exists():
            manifest = RunDirectory.open(view.path).manifest
            audits = newest(view.audits(), lambda audit: audit.plan)
    except AttncemError as error:
        problems.append(text("arms.problem", cell=view.cell.id, reason=str(error)))
    run = RunFacts(view.path, view.cell.id, manifest)
    return Cell(view.cell.id, view.cell.seed, audits, run, view.state, view.reason)


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
