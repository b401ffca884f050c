"""Available data sets, their folders and whether they are complete. No torch."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from attncem.base.types import DataError
from attncem.data.folders import check_files, listing_notes
from attncem.data.readers import EMBEDDED, FOLDER_SETS, RawData, read_dataset
from attncem.data.sources import SOURCES, missing_files, places
from attncem.data.specs import DATASETS

NOTHING = "-"
MIXED = "mixed"
MIXED_SIZE = 32
"""Size in pixels to which pictures of several sizes are scaled for the check."""


@dataclass(frozen=True)
class DatasetState:
    """One line of `attncem data`; `ok` is false only for a set that exists and is damaged."""

    name: str
    shape: str
    classes: str
    train: str
    test: str
    ok: bool
    state: str
    note: str
    """Its folder or the searched folders, its problem, and how to get it."""


def inspect_datasets(root: str | None = None, *, verify: bool = False) -> list[DatasetState]:
    """Search for every data set of the table; with `verify`, read and check it."""
    return [_inspect(name, root, verify=verify) for name in DATASETS]


def _inspect(name: str, root: str | None, *, verify: bool) -> DatasetState:
    if name == EMBEDDED:
        own = root is not None and (Path(root) / f"{EMBEDDED}.npz").exists()
        return _read(name, root if own else None)
    looked = _looked_in(name, root)
    needed = len(SOURCES[name].files)
    folder = next((place for place in looked if len(missing_files(name, place)) < needed), None)
    if folder is None:
        if not looked:
            return _state(name, NOTHING, SOURCES[name].how)
        return _state(name, "missing", f"not in {', '.join(map(str, looked))}. Get it: {SOURCES[name].how}")
    missing = missing_files(name, folder)
    if missing:
        note = f"{folder} lacks {', '.join(missing)}. Get it again: {SOURCES[name].how}"
        return _state(name, "incomplete", note, ok=not verify)
    return _read(name, str(folder)) if verify else _state(name, "found", f"{folder} (check it with --verify)")


def _looked_in(name: str, root: str | None) -> list[Path]:
    """The places to search; a user's folder counts as the set's only if its name matches, or for image_folder."""
    looked = places(name, root)
    if root is None or name == "image_folder":
        return looked
    own = any(Path(root).resolve().as_posix().endswith(f"/{folder}") for folder in SOURCES[name].folders)
    return looked if own else looked[:-1]


def _read(name: str, root: str | None) -> DatasetState:
    """Read a set and compare it; pictures of several sizes are scaled, to check the other facts."""
    mixed, notes = "", list[str]()
    try:
        if name in FOLDER_SETS and root is not None:
            mixed, notes = _mixed_sizes(name, Path(root)), listing_notes(name, Path(root))
        raw = read_dataset(name, root, MIXED_SIZE if mixed else None)
        turned = [f"EXIF orientation applied to {raw.turned} images"] if raw.turned else []
        notes = [_verdict(raw, root), *([mixed] if mixed else []), *turned, *notes]
    except DataError as error:
        return _state(name, "damaged", str(error), ok=False)
    shape = f"{raw.spec.shape[0]}x{MIXED}" if mixed else "x".join(str(size) for size in raw.spec.shape)
    counts = (str(raw.spec.num_classes), str(len(raw.train_labels)), str(len(raw.test_labels)))
    return DatasetState(name, shape, *counts, True, "ok", "; ".join(notes))


def _mixed_sizes(name: str, folder: Path) -> str:
    """Decode every file; a note if their sizes differ from one another, or from the set's usual size."""
    smallest, largest = check_files(name, folder)
    usual = DATASETS[name].shape
    if smallest == largest and usual in ((0, 0, 0), (usual[0], *smallest[::-1])):
        return ""
    sizes = " to ".join(f"{width}x{height}" for width, height in (smallest, largest))
    return f"pictures of {sizes} px: training needs data.image_size=PIXELS, which scales them all"


def _state(name: str, state: str, note: str, *, ok: bool = True) -> DatasetState:
    """A set that was not read: facts from the table."""
    spec = DATASETS[name]
    shape = "x".join(str(size) for size in spec.shape) if spec.num_classes else NOTHING
    return DatasetState(name, shape, str(spec.num_classes or NOTHING), NOTHING, NOTHING, ok, state, note)


def _verdict(raw: RawData, root: str | None) -> str:
    """The location of a set and the reference it matches; DataError if it differs from the published set."""
    name, source = raw.spec.name, SOURCES[raw.spec.name]
    where = root or "embedded in the package"
    counts = (len(raw.train_labels), len(raw.test_labels))
    expected = (source.train or counts[0], source.test or counts[1])
    if counts != expected:
        raise DataError(f"{where} has {counts[0]} + {counts[1]} images, expected {expected[0]} + {expected[1]}")
    usual = DATASETS[name].num_classes or raw.spec.num_classes
    part = "" if raw.spec.num_classes == usual else f", {raw.spec.num_classes} of the usual {usual} classes"
    return f"{where}{part}, {_hash_verdict(raw, root)}"


def _hash_verdict(raw: RawData, root: str | None) -> str:
    source = SOURCES[raw.spec.name]
    short = f"sha256 {raw.sha256[:12]}"
    if raw.sha256 == source.sha256:
        return f"{short} as expected"
    if source.md5 and root is not None and all(_md5(Path(root) / file) == value for file, value in source.md5):
        return f"{short}, the original files"
    if source.md5 or source.sha256:
        raise DataError(f"{root}: the counts match, but the images or labels are not the published ones ({short})")
    return f"{short} (none is published)"


def _md5(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
