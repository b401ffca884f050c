"""Reader of the MNIST family: four idx files, compressed or not. No torch."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attncem.data.sources import IDX_FILES
from attncem.types import DataError, DatasetSpec

Arrays = dict[str, NDArray[np.generic]]
KEYS = ("train_images", "train_labels", "test_images", "test_labels")


def read_idx_set(folder: Path, spec: DatasetSpec) -> Arrays:
    """The four files of a folder, as images [N, 1, H, W] and labels [N]."""
    arrays: Arrays = {}
    for key, name in zip(KEYS, IDX_FILES, strict=True):
        path = folder / name
        path = path if path.is_file() else folder / f"{name}.gz"
        inner = spec.shape[1:] if key.endswith("images") else ()
        values = read_idx(path, inner)
        if not inner and values.max() >= spec.num_classes:
            where = int(values.argmax())
            raise DataError(
                f"{path}: label {values[where]} at {where} is not in 0…{spec.num_classes - 1}; get it again"
            )
        arrays[key] = values[:, None] if inner else values
    for part in ("train", "test"):
        if len(arrays[f"{part}_images"]) != len(arrays[f"{part}_labels"]):
            raise DataError(f"{folder}: the {part} files hold different numbers of images and labels; get both again")
    return arrays


def read_idx(path: Path, inner: tuple[int, ...]) -> NDArray[np.uint8]:
    """An idx file of bytes: [N, *inner]."""
    raw = _content(path)
    start = 8 + 4 * len(inner)
    if len(raw) < start or raw[:4] != bytes([0, 0, 8, 1 + len(inner)]):
        raise DataError(f"{path} is no idx file of bytes in {1 + len(inner)} dimensions; get it again")
    count, *sizes = struct.unpack(f">{1 + len(inner)}I", raw[4:start])
    if tuple(sizes) != inner:
        raise DataError(f"{path} holds images of {sizes} pixels, expected {list(inner)}: it is another data set's")
    expected = count * int(np.prod(inner, dtype=np.int64))
    if count == 0 or len(raw) - start != expected:
        raise DataError(f"{path} is damaged: {len(raw) - start} bytes of data, its head says {expected}; get it again")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(count, *inner)


def _content(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}; get it again") from error
