"""The wall: the same images as every arm's strongest attack recovers them, read from the audits' folders."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attncem.base.types import AttncemError
from attncem.records.audit import AuditResult, Picture
from attncem.records.ledger import Ledger
from attncem.records.study import AuditKind
from attncem.reporting.campaign.load import Judged, JudgedArm, JudgedCell
from attncem.reporting.wording import class_name

_BYTES = 5_000_000
"""Base64 letters that the wall may take; with more pictures than fit, fewer images are shown."""
_FEWEST = 2


@dataclass(frozen=True)
class Shot:
    """One reconstruction in base64; None where there is none."""

    name: str
    image: str | None
    mse: float | None


@dataclass(frozen=True)
class WallRow:
    """One arm: its cell and attack, with an image for every column."""

    arm: JudgedArm
    cell: JudgedCell
    attack: str
    shots: Sequence[Shot]


@dataclass(frozen=True)
class Wall:
    """Arms that were judged on the same images; ``hidden``: arms and images that the page has no room for."""

    dataset: str
    originals: Sequence[Shot]
    rows: Sequence[WallRow]
    hidden_images: int = 0
    hidden_rows: int = 0


@dataclass(frozen=True)
class _Hung:
    arm: JudgedArm
    cell: JudgedCell
    audit: AuditResult
    pictures: Sequence[Picture]


def walls(study: Judged, kind: AuditKind) -> list[Wall]:
    """One wall for each set of evaluation images, with the first seed of every arm that has pictures of it."""
    sets: dict[tuple[str, str], list[_Hung]] = {}
    for arm in study.arms:
        hung = _hung(arm, kind)
        if hung is not None:
            subject = hung.audit.subject
            sets.setdefault((subject.dataset, subject.data_sha256), []).append(hung)
    return [_wall(dataset, own, _BYTES // len(sets)) for (dataset, _), own in sets.items()]


def _hung(arm: JudgedArm, kind: AuditKind) -> _Hung | None:
    cell = arm.first(kind)
    if cell is None:
        return None
    audit = cell.audits[kind]
    pictures = [picture for picture in audit.strongest_attack.pictures if picture.role == "fixed"]
    return _Hung(arm, cell, audit, pictures) if pictures else None


def _wall(dataset: str, own: Sequence[_Hung], room: int) -> Wall:
    columns = list(dict.fromkeys(picture.index for hung in own for picture in hung.pictures))
    sample = _shot(own[0], own[0].pictures[0])
    each = len(sample.image or "") or 1
    fitting = room // (each * (len(own) + 1))
    used = columns[: max(_FEWEST, fitting)]
    shown = own[: max(1, room // (each * len(used)) - 1)]
    originals = [_original(own, index) for index in used]
    rows = [WallRow(hung.arm, hung.cell, hung.audit.strongest, _shots(hung, used)) for hung in shown]
    return Wall(dataset, originals, rows, len(columns) - len(used), len(own) - len(shown))


def _shots(hung: _Hung, columns: Sequence[int]) -> list[Shot]:
    by_index = {picture.index: picture for picture in hung.pictures}
    return [_shot(hung, by_index.get(index)) for index in columns]


def _shot(hung: _Hung, picture: Picture | None) -> Shot:
    if picture is None:
        return Shot("", None, None)
    return Shot(_name(hung, picture), _read(hung, picture.image), picture.mse)


def _original(own: Sequence[_Hung], index: int) -> Shot:
    for hung in own:
        for picture in hung.pictures:
            if picture.index == index and (image := _read(hung, picture.original)):
                return Shot(_name(hung, picture), image, None)
    return Shot("", None, None)


def _name(hung: _Hung, picture: Picture) -> str:
    return class_name(hung.audit.subject.class_names, picture.label)


def _read(hung: _Hung, name: str) -> str | None:
    """None where it cannot be read: the page has a dash there."""
    try:
        folder = Ledger(Path(hung.audit.folder), hung.audit.plan)
        return base64.b64encode(folder.picture(name)).decode()
    except AttncemError:
        return None
