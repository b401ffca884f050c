"""Further labels of images: attributes.csv in the folder of the data set. No torch.

Its first line names the columns. Sets of image files have the column ``file``, a path relative to the set's folder; the
others have ``part`` (train or test) and ``index``, from 0. Every other column is an attribute with its values as text;
an image without a line or with an empty cell has no value.
"""

from __future__ import annotations

import csv
import hashlib
import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attncem.base.types import DataError
from attncem.config.loading.suggest import did_you_mean, nearest
from attncem.config.options.data import DataOptions
from attncem.data.folders import list_images
from attncem.data.readers import FOLDER_SETS
from attncem.data.sources import find, locate
from attncem_edge.decoding import require_file

Rows = list[dict[str, str]]
Places = dict[tuple[str, ...], tuple[str, int]]
"""Part and position of an image, by its name in the table."""
_PARTS = ("train", "test")
MOST = 100
"""Largest number of values of an attribute; a column with more holds numbers or names."""


def attributes_file(options: DataOptions, file: str | None = None) -> Path:
    """The table: this file, or attributes.csv in the set's folder."""
    if file is not None:
        return Path(file)
    folder = find(options.name, options.root)
    if folder is None:
        raise DataError(f"{options.name} has no folder for attributes.csv: name the table, file=FILE")
    return folder / "attributes.csv"


def attributes_hash(options: DataOptions, file: str | None = None) -> str:
    """The SHA-256 of the table; empty if there is none."""
    try:
        return hashlib.sha256(attributes_file(options, file).read_bytes()).hexdigest()
    except (OSError, DataError):
        return ""


def read_attributes(
    options: DataOptions, attribute: str, counts: tuple[int, int], file: str | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The attribute of each training and each test image, as the index of its value in sorted order; -1: none.

    ``counts`` are the numbers of training and test images; the order is that of the readers.
    """
    path = attributes_file(options, file)
    keys = ("file",) if options.name in FOLDER_SETS else ("part", "index")
    rows = _rows(path, keys, attribute)
    values = sorted({row[attribute] for row in rows} - {""})
    if not 2 <= len(values) <= MOST:
        raise DataError(f"{path}: {attribute} has {len(values)} different values; an attribute has 2 to {MOST}")
    number = {value: position for position, value in enumerate(values)} | {"": -1}
    found = {part: np.full(count, -1, dtype=np.int64) for part, count in zip(_PARTS, counts, strict=True)}
    places = _places(options, counts)
    for line, row in enumerate(rows, 2):
        named = tuple(row[key] for key in keys)
        if named not in places:
            raise DataError(f"{path}, line {line}: {' '.join(named)!r} is not an image of the data set, or a duplicate")
        part, index = places.pop(named)
        found[part][index] = number[row[attribute]]
    return found["train"], found["test"]


def _rows(path: Path, keys: tuple[str, ...], attribute: str) -> Rows:
    """The lines of the table, which must have these columns and the attribute's."""
    require_file(path)
    try:
        reader = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline=""), strict=True)
        rows = [{key: (value or "").strip() for key, value in row.items() if key} for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    columns = [name for name in reader.fieldnames or () if name]
    if any(key not in columns for key in keys):
        raise DataError(f"{path}: its first line must name the columns {', '.join(keys)}, and attributes")
    there = [name for name in columns if name not in keys]
    if attribute not in there:
        hint = did_you_mean(nearest(attribute, there))
        raise DataError(f"{path} has no attribute {attribute}{hint} (there are: {', '.join(there) or 'none'})")
    return rows


def _places(options: DataOptions, counts: tuple[int, int]) -> Places:
    if options.name not in FOLDER_SETS:
        parts = zip(_PARTS, counts, strict=True)
        return {(part, str(index)): (part, index) for part, count in parts for index in range(count)}
    folder = locate(options.name, options.root)
    listing = list_images(options.name, folder)
    return {
        (path.relative_to(folder).as_posix(),): (part, index)
        for part, images in zip(_PARTS, (listing.train, listing.test), strict=True)
        for index, (path, _) in enumerate(images)
    }
