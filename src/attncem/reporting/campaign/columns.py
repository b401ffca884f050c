"""Columns that tables of a campaign share: each with its title and the function that makes its entry from a row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from attncem.base.texts import text
from attncem.records.leaks import LEAKS, private_of, unit_of
from attncem.records.metrics import METRICS
from attncem.records.study import ACCURACY, AuditKind, Spread
from attncem.reporting import sending
from attncem.reporting import table_formats as made
from attncem.reporting.campaign.load import ERRORS, Judged, JudgedArm, JudgedCell
from attncem.reporting.runs import leaks
from attncem.reporting.table_formats import SPREAD, Column, Item, R

WORDS = (
    *("arm", "attack", "cell", "state", "reason", "audit", "reference", "measure", "verdict", "key", "class"),
    "standing",
)
"""Columns of words; their titles, as those of all columns, are in the catalogue, under `arms.column.NAME`."""


def field(key: str, entry: Callable[[R], Item], more: Sequence[str] = ()) -> made.Field[R]:
    """A column with its title from the catalogue, and the function that makes its entry from a row."""
    if key in METRICS or key in LEAKS:
        unit = unit_of(key) if key in LEAKS else ""
        private = private_of(key)
        note = ", ".join(filter(None, (unit, private and text(f"report.private.{private}"))))
        title = text(f"measure.{key}")
        card = text("leak.in_unit", title=title, unit=unit) if unit else ""
        return Column(key, title, note, more=more, card=card), entry
    return Column(key, text(f"arms.column.{key}"), words=key in WORDS, more=more), entry


def spread_field(measure: str, spread: Callable[[R, str], Spread | None]) -> made.Field[R]:
    """A measure over seeds; ``spread`` takes the row and the measure."""
    return field(measure, lambda row: made.spread_item(measure, spread(row, measure)), SPREAD)


def over_seeds(kind: AuditKind) -> Callable[[JudgedArm, str], Spread | None]:
    """A function that returns an arm's measure over seeds."""
    return lambda arm, measure: arm.summary(measure, kind)


def leak_field(measure: str, kind: AuditKind) -> made.Field[JudgedArm]:
    """A number of the leak over seeds, or the command that measures it."""

    def entry(arm: JudgedArm) -> Item:
        return made.leak_item(measure, arm.leaks(measure, kind), leak_missing(arm, measure, kind))

    return field(measure, entry, made.leak_more(measure))


def leak_missing(arm: JudgedArm, measure: str, kind: AuditKind | None) -> str:
    """How to measure a number of the leak on the arm's first seed, or why it has none; empty where it has no audit."""
    cell = next((cell for cell in arm.cells if cell.audit(kind)), None)
    return "" if cell is None else leaks.missing(cell.alike(kind), cell_place(cell), measure)


def cell_place(cell: JudgedCell) -> str:
    """The folder of a cell's run, from the folder that holds the campaign: CAMPAIGN/runs/CELL."""
    return "/".join(cell.path.parts[-3:])


def arm_item(arm: JudgedArm, **other: Any) -> Item:
    """The arm's name in its colour."""
    return Item(arm.label, arm.label, color=arm.color, **other)


def arm_notes(study: Judged, kind: AuditKind, useless: Collection[str]) -> dict[str, str]:
    """The notes beside the names of arms, by label: that the utility is lost, or which images its numbers are for."""
    notes = {}
    for arm in study.arms:
        lost = [text("arms.lost")] if arm.label in useless else []
        notes[arm.label] = "; ".join(filter(None, [*lost, sending.mark(arm.audits(kind))]))
    return notes


def unlike(study: Judged, kind: AuditKind) -> tuple[str, ...]:
    """Measures in which no arm is marked as the best: errors are of other images where a client sends only some."""
    some = any(sending.facts_in(arm.audits(kind)) for arm in study.arms)
    return (*ERRORS, "mse_most", "structure_most") if some else ()


def measure_title(measure: str) -> str:
    """The title of an error, or of the accuracy."""
    return text("arms.column.accuracy") if measure == ACCURACY else text(f"measure.{measure}")


def cell_leak(measure: str) -> made.Field[Any]:
    """A number of the leak of one cell; a row has ``cell`` and ``kind``."""

    def entry(row: Any) -> Item:
        leak = row.cell.leak(measure, row.kind)
        return replace(made.leak_item(measure, [leak] if leak else []), small="")

    return field(measure, entry, ("image_low", "image_high", *made.leak_flag(measure)))
