"""Reader of the MNIST family: four idx files, compressed or not. No torch."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import numpy as np
from numpy.typing import NDArray

from attncem.base.types import DataError, DatasetSpec
from attncem.data.sources import IDX_FILES
from attncem_edge.decoding import require_file

Arrays = dict[str, NDArray[np.generic]]
MOST_BYTES = 2**30
"""Largest number of data bytes in a file; 60,000 images of 28 px have 47 million."""
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
    require_file(path)
    with _reading(path), _opened(path) as stream:
        start = 8 + 4 * len(inner)
        count = _check_head(path, stream.read(start), inner)
        expected = count * int(np.prod(inner, dtype=np.int64))
        if not 0 < expected <= MOST_BYTES:
            raise DataError(f"{path} is damaged: its header says {expected} bytes of data; get it again")
        raw = stream.read(expected + 1)  # read no more than the header declares, even if more is compressed
    if len(raw) != expected:
        got = f"{len(raw)} bytes" if len(raw) < expected else "more"
        raise DataError(f"{path} is damaged: {got} of data, its header says {expected}; get it again")
    return np.frombuffer(raw, np.uint8).reshape(count, *inner)


def _check_head(path: Path, head: bytes, inner: tuple[int, ...]) -> int:
    """The number of items in the header of an idx file."""
    if len(head) < 8 + 4 * len(inner) or head[:4] != bytes([0, 0, 8, 1 + len(inner)]):
        raise DataError(f"{path} is not an idx file of bytes in {1 + len(inner)} dimensions; get it again")
    count, *sizes = struct.unpack(f">{1 + len(inner)}I", head[4:])
    if tuple(sizes) != inner:
        raise DataError(f"{path} holds images of {sizes} pixels, expected {list(inner)}: it is from another data set")
    return int(count)


def _opened(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}; get it again") from error
