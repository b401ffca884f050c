"""Where to search for data sets, which files they need, and how to get them. No torch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from attncem.base.types import DataError

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm", ".pbm", ".webp", ".tif", ".tiff", ".gif")
"""Suffixes of picture files."""
SYSTEM_PLACE = Path("/usr/share/datasets")
"""Folder of the data sets in Debian's packages."""


@dataclass(frozen=True)
class Source:
    """How to find and get one data set."""

    folders: tuple[str, ...]
    """Possible names of its folder below a searched place; the first is the standard one."""
    files: tuple[str, ...]
    """Required files: relative paths, `a|b` for either; a file may also be compressed as .gz."""
    how: str
    """How to get it, as a text."""
    train: int | None = None
    test: int | None = None
    """Published number of images; None: any."""
    sha256: str | None = None
    """Hash of pixels and labels as read; None: unknown."""
    md5: tuple[tuple[str, str], ...] = ()
    """Published MD5 sums of the original files."""


CIFAR10_MD5 = (
    ("data_batch_1", "c99cafc152244af753f735de768cd75f"),
    ("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
    ("data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
    ("data_batch_4", "634d18415352ddfa80567beed471001a"),
    ("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
    ("test_batch", "40351d587109b95175f43aff81a1287e"),
)
CIFAR100_MD5 = (("train", "16019d7e3df5f24257cddd939b257f8d"), ("test", "f0ef6b0ae62326f3e7ffdfab6717acfc"))
IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)

CREDITS = {
    "fashion_mnist_mini": "Fashion-MNIST, Zalando SE, MIT licence",
    "fashion_mnist": "Fashion-MNIST, Zalando SE, MIT licence",
    "cifar10": "CIFAR-10, Alex Krizhevsky, 2009",
    "cifar100": "CIFAR-100, Alex Krizhevsky, 2009",
    "tiny_imagenet_200": "Tiny ImageNet, Stanford CS231n",
    "facescrub": "FaceScrub, Hong-Wei Ng and Stefan Winkler, 2014",
    "lfw_people": "Labeled Faces in the Wild, University of Massachusetts, 2007",
}
"""Whose pictures a data set holds, for files that contain some of them; a folder of the user's has no line."""

SOURCES: dict[str, Source] = {
    "fashion_mnist_mini": Source(
        (),
        (),
        "it comes with the package: reinstall attncem",
        5000,
        1000,
        sha256="39336b5fd30685bd1ea9ab14094a791ac9b2573730f8343b2e819d1f06c42209",
    ),
    "fashion_mnist": Source(
        ("fashion-mnist", "FashionMNIST/raw"),
        IDX_FILES,
        "Debian package dataset-fashion-mnist, or the four files of zalandoresearch/fashion-mnist on GitHub",
        60000,
        10000,
        sha256="ece172613115fb18b120bec8f6c02271af90b8b8f0a5af5c51cbd5ceed68e619",
    ),
    "cifar10": Source(
        ("cifar-10-batches-py",),
        tuple(name for name, _ in CIFAR10_MD5),
        "the Python version from the CIFAR page of the University of Toronto (Alex Krizhevsky), unpacked",
        50000,
        10000,
        # of a lossless copy in the original order: files made from it have other MD5 sums
        sha256="9048fcbac9c08a64d57a7c5a5a66750a974ad4eab380914df129f7e223d823df",
        md5=CIFAR10_MD5,
    ),
    "cifar100": Source(
        ("cifar-100-python",),
        ("train", "test"),
        "the Python version from the CIFAR page of the University of Toronto (Alex Krizhevsky), unpacked",
        50000,
        10000,
        md5=CIFAR100_MD5,
    ),
    "tiny_imagenet_200": Source(
        ("tiny-imagenet-200",),
        ("wnids.txt", "train", "val/images", "val/val_annotations.txt"),
        "tiny-imagenet-200.zip of Stanford's course CS231n, unpacked; research only",
    ),
    "facescrub": Source(
        ("facescrub-dataset/48x48", "facescrub"),
        ("train", "validate"),
        "on request from the FaceScrub authors (vintage.winklerbros.net); faces cut out and scaled to 48 px, "
        "one folder per person below train and validate; research only",
    ),
    "lfw_people": Source(
        ("lfw_people", "lfw_id158_64"),
        ("train", "val"),
        "Labeled Faces in the Wild (University of Massachusetts); people with at least 10 images at 64 px, "
        "one folder per person below train and val; research only",
    ),
    "image_folder": Source(
        (),
        ("train", "test|val|validation|validate"),
        "any folder with train/CLASS/IMAGE and test/CLASS/IMAGE (or val, validation), or CLASS/IMAGE alone, or "
        "pictures alone, which have no labels; name it with data.root=FOLDER",
    ),
}
"""Sources by the names of the data sets."""


def places(name: str, root: str | Path | None = None) -> list[Path]:
    """The folders to search for a data set, the most likely first."""
    folders = SOURCES[name].folders
    given = os.environ.get("ATTNCEM_DATA")
    if root is not None:
        beside = [Path(given) / root] if given and not Path(root).is_absolute() else []  # archives keep only its name
        return [place / part for place in (Path(root), *beside) for part in (*folders, "")]
    above = [*([Path(given)] if given else []), Path("data"), SYSTEM_PLACE]
    return [place / folder for place in above for folder in folders]


def lies_in_classes(folder: Path) -> bool:
    """Whether it directly contains folders of pictures, and none with the name of a part of a set.

    One folder alone counts if there are no pictures beside it.
    """
    parts = [path for entry in SOURCES["image_folder"].files for path in entry.split("|")]
    if not folder.is_dir() or any((folder / part).exists() for part in parts):
        return False
    inside = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    filled = sum(any(file.suffix.lower() in SUFFIXES for file in path.iterdir()) for path in inside)
    return filled >= (2 if any(map(is_picture, folder.iterdir())) else 1)


def lies_flat(folder: Path) -> bool:
    """Whether it directly contains pictures, and neither classes nor parts of a set."""
    parts = [path for entry in SOURCES["image_folder"].files for path in entry.split("|")]
    if not folder.is_dir() or any((folder / part).is_dir() for part in parts) or lies_in_classes(folder):
        return False
    return any(is_picture(path) for path in folder.iterdir())


def flat_pictures(folder: Path) -> list[Path]:
    """The pictures directly in a folder, by name; files with other names are ignored."""
    return sorted(path for path in folder.iterdir() if is_picture(path))


def is_picture(path: Path) -> bool:
    """Whether a file is a picture by its name."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and not path.is_dir()


def missing_files(name: str, folder: Path) -> list[str]:
    """Files that the data set needs and the folder does not have."""
    if name == "image_folder" and (lies_in_classes(folder) or lies_flat(folder)):
        return []
    return [entry for entry in SOURCES[name].files if not any(_exists(folder / path) for path in entry.split("|"))]


def _exists(path: Path) -> bool:
    return path.exists() or path.with_name(f"{path.name}.gz").is_file()


def find(name: str, root: str | Path | None = None) -> Path | None:
    """The first place that has any file of the data set."""
    needed = len(SOURCES[name].files)
    return next((place for place in places(name, root) if len(missing_files(name, place)) < needed), None)


def locate(name: str, root: str | Path | None = None) -> Path:
    """The folder of the data set with all its files; DataError names the missing ones and how to get them."""
    folder = find(name, root)
    if folder is None:
        looked = ", ".join(str(place) for place in places(name, root)) or "no folder: data.root is not given"
        raise DataError(f"{name} is missing; looked in {looked}. Get it: {SOURCES[name].how}")
    missing = missing_files(name, folder)
    if missing:
        named = ", ".join(str(folder / entry) for entry in missing)
        raise DataError(f"{name}: {named} is missing. Get it again: {SOURCES[name].how}")
    return folder
