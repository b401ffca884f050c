"""A campaign's folder → what its report shows. What cannot be read is told, and all the rest is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attncem.base.texts import text
from attncem.base.types import AttncemError
from attncem.config.options.campaigns import Campaign
from attncem.records.audit import AuditPlan, AuditResult, Row, Score
from attncem.records.campaign import CampaignPlan, Cell
from attncem.records.campaign_folder import CampaignFolder, CellView
from attncem.records.files import read_record
from attncem.records.portrait import PORTRAIT, Portrait
from attncem.records.runs import RunDirectory

ACCURACY = "accuracy"
ERRORS = ("mse", "structure", "ssim")
"""Measures of the strongest attack that arms are compared by; the first one ranks attacks."""


@dataclass(frozen=True)
class CellEntry:
    """One cell: how far it is, its newest audit of each kind, and its run's manifest (empty where there is none)."""

    view: CellView
    audits: Mapping[str, AuditResult] = field(default_factory=dict)
    manifest: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cell(self) -> Cell:
        """What it is."""
        return self.view.cell

    def score(self, kind: str, measure: str) -> Score | None:
        """The accuracy, or a measure of the strongest attack, in the audit of this kind; None where it is not there."""
        audit = self.audits.get(kind)
        if audit is None:
            return None
        if measure == ACCURACY:
            return audit.accuracy
        return audit.strongest_attack.scores.get(measure) if audit.strongest else None

    def row(self, kind: str, name: str) -> Row | None:
        """An audit's row that has a result."""
        audit = self.audits.get(kind)
        return next((row for row in audit.attacks if row.name == name), None) if audit else None

    @property
    def epochs(self) -> int | None:
        """How many epochs it was asked to train; None where its configuration cannot be read."""
        try:
            return RunDirectory.open(self.view.path).config.training.epochs
        except AttncemError:
            return None

    @property
    def training_seconds(self) -> float | None:
        """How long its training took; None where it is not finished."""
        seconds = self.manifest.get("training_seconds")
        return float(seconds) if isinstance(seconds, int | float) and seconds > 0 else None


@dataclass(frozen=True)
class Group:
    """An arm at one point of its grid: cells that differ by their seed alone. ``color`` is its arm's place."""

    arm: str
    point: Mapping[str, Any]
    label: str
    color: int
    cells: Sequence[CellEntry]

    def values(self, kind: str, measure: str) -> list[float]:
        """One number a seed, of those that have one."""
        found = (entry.score(kind, measure) for entry in self.cells)
        return [score.mean for score in found if score is not None]

    def first(self, kind: str) -> CellEntry | None:
        """The first seed that an audit of this kind has a strongest attack of."""
        return next((entry for entry in self.cells if (audit := entry.audits.get(kind)) and audit.strongest), None)


@dataclass(frozen=True)
class CampaignView:
    """A campaign as its report sees it. ``kinds`` are the audits it has, by what tells them apart, the first one leads.

    ``problems`` are sentences about files that could not be read.
    """

    path: Path
    plan: CampaignPlan
    campaign: Campaign
    groups: Sequence[Group]
    kinds: Sequence[str]
    portraits: Mapping[str, Portrait]
    problems: Sequence[str]

    @property
    def arms(self) -> list[str]:
        """The arms in the order they were asked for."""
        return list(dict.fromkeys(group.arm for group in self.groups))

    @property
    def cells(self) -> list[CellEntry]:
        """All cells, arm by arm."""
        return [entry for group in self.groups for entry in group.cells]

    @property
    def keys(self) -> list[str]:
        """Keys of the grids that take more than one value."""
        seen: dict[str, set[str]] = {}
        for group in self.groups:
            for key, value in group.point.items():
                seen.setdefault(key, set()).add(repr(value))
        return [key for key, values in seen.items() if len(values) > 1]

    def pairs(self, kind: str) -> Iterator[tuple[Group, CellEntry, AuditResult]]:
        """Every cell that has an audit of this kind."""
        for group in self.groups:
            for entry in group.cells:
                if kind in entry.audits:
                    yield group, entry, entry.audits[kind]


def load_campaign(path: Path) -> CampaignView:
    """Read a campaign; RunError where the folder is none, else whatever is there."""
    folder = CampaignFolder.open(path)
    problems: list[str] = []
    entries = [_entry(view, problems) for view in folder.views()]
    groups = _groups(entries)
    kinds = list(dict.fromkeys(kind for entry in entries for kind in entry.audits))
    portraits = {group.label: found for group in groups if (found := _portrait(group, problems))}
    return CampaignView(folder.path, folder.plan, folder.campaign, groups, kinds, portraits, problems)


def _entry(view: CellView, problems: list[str]) -> CellEntry:
    manifest: Mapping[str, Any] = {}
    audits: list[AuditResult] = []
    try:
        if (view.path / "manifest.json").exists():
            manifest = RunDirectory.open(view.path).manifest
            audits = view.audits()
    except AttncemError as error:
        problems.append(text("arms.problem", cell=view.cell.id, reason=str(error)))
    return CellEntry(view, {kind_of(audit.plan): audit for audit in audits}, manifest)


def kind_of(plan: AuditPlan) -> str:
    """What tells audits of one campaign apart, in a few words; two of one kind are the older and the newer."""
    releases = plan.threat.releases_per_input
    asked = [text("arms.kind.releases", count=releases)] if releases > 1 else []
    return " · ".join([plan.suite, plan.threat.name, plan.evaluation, *asked, *plan.changed])


def _groups(entries: Sequence[CellEntry]) -> list[Group]:
    """Cells of the same arm and point, in the order of the plan, arm by arm."""
    found: dict[str, dict[str, list[CellEntry]]] = {}
    for entry in entries:
        found.setdefault(entry.cell.arm, {}).setdefault(repr(entry.cell.point), []).append(entry)
    groups = []
    for color, (arm, points) in enumerate(found.items()):
        first = [cells[0].cell.point for cells in points.values()]
        varied = [key for key in first[0] if len({repr(point.get(key)) for point in first}) > 1]
        labels = _labels(arm, first, varied)
        for point, label, cells in zip(first, labels, points.values(), strict=True):
            groups.append(Group(arm, point, label, color, cells))
    return groups


def _labels(arm: str, points: Sequence[Mapping[str, Any]], varied: Sequence[str]) -> list[str]:
    """The arm, and where in its grid: the ends of keys and short values, whole ones where these are not enough."""
    if not varied:
        return [arm] * len(points)
    ends = [key.rsplit(".", 1)[-1] for key in varied]
    names = ends if len(set(ends)) == len(ends) else varied
    short = [_said(point, names, varied, shown) for point in points]
    said = short if len(set(short)) == len(short) else [_said(point, names, varied, repr) for point in points]
    return [f"{arm} ({words})" for words in said]


def _said(point: Mapping[str, Any], names: Sequence[str], keys: Sequence[str], write: Callable[[Any], str]) -> str:
    return ", ".join(f"{name}={write(point.get(key))}" for name, key in zip(names, keys, strict=True))


def shown(value: Any) -> str:
    """A value of a grid as short as it can be written."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _portrait(group: Group, problems: list[str]) -> Portrait | None:
    """The portrait of the first seed that has one."""
    for entry in group.cells:
        file = entry.view.path / PORTRAIT
        if file.is_file():
            try:
                return read_record(Portrait, file)
            except AttncemError as error:
                problems.append(text("arms.problem", cell=entry.cell.id, reason=str(error)))
    return None


def records(entry: CellEntry) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl; none where it cannot be read."""
    try:
        return RunDirectory.open(entry.view.path).records()
    except AttncemError:
        return []
