"""Twins in a report: the same attack as learned from all of the attacker's images, and from the sent ones."""

from __future__ import annotations

from collections.abc import Sequence

from attncem.base.texts import text
from attncem.records.audit import AuditResult, Row
from attncem.records.sending import twin_of


def beside_twins(rows: Sequence[Row]) -> list[Row]:
    """The rows with every attack next to its twin, the one that comes first here before the other."""
    placed: list[Row] = []
    for row in rows:
        if row not in placed:
            twin = twin_of(row, rows)
            placed += [row] if twin is None else [row, twin]
    return placed


def stronger_said(row: Row, audit: AuditResult) -> list[str]:
    """A note on the stronger of two twins."""
    twin = twin_of(row, audit.attacks) if row in audit.attacks else None
    if twin is None or twin.mse.mean <= row.mse.mean:
        return []
    return [text(f"report.attacks.stronger.{row.owns}", mse=twin.mse.mean)]
