"""One picture of a user, of any size and colour, made into what a network was trained on. Pillow, no torch."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image

from attncem.data.folders import FORMATS, GREY, MODES, unreadable
from attncem.types import DataError

WIDE = ("I", "I;16", "I;16B", "I;16L")
"""Modes of grey pictures with 16 bits; `I` also holds larger numbers, which are refused."""
TURNS: dict[object, Image.Transpose] = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What brings a picture upright, by its EXIF orientation."""


@dataclass(frozen=True)
class Picture:
    """Pixels uint8 [C, H, W], what was done to the file's own, and its size in bytes."""

    pixels: NDArray[np.uint8]
    steps: list[str]
    file_bytes: int


def read_picture(path: Path, shape: tuple[int, int, int], *, squash: bool = False) -> Picture:
    """A picture file at the given shape; DataError names a file that cannot be used.

    A file that the data readers accept gets the same pixels, but one turned by its EXIF data is turned here.
    ``squash`` scales the whole picture, as `data.image_size` does; otherwise its middle is cut out first.
    """
    if not path.is_file():
        raise DataError(f"{path} is {'a folder' if path.is_dir() else 'not there'}; give an image file or test:NUMBER")
    steps: list[str] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=FORMATS) as image:
                picture = _sized(_coloured(_upright(image, steps), shape[0], steps), shape, steps, squash=squash)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        limit = f"{(Image.MAX_IMAGE_PIXELS or 0) / 1e6:.0f} million"
        raise DataError(f"{path} has more than {limit} pixels; save it smaller") from error
    except Exception as error:  # a damaged image can fail in any way
        raise unreadable(path, error) from error
    pixels = np.asarray(picture, np.uint8).reshape(shape[1], shape[2], shape[0]).transpose(2, 0, 1)
    return Picture(pixels, steps, path.stat().st_size)


def _upright(image: Image.Image, steps: list[str]) -> Image.Image:
    """The first frame, turned as a camera says."""
    if getattr(image, "is_animated", False):
        steps.append("first of several frames taken")
    turn = TURNS.get(_orientation(image))
    if turn is None:
        return image
    steps.append("turned as its EXIF data says")
    return image.transpose(turn)


def _orientation(image: Image.Image) -> object:
    try:
        return image.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # damaged EXIF data says nothing about the pixels
        return None


def _coloured(image: Image.Image, channels: int, steps: list[str]) -> Image.Image:
    """8 bits per channel, one channel or three."""
    mode = image.mode
    if mode in WIDE:
        steps.append("16 bits made 8")
        return _coloured(_narrowed(image), channels, steps)
    if mode not in MODES:
        raise ValueError(f"pixels of mode {mode}; save it with 8 or 16 bits per channel")
    if mode in ("LA", "PA", "RGBA") or "transparency" in image.info:
        steps.append("transparency left out")
    if channels == 1 and mode not in (*GREY, "LA"):
        steps.append("colours made grey")
    elif channels == 3 and mode in (*GREY, "LA"):
        steps.append("grey made three equal channels")
    elif mode in ("CMYK", "YCbCr"):
        steps.append(f"{mode} made RGB")
    return image.convert("L" if channels == 1 else "RGB")


def _narrowed(image: Image.Image) -> Image.Image:
    values = np.asarray(image, np.int64)
    if values.min() < 0 or values.max() > 65535:
        raise ValueError("pixels of 32 bits; save it with 8 or 16 bits per channel")
    return Image.fromarray(np.round(values / 257).astype(np.uint8))


def _sized(image: Image.Image, shape: tuple[int, int, int], steps: list[str], *, squash: bool) -> Image.Image:
    """The middle of the picture in the right proportions, scaled."""
    _, height, width = shape
    if not squash and image.width * height != image.height * width:
        scale = min(image.width / width, image.height / height)
        cut = (max(1, round(width * scale)), max(1, round(height * scale)))
        left, top = (image.width - cut[0]) // 2, (image.height - cut[1]) // 2
        steps.append(f"middle {cut[0]}x{cut[1]} of {image.width}x{image.height} px cut out")
        image = image.crop((left, top, left + cut[0], top + cut[1]))
    if image.size == (width, height):
        return image
    steps.append(f"scaled from {image.width}x{image.height} to {width}x{height} px")
    return image.resize((width, height), Image.Resampling.LANCZOS)
