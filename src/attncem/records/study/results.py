"""A committed file of results as a study, with the audits in that file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from attncem.base.types import RunError
from attncem.config.threats import THREATS
from attncem.records.campaign_table import AskedAudit, CampaignTable, CellAudit, CellResult, Ends
from attncem.records.study.arms import Cell, Study
from attncem.records.study.campaign import grouped
from attncem.records.study.keys import AuditKind, numbered


def study_of_results(table: CampaignTable, *, balanced: bool = False) -> Study[CellAudit]:
    """Every arm at every point, in the order of the file; the campaign's first audit leads.

    ``balanced``: the balanced accuracy, which gives every class the same weight, replaces the accuracy; RunError where
    a cell has none.
    """
    return Study(grouped(_cells(table, balanced=balanced)))


def _cells(table: CampaignTable, *, balanced: bool) -> Iterator[tuple[str, Mapping[str, Any], Cell[CellAudit]]]:
    alike = numbered(_kind(table, asked) for asked in table.audits)
    kinds = [replace(kind, weights=_weights(asked)) for kind, asked in zip(alike, table.audits, strict=True)]
    for cell in table.cells:
        audits = [_balanced(table, cell, audit) for audit in cell.audits] if balanced else cell.audits
        by_kind = dict(zip(kinds, audits, strict=False))
        collapsed = "near_chance" in (cell.warnings or ())
        name, alone = _name(table, cell), {images: Ends(*value) for images, value in (cell.alone or {}).items()}
        kind: dict[str, Any] = {"on_device": cell.alone is not None, "alone": alone}
        yield cell.arm, cell.point, Cell(name, cell.seed, by_kind, collapsed=collapsed, **kind)


def _name(table: CampaignTable, cell: CellResult) -> str:
    return f"{table.campaign}: {cell.arm} with seed {cell.seed}"


def _kind(table: CampaignTable, asked: AskedAudit) -> AuditKind:
    """The kind of an audit; files that do not name the adversary are from versions with a single one."""
    suite, _, version = (asked.suite or "").partition(" v")
    threat = asked.adversary or THREATS.get(asked.threat or "train")
    if threat is None:
        raise RunError(f"{table.campaign}: the adversary {asked.threat} is unknown; known are {', '.join(THREATS)}")
    return AuditKind(suite, int(version) if version else None, (), asked.evaluation or "", threat)


def _weights(asked: AskedAudit) -> str:
    """The weights of an audit where they are not the best ones."""
    return "" if asked.weights in (None, "best") else str(asked.weights)


def _balanced(table: CampaignTable, cell: CellResult, audit: CellAudit) -> CellAudit:
    if audit.balanced_accuracy is None:
        raise RunError(f"{_name(table, cell)} has no balanced accuracy")
    return replace(audit, accuracy=[audit.balanced_accuracy])
