"""Readers: from files to arrays of bytes and labels. Every damaged file is named. No torch."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attncem.data.specs import DATASETS
from attncem.types import DataError, DatasetSpec

MINI_SHA256 = "20959424e8461036307eefb3bd89207e618ab5b3d6c820f4a1aa0577b4559724"


@dataclass(frozen=True)
class RawData:
    """A data set as read: images uint8 [N, C, H, W], labels int64 [N], and the hash of all of it."""

    spec: DatasetSpec
    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.int64]
    sha256: str


def read_dataset(name: str, root: str | Path | None = None) -> RawData:
    """Read a data set of the table, check shapes and labels, and hash it."""
    spec = DATASETS[name]
    arrays = READERS[name](root)
    digest = hashlib.sha256()
    for part in ("train", "test"):
        images, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
        _check_part(spec, part, images, labels)
        digest.update(images.tobytes())
        digest.update(labels.astype("<i8").tobytes())
    return RawData(
        spec,
        arrays["train_images"].astype(np.uint8, copy=False),
        arrays["train_labels"].astype(np.int64),
        arrays["test_images"].astype(np.uint8, copy=False),
        arrays["test_labels"].astype(np.int64),
        digest.hexdigest(),
    )


def read_fashion_mnist_mini(root: str | Path | None = None) -> dict[str, NDArray[np.generic]]:
    """The embedded Fashion-MNIST subset: 5,000 training and 1,000 test images, 28 px grey.

    `root` may name a folder with another copy of fashion_mnist_mini.npz; its hash must be the same.
    """
    folder = resources.files("attncem.data") / "embedded" if root is None else Path(root)
    file = folder / "fashion_mnist_mini.npz"
    if not file.is_file():
        raise DataError(f"{file} is missing; the embedded data comes with the package: reinstall attncem")
    raw = file.read_bytes()
    if hashlib.sha256(raw).hexdigest() != MINI_SHA256:
        raise DataError(f"{file} is damaged: its SHA-256 is not {MINI_SHA256[:12]}…; reinstall attncem")
    arrays = _load_npz(raw, str(file))
    for part in ("train", "test"):
        arrays[f"{part}_images"] = arrays[f"{part}_images"][:, None]
    return arrays


READERS: dict[str, Callable[[str | Path | None], dict[str, NDArray[np.generic]]]] = {
    "fashion_mnist_mini": read_fashion_mnist_mini,
}
"""Reader of each data set: root folder → train_images, train_labels, test_images, test_labels."""


def _load_npz(raw: bytes, name: str) -> dict[str, NDArray[np.generic]]:
    try:
        with np.load(io.BytesIO(raw), allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{name} cannot be read: {error}") from error


def _check_part(spec: DatasetSpec, part: str, images: NDArray[np.generic], labels: NDArray[np.generic]) -> None:
    if images.dtype != np.uint8 or images.shape[1:] != spec.shape:
        raise DataError(
            f"{spec.name}: {part} images have shape {images.shape[1:]} and type {images.dtype}, "
            f"expected {spec.shape} uint8"
        )
    if len(images) != len(labels):
        raise DataError(f"{spec.name}: {len(images)} {part} images but {len(labels)} labels")
    numbers = labels.ndim == 1 and labels.size > 0 and np.issubdtype(labels.dtype, np.integer)
    if not numbers or labels.min() < 0 or labels.max() >= spec.num_classes:
        raise DataError(f"{spec.name}: {part} labels must be one whole number each, in 0…{spec.num_classes - 1}")
