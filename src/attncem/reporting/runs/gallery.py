"""The gallery: which image stands where. Pictures are read from the audits' folders and go into the page itself."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attncem.records.audit import Picture, Role, Row
from attncem.records.ledger import Ledger
from attncem.reporting.runs.methods import Entry
from attncem.reporting.wording import class_name


@dataclass(frozen=True)
class Cell:
    """One original with one reconstruction, in base64; ``image`` and ``mse`` are None where there is none."""

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
    """The images shared by all runs on the same evaluation images, originals first."""

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


class Album:
    """The pictures of one audit in base64; each file is read once."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self._ledger: Ledger | None = None
        self._read: dict[str, str] = {}

    def rows(self, role: Role) -> list[tuple[Row, list[Picture]]]:
        """The rows that have pictures of this role, the strongest attack first."""
        strongest = self.entry.audit.strongest
        found = [(row, [item for item in row.pictures if item.role == role]) for row in self.entry.audit.rows]
        return sorted([pair for pair in found if pair[1]], key=lambda pair: pair[0].name != strongest)

    def original(self, picture: Picture) -> Cell:
        """The image alone."""
        return Cell(self._name(picture), self._picture(picture.original), None, None)

    def cell(self, picture: Picture | None) -> Cell:
        """The image and what became of it."""
        if picture is None:
            return Cell("", None, None, None)
        original, image = self._picture(picture.original), self._picture(picture.image)
        return Cell(self._name(picture), original, image, picture.mse)

    def _name(self, picture: Picture) -> str:
        return class_name(self.entry.audit.subject.class_names, picture.label)

    def _picture(self, name: str) -> str:
        if name not in self._read:
            self._ledger = self._ledger or Ledger.open(Path(self.entry.audit.folder))
            self._read[name] = base64.b64encode(self._ledger.picture(name)).decode()
        return self._read[name]


def albums(entries: Sequence[Entry]) -> list[Album]:
    """The pictures of every audit."""
    return [Album(entry) for entry in entries]


def galleries(found: Sequence[Album]) -> list[Gallery]:
    """One gallery of fixed images for each set of evaluation images."""
    groups: dict[tuple[str, str], list[Album]] = {}
    for album in found:
        subject = album.entry.audit.subject
        if album.rows("fixed"):
            groups.setdefault((subject.dataset, subject.data_sha256), []).append(album)
    return [_gallery(dataset, group) for (dataset, _), group in groups.items()]


def _gallery(dataset: str, group: Sequence[Album]) -> Gallery:
    columns: dict[int, Cell] = {}
    for album in group:
        for _, pictures in album.rows("fixed"):
            for picture in pictures:
                if picture.index not in columns:
                    columns[picture.index] = album.original(picture)
    strips = [strip for album in group for strip in _fixed_strips(album, list(columns))]
    attacks = list(dict.fromkeys(strip.attack for strip in strips))
    return Gallery(dataset, attacks, list(columns.values()), strips)


def _fixed_strips(album: Album, columns: Sequence[int]) -> list[Strip]:
    """One strip per attack, all with the same images in the same places; the first one is shown."""
    strips = []
    for place, (row, pictures) in enumerate(album.rows("fixed")):
        own = {picture.index: picture for picture in pictures}
        strips.append(Strip(album.entry, row.name, place == 0, [album.cell(own.get(index)) for index in columns]))
    return strips


def extremes(found: Sequence[Album]) -> list[Extremes]:
    """For each audit the images that were recovered best and worst, each attack with its own."""
    roles: tuple[Role, ...] = ("best", "worst")
    made = [Extremes(album.entry, role, _own_strips(album, role)) for album in found for role in roles]
    return [item for item in made if item.strips]


def _own_strips(album: Album, role: Role) -> list[Strip]:
    return [
        Strip(album.entry, row.name, place == 0, [album.cell(picture) for picture in pictures])
        for place, (row, pictures) in enumerate(album.rows(role))
    ]
