"""The layout of the gallery. Pictures are read from the audits' folders and embedded in the page."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attncem.base.types import AttncemError
from attncem.records.audit import AuditResult, Picture, Role, Row
from attncem.records.ledger import Ledger
from attncem.reporting.runs.methods import Entry
from attncem.reporting.wording import class_name


@dataclass(frozen=True)
class Cell:
    """One original with one reconstruction, in base64; ``image`` and ``mse`` are None without a reconstruction."""

    name: str
    original: str | None
    image: str | None
    mse: float | None


@dataclass(frozen=True)
class Strip:
    """A row of reconstructions by one attack on one run."""

    entry: Entry
    attack: str
    strongest: bool
    cells: Sequence[Cell]


@dataclass(frozen=True)
class Gallery:
    """The images shared by all runs with the same evaluation images, originals first."""

    dataset: str
    attacks: Sequence[str]
    originals: Sequence[Cell]
    strips: Sequence[Strip]


@dataclass(frozen=True)
class Extremes:
    """The images of one run that each of its attacks recovered best or worst."""

    entry: Entry
    role: Role
    strips: Sequence[Strip]


class Pictures:
    """The pictures of one audit in base64; each file is read once; ``strict``: every file must be readable."""

    def __init__(self, audit: AuditResult, *, strict: bool = True) -> None:
        self.audit, self.strict = audit, strict
        rows = [(row, Ledger(Path(audit.folder_of(row.name)), audit.plan)) for row in audit.rows]
        self._ledgers = {(it.image, it.mse): ledger for row, ledger in rows for it in row.pictures}
        self._read: dict[Path, str | None] = {}

    def rows(self, role: Role) -> list[tuple[Row, list[Picture]]]:
        """The rows that have pictures of this role, the strongest attack first."""
        rows = [(row, [item for item in row.pictures if item.role == role]) for row in self.audit.rows]
        return sorted([pair for pair in rows if pair[1]], key=lambda pair: pair[0].name != self.audit.strongest)

    def original(self, picture: Picture) -> Cell:
        """Only the original image."""
        return Cell(self._name(picture), self._picture(picture, picture.original), None, None)

    def cell(self, picture: Picture | None) -> Cell:
        """The original and its reconstruction."""
        if picture is None:
            return Cell("", None, None, None)
        original, image = (self._picture(picture, name) for name in (picture.original, picture.image))
        return Cell(self._name(picture), original, image, picture.mse)

    def _name(self, picture: Picture) -> str:
        return class_name(self.audit.subject.class_names, picture.label)

    def _picture(self, picture: Picture, name: str) -> str | None:
        ledger = self._ledgers[picture.image, picture.mse]
        file = ledger.path / name
        if file not in self._read:
            try:
                self._read[file] = base64.b64encode(ledger.picture(name)).decode()
            except AttncemError:
                if self.strict:
                    raise
                self._read[file] = None
        return self._read[file]


class Album(Pictures):
    """The pictures of one audit of a report."""

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry.audit)
        self.entry = entry

    def strips(self, role: Role, columns: Sequence[int] | None = None) -> list[Strip]:
        """One strip per attack with its pictures, or only those of the ``columns``; the first strip is visible."""
        strips = []
        for place, (row, pictures) in enumerate(self.rows(role)):
            by_index = {picture.index: picture for picture in pictures}
            shown = pictures if columns is None else [by_index.get(index) for index in columns]
            strips.append(Strip(self.entry, row.name, place == 0, [self.cell(picture) for picture in shown]))
        return strips


def albums(entries: Sequence[Entry]) -> list[Album]:
    """The pictures of every audit."""
    return [Album(entry) for entry in entries]


def galleries(albums: Sequence[Album]) -> list[Gallery]:
    """One gallery of fixed images for each set of evaluation images."""
    groups: dict[tuple[str, str], list[Album]] = {}
    for album in albums:
        subject = album.audit.subject
        if album.rows("fixed"):
            groups.setdefault((subject.dataset, subject.data_sha256), []).append(album)
    return [_gallery(dataset, group) for (dataset, _), group in groups.items()]


def _gallery(dataset: str, group: Sequence[Album]) -> Gallery:
    """A gallery whose strips have the same images in the same positions."""
    columns: dict[int, Cell] = {}
    for album in group:
        for _, pictures in album.rows("fixed"):
            for picture in pictures:
                if picture.index not in columns:
                    columns[picture.index] = album.original(picture)
    strips = [strip for album in group for strip in album.strips("fixed", list(columns))]
    attacks = list(dict.fromkeys(strip.attack for strip in strips))
    return Gallery(dataset, attacks, list(columns.values()), strips)


def extremes(albums: Sequence[Album]) -> list[Extremes]:
    """For each audit, the images that each of its attacks recovered best and worst."""
    roles: tuple[Role, ...] = ("best", "worst")
    return [Extremes(album.entry, role, strips) for album in albums for role in roles if (strips := album.strips(role))]
