"""What a campaign's page carries for its script: points to hover, cells to open, portraits to draw, tables to save."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from attncem.base.texts import text, translated
from attncem.base.texts.titles import row_title
from attncem.records.audit import AuditResult, Row
from attncem.records.explanation import GATES
from attncem.records.metrics import METRICS
from attncem.records.portrait import Portrait
from attncem.records.study import ACCURACY, AuditKind, Spread
from attncem.reporting import wording
from attncem.reporting.campaign.items import digits, interval, mean_sd, said
from attncem.reporting.campaign.load import ERRORS, CampaignView, Judged, JudgedArm, JudgedCell
from attncem.reporting.campaign.numbers import ArmRow, arm_rows, lost
from attncem.reporting.table_formats import FORMATS, Table

_PORTRAITS = 3_000_000
"""Letters that the portraits may take; the first point of every arm comes first."""
_SHORT = 5
"""Digits of a number that is only drawn."""
WORDS = (
    "accuracy", "attack", "seeds", "seed", "state", "reason", "training", "interval_seeds", "interval_images",
    "standing", "share", "report_command", "no_audit", "point", "rows_shown", "click", "before_undefended",
    "before_pixels", "clean", "released", "kept", "no_tsne", "attention", "equal_weight", "shares", "gates",
    "no_attention", "no_slots", "strongest", "not_reliable", "image_of", "lost",
)  # fmt: skip
"""What the script says; under `arms.script.NAME`."""


def page_data(view: CampaignView, tables: Sequence[Table]) -> dict[str, Any]:
    """All of it, as plain data."""
    portraits, left_out = _portraits(view)
    study = view.study
    return {
        "words": {name: text(f"arms.script.{name}") for name in WORDS},
        "standings": {name: text(f"arms.standing.{name}") for name in ("surely", "possibly", "not")},
        "parts": {name: text(f"explain.column.{name}") for name in ("slot", "cluster", "component")},
        "gates": {name: text(f"explain.gate.{name}") for name in GATES},
        "measures": [_measure(name) for name in ERRORS],
        "accuracy_title": text("arms.plot.accuracy"),
        "arms": study.names,
        "kinds": list(map(str, study.kinds)),
        "groups": [_group(arm) for arm in study.arms],
        "points": [_points(study, kind) for kind in study.kinds],
        "cells": {cell.id: _cell(study, arm, cell) for arm in study.arms for cell in arm.cells},
        "portraits": portraits,
        "portraits_left_out": left_out,
        "tables": {table.name: {ending: write(table) for ending, write in FORMATS.items()} for table in tables},
    }


def _measure(name: str) -> dict[str, Any]:
    metric = METRICS[name]
    return {"name": name, "title": text(f"measure.{name}"), "decimals": metric.decimals, "private": metric.private}


def _group(arm: JudgedArm) -> dict[str, Any]:
    return {"label": arm.label, "arm": arm.name, "color": arm.color, "cells": [cell.id for cell in arm.cells]}


# points of the plot


def _points(study: Judged, kind: AuditKind) -> list[dict[str, Any]]:
    """The arms that have an accuracy and errors, in the order of the groups."""
    fronts, useless = {measure: study.front(measure, kind) for measure in ERRORS}, lost(study, kind)
    return [
        {"group": number, "lost": row.arm.label in useless, "accuracy": _spread(ACCURACY, row.spreads[ACCURACY])}
        | _errors(row, fronts)
        for number, row in enumerate(arm_rows(study, kind))
        if ACCURACY in row.spreads
    ]


def _errors(row: ArmRow, fronts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    found = {}
    for measure, standing in fronts.items():
        if measure in row.spreads and row.arm.label in standing:
            place = standing[row.arm.label]
            own = {"standing": place.standing, "share": wording.percent(place.share, 0)}
            found[measure] = _spread(measure, row.spreads[measure]) | own
    return found


def _spread(measure: str, found: Spread) -> dict[str, Any]:
    """Numbers to draw by and words to show."""
    own = found.seeds
    return {
        "mean": _short(own.mean),
        "seeds": None if own.low is None or own.high is None else [_short(own.low), _short(own.high)],
        "images": [_short(found.image_low), _short(found.image_high)],
        "count": own.count,
        "said": mean_sd(measure, own),
        "said_seeds": interval(measure, own.low, own.high),
        "said_images": interval(measure, found.image_low, found.image_high),
    }


def _short(value: float) -> float:
    return float(f"{value:.{_SHORT}g}")


# cells


def _cell(study: Judged, arm: JudgedArm, cell: JudgedCell) -> dict[str, Any]:
    found = [(number, cell.audits[kind]) for number, kind in enumerate(study.kinds) if kind in cell.audits]
    return {
        "label": arm.label,
        "color": arm.color,
        "seed": cell.seed,
        "point": {key: repr(value) for key, value in arm.point.items()},
        "state": text(f"arms.state.{cell.state}"),
        "reason": cell.reason,
        "training": wording.seconds(cell.training_seconds),
        "command": f"attncem report {cell.path}",
        "audits": [{"kind": number, **_audit(audit)} for number, audit in found],
        "at": {str(number): _place(audit) for number, audit in found if audit.accuracy and audit.strongest},
    }


def _place(audit: AuditResult) -> dict[str, float]:
    """Where a seed's own point lies."""
    scores = audit.strongest_attack.scores
    place = {measure: _short(scores[measure].mean) for measure in ERRORS if measure in scores}
    return {ACCURACY: _short(audit.known_accuracy.mean), **place}


def _audit(audit: AuditResult) -> dict[str, Any]:
    accuracy = audit.accuracy
    rows = sorted(audit.attacks, key=lambda row: row.mse.mean)
    others = [row for row in audit.rows if not row.ok]
    ends = interval(ACCURACY, accuracy.low, accuracy.high) if accuracy else ""
    return {
        "accuracy": f"{said(ACCURACY, accuracy.mean if accuracy else None)} {ends}".strip(),
        "strongest": row_title(audit.strongest),
        "rows": [_row(row) for row in rows],
        "others": [[row_title(row.name), translated(row.why)] for row in others],
        "warnings": audit.warnings,
    }


def _row(row: Row) -> list[Any]:
    """Name, whether it is a floor, whether it converged, and each measure in words."""
    measured = [wording.decimal(row.scores[name].mean, digits(name)) if name in row.scores else "–" for name in ERRORS]
    return [row_title(row.name), int(row.kind == "floor"), int(row.verdict.reliable), *measured]


# portraits


def _portraits(view: CampaignView) -> tuple[list[dict[str, Any]], int]:
    """As many as there is room for, and how many are left out."""
    firsts = {arm.name: arm.label for arm in reversed(view.study.arms) if arm.label in view.portraits}
    order = sorted(view.portraits, key=lambda label: label not in firsts.values())
    kept: dict[str, dict[str, Any]] = {}
    taken = 0
    for label in order:
        data = portrait_data(view, label)
        taken += len(json.dumps(data))
        if taken > _PORTRAITS and kept:
            break
        kept[label] = data
    return [kept[label] for label in view.portraits if label in kept], len(view.portraits) - len(kept)


def portrait_data(view: CampaignView, label: str) -> dict[str, Any]:
    """A portrait, and which arm shows the features before the defence; empty: the pixels do."""
    portrait = view.portraits[label]
    before = undefended(view, portrait)
    data = portrait.to_dict()
    for name in ("versions", "run", "data_sha256", "weights"):
        data.pop(name)
    return data | {"label": label, "before": "" if before == label else before}


def undefended(view: CampaignView, portrait: Portrait) -> str:
    """The arm without any defence that was trained on the same data; empty where the campaign has none."""
    same = (portrait.dataset, portrait.data_sha256)
    found = (label for label, other in view.portraits.items() if _is_bare(other) and same == _data(other))
    return next(found, "")


def _is_bare(portrait: Portrait) -> bool:
    return portrait.surrogate == "none"


def _data(portrait: Portrait) -> tuple[str, str]:
    return portrait.dataset, portrait.data_sha256
