"""Pictures from elsewhere for an attacker: a folder with pictures at any depth, or the training images of a set.

They are scaled to the size of the model's images, and turned grey or coloured as those are. Labels are not read.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from attncem.base.shown_paths import shown_path
from attncem.base.types import ConfigError, DataError
from attncem.config.loading.suggest import did_you_mean, nearest
from attncem.config.threats import FEWEST_IMAGES, Pictures
from attncem.data.folders import list_images, read_scaled, scaled_pixels
from attncem.data.readers import FOLDER_SETS, read_dataset, stamp_of, walked
from attncem.data.sources import is_picture, locate
from attncem.data.specs import DATASETS

Shape = tuple[int, int, int]
_SEED = 20261119
"""Seed of the choice among more pictures than wanted: the same for every audit."""


@dataclass(frozen=True)
class Outside:
    """Where pictures from elsewhere are: a folder, or the name of a data set; ``count``: only so many of them."""

    source: str
    count: int | None = None

    def __post_init__(self) -> None:
        """ConfigError where the source is neither a folder nor a data set."""
        if not self.is_folder:
            sets = [name for name in DATASETS if name != "image_folder"]
            if self.source not in sets:
                guess = did_you_mean(nearest(self.source, sets, 0.4)) or "."
                raise ConfigError(
                    f"attacker_data={self.source}: there is no such folder or data set{guess} "
                    f"Data sets: {', '.join(sets)}"
                )

    @property
    def is_folder(self) -> bool:
        """Whether the source is a folder, and not the name of a data set."""
        return bool(self.source) and Path(self.source).is_dir()

    def read(self, shape: Shape) -> tuple[NDArray[np.uint8], Pictures]:
        """The pictures as bytes [N, C, H, W], and the facts that identify them."""
        if self.is_folder:
            folder: Path | None = Path(self.source)
        else:
            folder = locate(self.source) if self.source in FOLDER_SETS else None
        return _read(self, folder, shape, "" if folder is None else stamp_of(folder))


@lru_cache(maxsize=1)
def _read(outside: Outside, folder: Path | None, shape: Shape, mark: str) -> tuple[NDArray[np.uint8], Pictures]:
    """The pictures, kept until others are read; `mark` changes when a file of the folder does."""
    name = source = outside.source
    if folder is None:
        every = read_dataset(source).train_images
        images = _scaled(every[_chosen(len(every), outside)], shape)
    else:
        if outside.is_folder:
            name, paths = Path(shown_path(folder.resolve())).name, _below(folder)
        else:
            paths = [path for path, _ in list_images(source, folder).train]
        images = read_scaled([paths[place] for place in _chosen(len(paths), outside)], shape)
    images.flags.writeable = False
    return images, Pictures(name, len(images), hashlib.sha256(images.tobytes()).hexdigest())


def _below(folder: Path) -> list[Path]:
    """All pictures below a folder, sorted by path."""
    paths = sorted(path for place, names in walked(folder) for name in names if is_picture(path := Path(place) / name))
    if not paths:
        raise DataError(f"attacker_data={folder} has no pictures")
    return paths


def _chosen(count: int, outside: Outside) -> NDArray[np.int64]:
    """Indices of the wanted number of pictures in a fixed random order."""
    least = max(FEWEST_IMAGES, outside.count or 0)
    if count < least:
        raise ConfigError(f"attacker_data={outside.source} has {count} pictures; {least} are needed")
    return np.random.default_rng(_SEED).permutation(count)[: outside.count]


def _scaled(images: NDArray[np.uint8], shape: Shape) -> NDArray[np.uint8]:
    """Images [N, C, H, W] in another size and with another number of channels."""
    if images.shape[1:] == shape:
        return images
    made = np.empty((len(images), *shape), np.uint8)
    for place, pixels in enumerate(images):
        picture = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
        made[place] = scaled_pixels(picture, shape)
    return made
