"""The wall: the same images as every arm's strongest attack recovers them, read from the audits' folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attncem.records.audit import Picture
from attncem.records.study import AuditKind
from attncem.reporting.campaign.load import Judged, JudgedArm, JudgedCell
from attncem.reporting.runs.gallery import Cell, Pictures

_BYTES = 5_000_000
"""Base64 letters that the wall may take; with more pictures than fit, fewer images are shown."""
_FEWEST = 2


@dataclass(frozen=True)
class WallRow:
    """One arm: its cell, and the pictures of its strongest attack by the image's number."""

    arm: JudgedArm
    cell: JudgedCell
    album: Pictures
    pictures: Mapping[int, Picture]


@dataclass(frozen=True)
class Wall:
    """Arms that were judged on the same images; ``hidden``: arms and images that the page has no room for."""

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
    return [_wall(dataset, rows, _BYTES // len(sets)) for (dataset, _), rows in sets.items()]


def _wall(dataset: str, rows: Sequence[WallRow], room: int) -> Wall:
    columns = list(dict.fromkeys(index for row in rows for index in row.pictures))
    sample = rows[0].album.cell(next(iter(rows[0].pictures.values())))
    each = len(sample.image or "") or 1
    used = columns[: max(_FEWEST, room // (each * (len(rows) + 1)))]
    shown = rows[: max(1, room // (each * len(used)) - 1)]
    originals = {index: _original(rows, index) for index in used}
    return Wall(dataset, originals, shown, len(columns) - len(used), len(rows) - len(shown))


def _original(rows: Sequence[WallRow], index: int) -> Cell:
    """The first one that can be read; empty where none can."""
    cells = (row.album.original(row.pictures[index]) for row in rows if index in row.pictures)
    return next((cell for cell in cells if cell.original), Cell("", None, None, None))
