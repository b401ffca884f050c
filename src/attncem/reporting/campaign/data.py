"""Data of a campaign's page: points, cells, portraits and tables for its script, and the wall of pictures."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attncem.base.texts import text, translated
from attncem.base.texts.titles import row_title
from attncem.records.audit import AuditResult, Picture, Row
from attncem.records.explanation import GATES
from attncem.records.metrics import METRICS
from attncem.records.study import ACCURACY, AuditKind, Spread
from attncem.reporting import sending, wording
from attncem.reporting.campaign.load import (
    ERRORS,
    CampaignView,
    Judged,
    JudgedArm,
    JudgedCell,
    drawn_interval,
    lost,
    point_words,
)
from attncem.reporting.figures import short
from attncem.reporting.runs.gallery import Cell, Pictures
from attncem.reporting.table_formats import FORMATS, Table, interval, mean_sd, said

_PORTRAITS = 3_000_000
"""Maximum size of the portraits, in characters; the first point of every arm has priority."""
_WALL = 5_000_000
"""Maximum size of the wall, in base64 characters; if the pictures exceed it, fewer images are shown."""
_FEWEST = 2
WORDS = (
    "accuracy", "attack", "seeds", "seed", "state", "reason", "training", "interval_seeds", "interval_images",
    "standing", "share", "report_command", "no_audit", "point", "rows_shown", "click", "before_undefended",
    "before_pixels", "clean", "released", "kept", "no_tsne", "attention", "equal_weight", "shares", "gates",
    "no_attention", "no_slots", "no_faces", "strongest", "not_reliable", "image_of", "lost",
)  # fmt: skip
"""Texts of the script; under `arms.script.NAME`."""


def page_data(view: CampaignView, tables: Sequence[Table]) -> dict[str, Any]:
    """The page's data, as plain values."""
    portraits = _portraits(view)
    study, words = view.study, point_words(view.study)
    return {
        "words": {name: text(f"arms.script.{name}") for name in WORDS},
        "standings": {name: text(f"arms.standing.{name}") for name in ("surely", "possibly", "not")},
        "parts": {name: text(f"explain.column.{name}") for name in ("slot", "cluster", "component")},
        "gates": {name: text(f"explain.gate.{name}") for name in GATES},
        "measures": [
            {"name": it, "title": text(f"measure.{it}")}
            | {"decimals": METRICS[it].decimals, "private": METRICS[it].private}
            for it in ERRORS
        ],
        "accuracy_title": text("arms.plot.accuracy"),
        "arms": study.names,
        "kinds": list(map(str, study.kinds)),
        "groups": [
            {"label": arm.label, "arm": arm.name, "color": arm.color, "cells": [cell.id for cell in arm.cells]}
            | {"at": words[arm.label]}
            for arm in study.arms
        ],
        "points": [_points(study, kind) for kind in study.kinds],
        "cells": {cell.id: _cell(study, arm, cell) for arm in study.arms for cell in (*arm.cells, *arm.others)},
        "portraits": portraits,
        "portraits_left_out": len(view.portraits) - len(portraits),
        "tables": {table.name: {ending: write(table) for ending, write in FORMATS.items()} for table in tables},
    }


def _points(study: Judged, kind: AuditKind) -> list[dict[str, Any]]:
    """The arms that have an accuracy, with their errors; ``group`` is the arm's index."""
    fronts, useless = {measure: study.front(measure, kind) for measure in ERRORS}, lost(study, kind)
    points = []
    for number, arm in enumerate(study.arms):
        accuracy = arm.summary(ACCURACY, kind)
        if accuracy is None:
            continue
        point = {"group": number, "lost": arm.label in useless, ACCURACY: _spread(ACCURACY, accuracy)}
        for measure, front in fronts.items():
            error, place = arm.summary(measure, kind), front.get(arm.label)
            if error and place:
                standing = {"standing": place.standing, "share": wording.percent(place.share, 0)}
                point[measure] = _spread(measure, error) | standing
        points.append(point)
    return points


def _spread(measure: str, spread: Spread) -> dict[str, Any]:
    """Numbers for drawing, and text to show."""
    seeds, drawn = spread.seeds, drawn_interval(spread.seeds)
    return {
        "mean": short(seeds.mean),
        "seeds": list(map(short, drawn)) if drawn else None,
        "images": [short(spread.image_low), short(spread.image_high)],
        "count": seeds.count,
        "said": mean_sd(measure, seeds),
        "said_seeds": interval(measure, seeds.low, seeds.high),
        "said_images": interval(measure, spread.image_low, spread.image_high),
    }


def _cell(study: Judged, arm: JudgedArm, cell: JudgedCell) -> dict[str, Any]:
    audits = {number: cell.audits[kind] for number, kind in enumerate(study.kinds) if kind in cell.audits}
    return {
        "label": arm.label,
        "color": arm.color,
        "seed": cell.seed,
        "point": {key: repr(value) for key, value in arm.point.items()},
        "state": text(f"arms.state.{cell.state}"),
        "reason": cell.reason,
        "training": wording.seconds(cell.training_seconds),
        "command": "attncem report " + shlex.quote("/".join(cell.path.parts[-3:])),  # CAMPAIGN/runs/CELL
        "audits": [{"kind": number, **_audit(audit)} for number, audit in audits.items()],
        "at": {str(number): _place(audit) for number, audit in audits.items() if audit.accuracy and audit.strongest},
    }


def _place(audit: AuditResult) -> dict[str, float]:
    """Coordinates of a seed's point."""
    scores = {measure: audit.score(measure) for measure in (ACCURACY, *ERRORS)}
    return {measure: short(score.mean) for measure, score in scores.items() if score}


def _audit(audit: AuditResult) -> dict[str, Any]:
    accuracy = audit.accuracy
    shown = f"{said(ACCURACY, accuracy.mean)} {interval(ACCURACY, accuracy.low, accuracy.high)}" if accuracy else ""
    return {
        "accuracy": shown or wording.MISSING,
        "strongest": row_title(audit.strongest),
        "rows": [_row(row) for row in sorted(audit.attacks, key=lambda row: row.mse.mean)],
        "others": [[row_title(row.name), translated(row.why)] for row in audit.rows if not row.ok],
        "warnings": [*filter(None, [sending.sentence([audit])]), *audit.warnings],
    }


def _row(row: Row) -> list[Any]:
    """Name, whether the row is a floor, whether it converged, and each measure as text."""
    measured = [said(name, row.scores[name].mean if name in row.scores else None) for name in ERRORS]
    return [row_title(row.name), int(row.kind == "floor"), int(row.verdict.reliable), *measured]


def _portraits(view: CampaignView) -> list[dict[str, Any]]:
    """As many portraits as fit, the first point of every arm before the others."""
    firsts = {arm.name: arm.label for arm in reversed(view.study.arms) if arm.label in view.portraits}
    kept: dict[str, dict[str, Any]] = {}
    letters = 0
    for label in sorted(view.portraits, key=lambda label: label not in firsts.values()):
        data = _portrait(view, label)
        letters += len(json.dumps(data))
        if letters > _PORTRAITS and kept:
            break
        kept[label] = data
    return [kept[label] for label in view.portraits if label in kept]


def _portrait(view: CampaignView, label: str) -> dict[str, Any]:
    """A portrait, and the undefended arm that shows the features before the defence; empty: the pixels are shown."""
    portrait = view.portraits[label]
    alike = (
        other
        for other, it in view.portraits.items()
        if it.surrogate == "none" and (it.dataset, it.data_sha256) == (portrait.dataset, portrait.data_sha256)
    )
    before = next(alike, "")
    left_out = ("versions", "run", "data_sha256", "weights")
    data = {name: value for name, value in portrait.to_dict().items() if name not in left_out}
    return data | {"label": label, "before": "" if before == label else before}


# the wall: the same images as reconstructed by every arm's strongest attack


@dataclass(frozen=True)
class WallRow:
    """One arm: its cell, and the pictures of its strongest attack by image index."""

    arm: JudgedArm
    cell: JudgedCell
    album: Pictures
    pictures: Mapping[int, Picture]


@dataclass(frozen=True)
class Wall:
    """Arms that were audited on the same images; ``hidden``: arms and images that do not fit on the page."""

    dataset: str
    originals: Mapping[int, Cell]
    rows: Sequence[WallRow]
    hidden_images: int = 0
    hidden_rows: int = 0


def walls(study: Judged, kind: AuditKind) -> list[Wall]:
    """One wall for each set of evaluation images, with the first seed of every arm that has pictures of it."""
    sets: dict[tuple[str, str], list[WallRow]] = {}
    for arm in study.arms:
        if cell := arm.first(kind):
            audit = cell.audits[kind]
            pictures = {it.index: it for it in audit.strongest_attack.pictures if it.role == "fixed"}
            if pictures:
                row = WallRow(arm, cell, Pictures(audit, strict=False), pictures)
                sets.setdefault((audit.subject.dataset, audit.subject.data_sha256), []).append(row)
    return [_wall(dataset, rows, _WALL // len(sets)) for (dataset, _), rows in sets.items()]


def _wall(dataset: str, rows: Sequence[WallRow], room: int) -> Wall:
    columns = list(dict.fromkeys(index for row in rows for index in row.pictures))
    sample = rows[0].album.cell(next(iter(rows[0].pictures.values())))
    each = len(sample.image or "") or 1
    used = columns[: max(_FEWEST, room // (each * (len(rows) + 1)))]
    shown = rows[: max(1, room // (each * len(used)) - 1)]
    originals = {index: _original(rows, index) for index in used}
    return Wall(dataset, originals, shown, len(columns) - len(used), len(rows) - len(shown))


def _original(rows: Sequence[WallRow], index: int) -> Cell:
    """The first readable original; empty where none is readable."""
    cells = (row.album.original(row.pictures[index]) for row in rows if index in row.pictures)
    return next((cell for cell in cells if cell.original), Cell("", None, None, None))
