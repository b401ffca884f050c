"""The gallery: which image stands where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attncem.reporting.load import Entry
from attncem.types import GalleryImage


@dataclass(frozen=True)
class Cell:
    """One original with one reconstruction; ``image`` and ``mse`` are None where there is none."""

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
    """The images shared by all runs on one data set, originals first."""

    dataset: str
    attacks: Sequence[str]
    originals: Sequence[Cell]
    strips: Sequence[Strip]


@dataclass(frozen=True)
class Extremes:
    """The images of one run that were recovered best or worst."""

    entry: Entry
    role: str
    strips: Sequence[Strip]


def galleries(entries: Sequence[Entry]) -> list[Gallery]:
    """One gallery of fixed images per data set."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        if any(image.role == "fixed" for image in entry.audit.gallery):
            groups.setdefault(entry.audit.dataset, []).append(entry)
    return [_gallery(dataset, group) for dataset, group in groups.items()]


def _gallery(dataset: str, group: Sequence[Entry]) -> Gallery:
    columns: dict[int, tuple[Entry, GalleryImage]] = {}
    for entry in group:
        for image in _images(entry, "fixed"):
            columns.setdefault(image.index, (entry, image))
    originals = [Cell(_name(entry, image), image.original, None, None) for entry, image in columns.values()]
    strips = []
    for entry in group:
        own = {image.index: image for image in _images(entry, "fixed")}
        strips += _strips(entry, [own.get(index) for index in columns])
    return Gallery(dataset, list(dict.fromkeys(strip.attack for strip in strips)), originals, strips)


def extremes(entries: Sequence[Entry]) -> list[Extremes]:
    """For each audit its best- and worst-recovered images."""
    found = []
    for entry in entries:
        for role in ("best", "worst"):
            images = _images(entry, role)
            if images:
                found.append(Extremes(entry, role, _strips(entry, images)))
    return found


def _images(entry: Entry, role: str) -> list[GalleryImage]:
    return [image for image in entry.audit.gallery if image.role == role]


def _strips(entry: Entry, images: Sequence[GalleryImage | None]) -> list[Strip]:
    """One strip per attack that recovered anything; the strongest comes first and is the one shown."""
    names = dict.fromkeys(name for image in images if image for name in image.reconstructions)
    strongest = entry.audit.strongest if entry.audit.strongest in names else next(iter(names), "")
    ordered = sorted(names, key=lambda name: name != strongest)
    return [Strip(entry, name, name == strongest, [_cell(entry, image, name) for image in images]) for name in ordered]


def _cell(entry: Entry, image: GalleryImage | None, attack: str) -> Cell:
    if image is None:
        return Cell("", None, None, None)
    return Cell(_name(entry, image), image.original, image.reconstructions.get(attack), image.mse.get(attack))


def _name(entry: Entry, image: GalleryImage) -> str:
    names = entry.audit.class_names
    return names[image.label] if 0 <= image.label < len(names) else f"class {image.label}"
