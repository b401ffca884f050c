"""A campaign's folder as a study of its finished audits. An unreadable file becomes a problem."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attncem.base.texts import text
from attncem.base.types import AttncemError
from attncem.records.audit import AuditResult
from attncem.records.campaign_folder import CampaignFolder, CellView
from attncem.records.on_device import read_choice
from attncem.records.runs import RunDirectory
from attncem.records.score import Score
from attncem.records.study.arms import A, Arm, Cell, RunFacts, Study
from attncem.records.study.keys import newest


def study_of_campaign(folder: CampaignFolder) -> Study[AuditResult]:
    """Cells of the same arm and point, in the order of the plan, arm by arm."""
    problems: list[str] = []
    cells = [(view.cell.arm, view.cell.point, _cell(folder, view, problems)) for view in folder.views()]
    return Study(grouped(cells), problems)


def grouped(cells: Iterable[tuple[str, Mapping[str, Any], Cell[A]]]) -> list[Arm[A]]:
    """Cells with the names and points of their arms, grouped into arms in the order of their first cells.

    Of the candidates of a client alone with one seed, the chosen one is the arm's cell; until then it is the first.
    """
    methods: dict[str, dict[str, list[tuple[Mapping[str, Any], Cell[A]]]]] = {}
    candidates: dict[str, dict[int, list[Cell[A]]]] = {}
    for name, point, cell in cells:
        if cell.on_device:
            candidates.setdefault(name, {}).setdefault(cell.seed, []).append(cell)
        place: Mapping[str, Any] = {} if cell.on_device else point
        methods.setdefault(name, {}).setdefault(repr(place), []).append((place, cell))
    arms = []
    for color, (name, groups) in enumerate(methods.items()):
        points = [group[0][0] for group in groups.values()]
        for point, label, group in zip(points, labels(name, points), groups.values(), strict=True):
            members = [cell for _, cell in group]
            chosen = [_chosen(of_seed) for of_seed in candidates[name].values()] if name in candidates else members
            others = [cell for cell in members if not any(cell is one for one in chosen)]
            arms.append(Arm(name, label, color, chosen, point, others))
    return arms


def _chosen(candidates: Sequence[Cell[A]]) -> Cell[A]:
    """The chosen one of the candidates with one seed, which alone has accuracies."""
    return next((cell for cell in candidates if cell.alone), candidates[0])


def _cell(folder: CampaignFolder, view: CellView, problems: list[str]) -> Cell[AuditResult]:
    """A cell with its finished audits: with half of its attacks, an audit shows less leakage than there is."""
    manifest: Mapping[str, Any] = {}
    audits: list[AuditResult] = []
    whole: list[AuditResult] = []
    alone: Mapping[str, Score] = {}
    try:
        if (view.path / "manifest.json").exists():
            manifest = RunDirectory.open(view.path).manifest
            alone = choice.scores if (choice := read_choice(RunDirectory.open(view.path))) else {}
            recorded = set(folder.finished(view.cell.id).audits.values())
            audits = view.audits()
            whole = [audit for audit in audits if Path(audit.folder).name in recorded or _has_all_rows(audit)]
    except AttncemError as error:
        problems.append(text("arms.problem", cell=view.cell.id, reason=str(error)))
    kinds = newest(whole, lambda audit: audit.plan)
    run = RunFacts(view.path, view.cell.id, manifest)
    unfinished = len(audits) - len(whole)
    kind: dict[str, Any] = {"on_device": view.cell.budget is not None, "alone": alone}
    return Cell(view.cell.id, view.cell.seed, kinds, run, view.state, view.reason, unfinished=unfinished, **kind)


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
