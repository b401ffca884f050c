"""Readers: from files to arrays of bytes and labels. Errors name every damaged file. No torch."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attncem.base.types import ConfigError, DataError, DatasetSpec
from attncem.config.loading.suggest import known
from attncem.config.options.data import DataOptions
from attncem.data.cifar import read_cifar10, read_cifar100
from attncem.data.folders import folder_spec, read_folders
from attncem.data.idx import read_idx_set
from attncem.data.sources import locate
from attncem.data.specs import DATASETS

EMBEDDED = "fashion_mnist_mini"
MINI_SHA256 = "20959424e8461036307eefb3bd89207e618ab5b3d6c820f4a1aa0577b4559724"


Arrays = dict[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Request:
    """The request to a reader: the folder, the facts, and whether images are scaled to them."""

    root: str | Path | None
    spec: DatasetSpec
    resize: bool = False

    @property
    def folder(self) -> Path:
        """The folder of the data set."""
        return locate(self.spec.name, self.root)


@dataclass(frozen=True)
class RawData:
    """A data set in memory: images uint8 [N, C, H, W], labels int64 [N], and the hash of both."""

    spec: DatasetSpec
    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.int64]
    sha256: str
    turned: int = 0
    """Number of pictures that EXIF orientation rotated."""


def dataset_spec(options: DataOptions) -> DatasetSpec:
    """The facts of the data set that the options name; for folders of images, from the folder."""
    row = DATASETS[known("data.name", options.name, DATASETS)]
    if row.name in FOLDER_SETS:
        return folder_spec(row, locate(row.name, options.root), options.image_size)
    if options.image_size is not None:
        raise ConfigError(
            f"data.image_size={options.image_size}: {row.name} has {row.shape[1]} px and is not scaled; "
            f"leave it out (it works with {', '.join(FOLDER_SETS)})"
        )
    return row


class _Kept:
    """The last data set, if it should be kept in memory."""

    wanted = False
    key: object = None
    data: RawData | None = None


def keep_last_read() -> None:
    """Keep the last data set of this process in memory until a file changes.

    For processes that work on several runs, because decoding many pictures takes time.
    """
    _Kept.wanted = True


def read_dataset(name: str, root: str | Path | None = None, image_size: int | None = None) -> RawData:
    """Read a data set of the table, check shapes and labels, and hash it."""
    if not _Kept.wanted or name not in DATASETS or name == EMBEDDED:
        return _read(name, root, image_size)
    folder = locate(name, root)
    key = (name, folder.resolve(), image_size, stamp_of(folder))
    if _Kept.data is None or _Kept.key != key:
        _Kept.data = None  # never two data sets in memory at once
        _Kept.key, _Kept.data = key, _read(name, root, image_size)
    return _Kept.data


def walked(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Every folder from this one down with its files, also behind links, each once and in a fixed order."""
    visited: set[str] = set()
    for path, folders, files in os.walk(folder, followlinks=True):
        folders.sort()
        place = os.path.realpath(path)
        if place in visited:
            folders.clear()
            continue
        visited.add(place)
        yield path, sorted(files)


def stamp_of(folder: Path) -> str:
    """A value that changes when a file below the folder is added, removed or written."""
    digest = hashlib.sha256()
    for path, files in walked(folder):
        for file in (os.path.join(path, name) for name in files):  # noqa: PTH118 - many files
            facts = os.stat(file) if os.path.exists(file) else os.lstat(file)  # noqa: PTH110, PTH116 - many files
            digest.update(f"{file} {facts.st_size} {facts.st_mtime_ns} {facts.st_ino}\n".encode(errors="replace"))
    return digest.hexdigest()


def _read(name: str, root: str | Path | None, image_size: int | None) -> RawData:
    spec = dataset_spec(DataOptions(name=name, root=None if root is None else str(root), image_size=image_size))
    arrays = READERS[name](Request(root, spec, resize=image_size is not None))
    digest = hashlib.sha256()
    for part in ("train", "test"):
        images, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
        _check_part(spec, part, images, labels)
        digest.update(np.ascontiguousarray(images).data)
        digest.update(labels.astype("<i8").tobytes())
    return RawData(
        spec,
        arrays["train_images"].astype(np.uint8, copy=False),
        arrays["train_labels"].astype(np.int64),
        arrays["test_images"].astype(np.uint8, copy=False),
        arrays["test_labels"].astype(np.int64),
        digest.hexdigest(),
        int(arrays.get("turned", np.array(0))),
    )


def _where_else(root: str | Path | None) -> str:
    """Advice if the embedded images are missing in a folder: it probably holds the user's pictures."""
    if root is None:
        return "the embedded data comes with the package: reinstall attncem"
    if not Path(root).is_dir():
        return f"there is no folder {root}"
    return (
        f"for pictures of your own in {root} give data.name=image_folder too, or take --config own-pictures; "
        "for another set give its name (attncem data)"
    )


def read_fashion_mnist_mini(root: str | Path | None = None) -> Arrays:
    """The embedded Fashion-MNIST subset: 5,000 training and 1,000 test images, 28 px, grey.

    `root` may name a folder with another copy of fashion_mnist_mini.npz; its hash must be the same.
    """
    folder = resources.files("attncem.data") / "embedded" if root is None else Path(root)
    file = folder / "fashion_mnist_mini.npz"
    if not file.is_file():
        raise DataError(f"{file} is missing; {_where_else(root)}")
    raw = file.read_bytes()
    if hashlib.sha256(raw).hexdigest() != MINI_SHA256:
        raise DataError(f"{file} is damaged: its SHA-256 is not {MINI_SHA256[:12]}…; reinstall attncem")
    arrays = {key: array.copy() for key, array in _load_npz(raw, str(file)).items()}
    for part in ("train", "test"):
        arrays[f"{part}_images"] = arrays[f"{part}_images"][:, None]
    return arrays


FOLDER_SETS = ("tiny_imagenet_200", "facescrub", "lfw_people", "image_folder")
"""Sets of image files, whose facts come from the folder."""
READERS: dict[str, Callable[[Request], Arrays]] = {
    EMBEDDED: lambda request: read_fashion_mnist_mini(request.root),
    "fashion_mnist": lambda request: read_idx_set(request.folder, request.spec),
    "cifar10": lambda request: read_cifar10(request.folder, request.spec),
    "cifar100": lambda request: read_cifar100(request.folder, request.spec),
    **dict.fromkeys(FOLDER_SETS, lambda request: read_folders(request.folder, request.spec, resize=request.resize)),
}
"""Reader of each data set: request → train_images, train_labels, test_images, test_labels, optionally turned."""


@lru_cache(maxsize=1)
def _load_npz(raw: bytes, name: str) -> Arrays:
    """The arrays of the embedded file, unpacked once for every run and audit of a process."""
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
    if not numbers or labels.min() < 0 or labels.max() >= (spec.num_classes or 1):
        raise DataError(f"{spec.name}: {part} labels must be one whole number each, in 0…{spec.num_classes - 1}")
