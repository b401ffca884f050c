"""Rows of the report's tables: plain dictionaries of numbers, no formatting."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from attncem.reporting.load import Entry, Run
from attncem.types import AttackResult, AuditResult

Row = dict[str, Any]

CSV_COLUMNS = (
    "kind", "run", "surrogate", "penalty_weight", "noise_std", "suite", "threat", "accuracy", "accuracy_low",
    "accuracy_high", "attack", "mse", "mse_low", "mse_high", "ssim", "psnr", "mse_5th_percentile", "training_seconds",
    "training_ratio", "client_macs", "server_macs", "client_parameters", "server_parameters", "bytes_per_query",
    "reliable",
)  # fmt: skip


def summary_table(audits: Sequence[AuditResult], labels: Sequence[str] | None = None) -> list[Row]:
    """Rows of the headline table: one per audit (kind "run"), then the first audit's floors (kind "floor")."""
    names = labels or [audit.run for audit in audits]
    first = audits[0].training_seconds if audits else 0.0
    rows = [_run_row(audit, name, first) for audit, name in zip(audits, names, strict=True)]
    return rows + [_floor_row(row) for row in (floors(audits[0]) if audits else [])]


def _run_row(audit: AuditResult, label: str, first_seconds: float) -> Row:
    row: Row = {
        "kind": "run",
        "run": label,
        "surrogate": audit.surrogate,
        "penalty_weight": audit.penalty_weight,
        "noise_std": audit.noise_std,
        "suite": f"{audit.suite} v{audit.suite_version}",
        "threat": audit.threat.name,
        "accuracy": audit.accuracy.mean,
        "accuracy_low": audit.accuracy.low,
        "accuracy_high": audit.accuracy.high,
        "training_seconds": audit.training_seconds,
        "training_ratio": audit.training_seconds / first_seconds if first_seconds else None,
        "client_macs": audit.client_macs,
        "server_macs": audit.server_macs,
        "client_parameters": audit.client_parameters,
        "server_parameters": audit.server_parameters,
        "bytes_per_query": audit.bytes_per_query,
    }
    return row | _attack_cells(audit.strongest_attack)


def _floor_row(row: AttackResult) -> Row:
    return dict.fromkeys(CSV_COLUMNS) | {"kind": "floor", "run": row.name} | _attack_cells(row)


def _attack_cells(row: AttackResult) -> Row:
    return {
        "attack": row.name,
        "attack_kind": row.kind,
        "mse": row.mse.mean,
        "mse_low": row.mse.low,
        "mse_high": row.mse.high,
        "ssim": row.ssim.mean,
        "psnr": row.psnr.mean,
        "mse_5th_percentile": row.mse_5th_percentile,
        "reliable": row.reliable,
    }


def unaudited_row(run: Run) -> Row:
    """Headline row of a run without an audit: what its config and manifest know."""
    costs = ("client_macs", "server_macs", "client_parameters", "server_parameters", "bytes_per_query")
    known = {key: run.manifest.get(key) for key in costs}
    return (
        dict.fromkeys(CSV_COLUMNS)
        | known
        | {
            "kind": "unaudited",
            "run": run.label,
            "folder": run.path.name,
            "surrogate": run.surrogate,
            "penalty_weight": run.setting("training", "penalty_weight"),
            "noise_std": run.noise_std,
            "training_seconds": run.manifest.get("training_seconds"),
        }
    )


def headline(runs: Sequence[Run], entries: Sequence[Entry]) -> list[Row]:
    """The headline table of the page: runs in the order given, audited or not, then the floors."""
    audited = summary_table([entry.audit for entry in entries], [entry.run.label for entry in entries])
    by_run: dict[str, list[Row]] = {}
    for row, entry in zip(audited, entries, strict=False):
        row |= {"surrogate": entry.run.surrogate, "color": entry.color}
        by_run.setdefault(entry.run.label, []).append(row)
    rows: list[Row] = []
    for color, run in enumerate(runs):
        rows += by_run.get(run.label) or [unaudited_row(run) | {"color": color}]
    first = rows[0]["training_seconds"]
    for row in rows:
        seconds = row["training_seconds"]
        row["training_ratio"] = seconds / first if seconds and first else None
    return rows + audited[len(entries) :]


def floors(audit: AuditResult) -> list[AttackResult]:
    """The rows that every attack must beat, weakest first."""
    return sorted((row for row in audit.attacks if row.kind == "floor"), key=lambda row: -row.mse.mean)


def blind_floors(audit: AuditResult) -> list[AttackResult]:
    """The floors that never look at what was released (at most at the predicted label)."""
    return [row for row in floors(audit) if row.method.replace(" ", "_") != "nearest_neighbour"]


def attack_rows(entries: Sequence[Entry]) -> list[Row]:
    """Every attack of every audit; within an audit the strongest first."""
    rows = []
    for entry in entries:
        for attack in sorted(entry.audit.attacks, key=lambda row: row.mse.mean):
            strongest = attack.name == entry.audit.strongest
            rows.append({"label": entry.label, "color": entry.color, "attack": attack, "strongest": strongest})
    return rows


def class_tables(entries: Sequence[Entry]) -> list[Row]:
    """One table per data set: accuracy and strongest-attack MSE of each class for each audit."""
    groups: dict[tuple[str, tuple[str, ...]], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.audit.dataset, tuple(entry.audit.class_names)), []).append(entry)
    return [_class_table(dataset, group) for (dataset, _), group in groups.items()]


def _class_table(dataset: str, group: Sequence[Entry]) -> Row:
    count = max(entry.audit.num_classes for entry in group)
    names = group[0].audit.class_names or [str(index) for index in range(count)]
    columns = [_class_cells(entry, len(names)) for entry in group]
    rows = [{"name": name, "cells": [cells[index] for cells in columns]} for index, name in enumerate(names)]
    return {"dataset": dataset, "entries": list(group), "rows": rows}


def _class_cells(entry: Entry, count: int) -> list[Row]:
    errors = _padded(entry.audit.strongest_attack.per_class_mse, count)
    accuracies = _padded(entry.audit.per_class_accuracy, count)
    known = [value for value in errors if value is not None]
    lowest = min(known) if known else None
    return [
        {"accuracy": accuracy, "mse": error, "exposed": error is not None and error == lowest}
        for accuracy, error in zip(accuracies, errors, strict=True)
    ]


def _padded(values: Sequence[float | None], count: int) -> list[float | None]:
    return [*values, *[None] * count][:count]


def csv_text(rows: Sequence[Row]) -> str:
    """The headline table as CSV, unrounded."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
