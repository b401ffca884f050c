"""Readers of image files in folders: Tiny-ImageNet, people, any folder per class, and pictures without labels.

Pillow, no torch.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from attncem.base.types import DataError, DatasetSpec
from attncem.data.sources import flat_pictures, lies_flat, lies_in_classes
from attncem_edge.decoding import GREY, MODES, as_pixels, open_picture, quiet, read_head, require_file

T = TypeVar("T")
Arrays = dict[str, NDArray[np.generic]]
TEST_FOLDERS = {"facescrub": ("validate",), "lfw_people": ("val",)}
ANY_TEST_FOLDER = ("test", "val", "validation", "validate")
IGNORED = ("Thumbs.db", "desktop.ini")
SAMPLE = 4096
"""Largest number of training images, evenly spread, for mean and standard deviation."""
CHUNK = 128
TEST_EVERY = 5
"""Classes without parts: every fifth file by name is a test image, in smaller classes the last."""
NAMED = 100
"""Largest number of bad files in one error; reading stops after that."""


@dataclass(frozen=True)
class Listing:
    """The files of a data set with their labels, in a fixed order; without classes all labels are 0."""

    classes: tuple[str, ...]
    train: list[tuple[Path, int]]
    test: list[tuple[Path, int]]


# files


def list_images(name: str, folder: Path) -> Listing:
    """The files of a set of folders."""
    return _list_tiny(folder) if name == "tiny_imagenet_200" else _list_classes(name, folder)


def _list_classes(name: str, folder: Path) -> Listing:
    """train/CLASS/IMAGE and test/CLASS/IMAGE; the training folders, sorted, are the classes."""
    if name == "image_folder" and lies_in_classes(folder):
        return _list_undivided(folder)
    if name == "image_folder" and lies_flat(folder):
        return _list_flat(folder)
    tests = [folder / test for test in TEST_FOLDERS.get(name, ANY_TEST_FOLDER)]
    train, test = folder / "train", next((path for path in tests if path.is_dir()), tests[0])
    if name == "image_folder" and lies_flat(train) and lies_flat(test):
        return Listing((), *([(path, 0) for path in flat_pictures(part)] for part in (train, test)))
    classes = tuple(sorted(path.name for path in _folders(train)))
    number = {label: position for position, label in enumerate(classes)}
    for path in _folders(test):
        if path.name not in number:
            raise DataError(f"{path} is a class without training images: there is no {train / path.name}; remove it")
    parts = ([(path, number[c.name]) for c in _folders(part) for path in _entries(c)] for part in (train, test))
    return Listing(classes, *parts)


def _list_undivided(folder: Path) -> Listing:
    """CLASS/IMAGE: every fifth file of a class by name is a test image, or the last if there are fewer."""
    classes, train, test = _folders(folder), list[tuple[Path, int]](), list[tuple[Path, int]]()
    for label, place in enumerate(classes):
        files = _entries(place)
        if len(files) < 2:
            raise DataError(f"{place} has one file only; a class needs one to train on and one to test on: add some")
        every = min(TEST_EVERY, len(files))
        for number, file in enumerate(files, 1):
            (train if number % every else test).append((file, label))
    return Listing(tuple(place.name for place in classes), train, test)


def _list_flat(folder: Path) -> Listing:
    """IMAGE alone: no classes; every fifth file by name is a test image."""
    files = flat_pictures(folder)
    parts: tuple[list[tuple[Path, int]], list[tuple[Path, int]]] = ([], [])
    for number, file in enumerate(files, 1):
        parts[number % TEST_EVERY == 0].append((file, 0))
    if not parts[1]:
        raise DataError(f"{folder} has {len(files)} pictures only; {TEST_EVERY} are needed to try an attack: add some")
    return Listing((), *parts)


def listing_notes(name: str, folder: Path) -> list[str]:
    """Notes for the user about the files before training: how they were divided, and very small classes."""
    listing = list_images(name, folder)
    notes = []
    if name == "image_folder" and lies_in_classes(folder):
        notes.append(
            f"{folder} has no train and test folders: "
            f"{len(listing.test)} images (every fifth of a class) are the test images"
        )
    if len(listing.classes) < 2:
        what = "one class only" if listing.classes else "no folders of classes"
        return [f"{folder} has {what}: its pictures have no labels; they can be audited, not trained on"]
    trained, tested = (Counter(label for _, label in part) for part in (listing.train, listing.test))
    single = [label for number, label in enumerate(listing.classes) if trained[number] == 1]
    absent = [label for number, label in enumerate(listing.classes) if not tested[number]]
    if single:
        notes.append(f"one training image only: {_some(single)}; nothing can be said about the spread inside a class")
    if absent:
        notes.append(f"no test image: {_some(absent)}; accuracy and audits say nothing about them")
    return notes


def _some(names: Sequence[str]) -> str:
    """The first names, and their total number."""
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _list_tiny(folder: Path) -> Listing:
    """Tiny-ImageNet: wnids.txt lists the classes (200, or fewer for a subset) in order."""
    ids = _lines(folder / "wnids.txt")
    number = {name: label for label, name in enumerate(ids)}
    if len(number) < len(ids):
        raise DataError(f"{folder / 'wnids.txt'} lists a class twice; get it again")
    for path in _folders(folder / "train"):
        if path.name not in number:
            raise DataError(f"{path} is not a class of {folder / 'wnids.txt'}; remove it or add its line")
    train = [(path, number[name]) for name in ids for path in _entries(folder / "train" / name / "images")]
    return Listing(_tiny_names(folder, ids), train, _tiny_test(folder / "val", number))


def _tiny_test(folder: Path, number: dict[str, int]) -> list[tuple[Path, int]]:
    annotations = folder / "val_annotations.txt"
    there = {path.name: path for path in _entries(folder / "images")}
    labelled: dict[str, int] = {}
    for line in _lines(annotations):
        name, label = (*line.split("\t"), "")[:2]
        if label not in number:
            raise DataError(f"{annotations}: {name} has the unknown class '{label}'; get the file again")
        if name not in there:
            raise DataError(f"{folder / 'images' / name} is missing; {annotations.name} lists it: get it again")
        if labelled.setdefault(name, number[label]) != number[label]:
            raise DataError(f"{annotations}: {name} has two classes; get the file again")
    for name, path in there.items():
        if name not in labelled:
            raise DataError(f"{path} has no line in {annotations}; remove the image or get the file again")
    return [(there[name], label) for name, label in labelled.items()]


def _tiny_names(folder: Path, ids: Sequence[str]) -> tuple[str, ...]:
    """The first word for each class in words.txt, if that file exists."""
    words = folder / "words.txt"
    rows = (line.partition("\t") for line in _lines(words)) if words.is_file() else ()
    names = {number: text.split(",")[0].strip() for number, _, text in rows}
    return tuple(names.get(number, number) for number in ids)


def _lines(path: Path) -> list[str]:
    require_file(path)
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}; get it again") from error
    if not lines:
        raise DataError(f"{path} is empty; get it again")
    return lines


def _entries(folder: Path) -> list[Path]:
    try:
        found = sorted(entry.name for entry in os.scandir(folder))
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror}; get it again") from error
    found = [name for name in found if not name.startswith(".") and name not in IGNORED]
    if not found:
        raise DataError(f"{folder} is empty; get its files again, or remove it")
    return [folder / name for name in found]


def _folders(folder: Path) -> list[Path]:
    found = [path for path in _entries(folder) if path.is_dir()]
    if not found:
        raise DataError(f"{folder} has no folders; expected one for each class")
    return found


# facts


def folder_spec(row: DatasetSpec, folder: Path, image_size: int | None = None) -> DatasetSpec:
    """The facts of a set of folders: its classes; shape, mean and std if the table has none."""
    listing = list_images(row.name, folder)
    paths = [path for path, _ in listing.train]
    sample = paths[:: -(-len(paths) // SAMPLE)]
    C, H, W = row.shape if row.shape[0] else _found_shape(sample)
    shape = (C, image_size or H, image_size or W)
    classes = listing.classes if len(listing.classes) > 1 else ()  # a single class labels nothing
    spec = replace(row, shape=shape, num_classes=len(classes), class_names=classes)
    if row.mean:
        return spec
    mean, std = channel_statistics(_decode_all(sample, spec.shape, resize=image_size is not None)[0])
    return replace(spec, mean=mean, std=std)


def _found_shape(paths: Sequence[Path]) -> tuple[int, int, int]:
    """Size of the first image; one channel if all the images are grey, else three."""
    heads = _each(paths, read_head)
    width, height = heads[0].size
    return (1 if all(head.mode in GREY for head in heads) else 3, height, width)


def channel_statistics(images: NDArray[np.uint8]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel for pixels in [0, 1]; exact, from histograms."""
    values = np.arange(256) / 255
    mean, std = [], []
    for channel in range(images.shape[1]):
        weights = np.bincount(images[:, channel].ravel(), minlength=256) / images[:, channel].size
        mean.append(float(weights @ values))
        std.append(float(np.sqrt(weights @ (values - mean[-1]) ** 2)) or 1.0)
    return tuple(mean), tuple(std)


# pixels


def read_folders(folder: Path, spec: DatasetSpec, *, resize: bool = False) -> Arrays:
    """Every image of the set, decoded; `turned` counts the images that EXIF orientation rotated."""
    listing, turned = list_images(spec.name, folder), 0
    arrays: Arrays = {}
    for part, files in (("train", listing.train), ("test", listing.test)):
        images, count = _decode_all([path for path, _ in files], spec.shape, resize=resize)
        arrays[f"{part}_images"] = images
        arrays[f"{part}_labels"] = np.array([label for _, label in files], np.int64)
        turned += count
    return {**arrays, "turned": np.array(turned)}


def read_scaled(paths: Sequence[Path], shape: tuple[int, int, int]) -> NDArray[np.uint8]:
    """Pictures of any size, grey or in colour, as images [N, C, H, W]; one DataError names all bad files."""

    def read(path: Path) -> NDArray[np.uint8]:
        with open_picture(path) as opened:
            _check_mode(path, opened.image)
            return scaled_pixels(opened.image, shape)

    return np.stack(_each(paths, read))


def check_files(name: str, folder: Path) -> tuple[tuple[int, int], tuple[int, int]]:
    """Decode every file of a set; the smallest and the largest (width, height). One DataError names all bad files."""
    listing = list_images(name, folder)
    sizes = _each([path for path, _ in (*listing.train, *listing.test)], _size_of)
    return min(sizes), max(sizes)


def _size_of(path: Path) -> tuple[int, int]:
    with open_picture(path) as opened:
        _check_mode(path, opened.image)
        return opened.image.size


def _decode_all(paths: Sequence[Path], shape: tuple[int, int, int], *, resize: bool) -> tuple[NDArray[np.uint8], int]:
    """Images [N, C, H, W], and how many of them were rotated."""
    out = np.empty((len(paths), *shape), np.uint8)
    place = {path: position for position, path in enumerate(paths)}

    def decode(path: Path) -> bool:
        out[place[path]], turned = _decode(path, shape, resize=resize)
        return turned

    return out, sum(_each(paths, decode))


def _each(paths: Sequence[Path], read: Callable[[Path], T]) -> list[T]:
    """The result of `read` for every file, with a few threads: Pillow releases Python's lock. Names every bad file."""
    problems: list[DataError] = []

    def read_some(start: int) -> list[T]:
        found = []
        for path in paths[start : start + CHUNK] if len(problems) <= NAMED else ():
            try:
                found.append(read(path))
            except DataError as error:
                problems.append(error)
        return found

    pool = ThreadPoolExecutor(min(8, (os.cpu_count() or 1) + 1))
    with quiet():
        try:
            found = [item for some in pool.map(read_some, range(0, len(paths), CHUNK)) for item in some]
        finally:
            pool.shutdown(cancel_futures=True)
    if problems:
        raise _joined(problems)
    return found


def _joined(problems: Sequence[DataError]) -> DataError:
    """One error for all bad files."""
    if len(problems) == 1:
        return problems[0]
    lines = [f"  {line}" for line in sorted(str(problem) for problem in problems)]
    many = f"{len(problems)}" if len(problems) <= NAMED else f"more than {NAMED}"
    return DataError("\n".join([f"{many} files cannot be used:", *lines[:NAMED]]))


def decode_image(path: Path, shape: tuple[int, int, int], *, resize: bool = False) -> NDArray[np.uint8]:
    """One image [C, H, W], upright. Another size, or colour in a grey set, is an error that names the file."""
    with quiet():
        return _decode(path, shape, resize=resize)[0]


def _decode(path: Path, shape: tuple[int, int, int], *, resize: bool) -> tuple[NDArray[np.uint8], bool]:
    with open_picture(path) as opened:
        image = opened.image
        _check_image(path, image, shape, resize=resize)
        return scaled_pixels(image, shape), opened.turned


def scaled_pixels(image: Image.Image, shape: tuple[int, int, int]) -> NDArray[np.uint8]:
    """A picture in this size, grey or in colour."""
    C, H, W = shape
    picture = image.convert("L" if C == 1 else "RGB")
    picture = picture.resize((W, H), Image.Resampling.LANCZOS) if picture.size != (W, H) else picture
    return as_pixels(picture, shape)


def _check_image(path: Path, image: Image.Image, shape: tuple[int, int, int], *, resize: bool) -> None:
    C, H, W = shape
    _check_mode(path, image)
    if C == 1 and image.mode not in GREY:
        raise DataError(f"{path} has colours, the other images are grey; save it as grey or remove it")
    if not resize and image.size != (W, H):
        size = f"{image.width}x{image.height}"
        raise DataError(f"{path} is {size} px, expected {W}x{H}; data.image_size, or --size, scales all images")


def _check_mode(path: Path, image: Image.Image) -> None:
    if image.mode not in MODES:
        raise DataError(f"{path} has pixels of mode {image.mode}; save it with 8 bits per channel")
