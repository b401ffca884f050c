"""One decoder for the pictures of data sets and users: regular files, limited size, EXIF applied. No torch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image

from attncem_edge.errors import DataError

FORMATS = ("JPEG", "PNG", "BMP", "PPM", "WEBP", "TIFF", "GIF")
"""Formats that Pillow may open; none of them starts another program."""
GREY = ("1", "L")
MODES = (*GREY, "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")
MOST_PIXELS = 89_478_485
"""Largest number of pixels of a picture: 256 MiB of colours."""
TURNS: dict[object, Image.Transpose] = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""The operation that makes a picture upright, by its EXIF orientation."""
SIDEWAYS = (5, 6, 7, 8)


@dataclass(frozen=True)
class Opened:
    """An upright picture, whether EXIF orientation rotated it, and whether it is the first of several frames."""

    image: Image.Image
    turned: bool
    animated: bool


@dataclass(frozen=True)
class Head:
    """Facts of a picture before decoding: its mode, and (width, height) after EXIF orientation."""

    mode: str
    size: tuple[int, int]


@contextmanager
def quiet() -> Iterator[None]:
    """Silences Pillow's warnings, because their causes are checked here. Use it around threads, not inside them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def open_picture(path: Path) -> Iterator[Opened]:
    """A decoded, upright picture; DataError names a file that is not a picture. A special file is not opened."""
    with _reading(path), Image.open(path, formats=FORMATS) as image:
        _check_pixels(path, image.size)
        animated = bool(getattr(image, "is_animated", False))
        stored = _orientation(image)
        image.load()
        turn = TURNS.get(_orientation(image))  # after decoding: Pillow applies the orientation of a TIFF itself
        yield Opened(image if turn is None else image.transpose(turn), stored in TURNS, animated)


def read_head(path: Path) -> Head:
    """A picture's mode and size without decoding it."""
    with _reading(path), Image.open(path, formats=FORMATS) as image:
        _check_pixels(path, image.size)
        sideways = image.format != "TIFF" and _orientation(image) in SIDEWAYS
        return Head(image.mode, image.size[::-1] if sideways else image.size)


def as_pixels(image: Image.Image, shape: tuple[int, int, int]) -> NDArray[np.uint8]:
    """A picture of the right size and mode as bytes [C, H, W]."""
    C, H, W = shape
    return np.asarray(image, np.uint8).reshape(H, W, C).transpose(2, 0, 1)


def require_file(path: Path) -> None:
    """DataError unless it is a regular file: a pipe or a device is never opened, because it could block forever."""
    if path.is_file():
        return
    what = "a folder" if path.is_dir() else "not a regular file" if path.exists() else "not there"
    raise DataError(f"{path} is {what}: expected a file; get it again or remove it")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    require_file(path)
    try:
        yield
    except (DataError, MemoryError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_large(path) from None
    except Exception as error:  # a damaged image can fail in any way
        raise _unreadable(path, error) from error


def _check_pixels(path: Path, size: tuple[int, int]) -> None:
    if size[0] * size[1] > MOST_PIXELS:
        raise _too_large(path)


def _too_large(path: Path) -> DataError:
    return DataError(f"{path} has more than {MOST_PIXELS / 1e6:.0f} million pixels; save it smaller")


def _orientation(image: Image.Image) -> object:
    try:
        return image.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # damaged EXIF data says nothing about the pixels
        return None


def _unreadable(path: Path, error: Exception) -> DataError:
    """The error for a file that is not a complete image."""
    if path.stat().st_size == 0:
        return DataError(f"{path} is empty; get it again or remove it")
    reason = str(error).replace(f" {str(path)!r}", "")
    return DataError(f"{path} cannot be read as an image: {reason}; get it again or remove it")
