"""A user's picture of any size and colour, converted to the input of a network. Pillow, no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from attncem_edge.decoding import GREY, MODES, as_pixels, open_picture, quiet
from attncem_edge.errors import DataError

WIDE = ("I", "I;16", "I;16B", "I;16L")
"""Modes of grey pictures with 16 bits; `I` may also contain larger numbers, which are rejected."""


@dataclass(frozen=True)
class Picture:
    """Pixels uint8 [C, H, W], the conversions applied to the file's pixels, and its size in bytes."""

    pixels: NDArray[np.uint8]
    steps: list[str]
    file_bytes: int


def read_picture(path: Path, shape: tuple[int, int, int], *, squash: bool = False, others: str = "") -> Picture:
    """A picture file in this shape; DataError names an unusable file.

    A file that the data readers accept gets the same pixels from the same decoder. ``squash`` scales the whole picture,
    like `data.image_size`; otherwise the picture is cropped to its centre first. ``others`` names what may stand in
    place of a file.
    """
    if not path.is_file():
        what = "a folder" if path.is_dir() else "not a regular file" if path.exists() else "not there"
        raise DataError(f"{path} is {what}; give an image file{others}")
    with quiet(), open_picture(path) as opened:
        steps = ["first of several frames used"] if opened.animated else []
        steps += ["EXIF orientation applied"] if opened.turned else []
        picture = _sized(_coloured(opened.image, shape[0], steps), shape, steps, squash=squash)
        return Picture(as_pixels(picture, shape), steps, path.stat().st_size)


def _coloured(image: Image.Image, channels: int, steps: list[str]) -> Image.Image:
    """Convert to 8 bits per channel, one channel or three."""
    mode = image.mode
    if mode in WIDE:
        steps.append("converted from 16 to 8 bits")
        return _coloured(_narrowed(image), channels, steps)
    if mode not in MODES:
        raise ValueError(f"pixels of mode {mode}; save it with 8 or 16 bits per channel")
    if mode in ("LA", "PA", "RGBA") or "transparency" in image.info:
        steps.append("transparency left out")
    if channels == 1 and mode not in (*GREY, "LA"):
        steps.append("colours made grey")
    elif channels == 3 and mode in (*GREY, "LA"):
        steps.append("grey copied to three equal channels")
    elif mode in ("CMYK", "YCbCr"):
        steps.append(f"{mode} made RGB")
    return image.convert("L" if channels == 1 else "RGB")


def _narrowed(image: Image.Image) -> Image.Image:
    values = np.asarray(image, np.int64)
    if values.min() < 0 or values.max() > 65535:
        raise ValueError("pixels of 32 bits; save it with 8 or 16 bits per channel")
    return Image.fromarray(np.round(values / 257).astype(np.uint8))


def _sized(image: Image.Image, shape: tuple[int, int, int], steps: list[str], *, squash: bool) -> Image.Image:
    """The centre of the picture with the right aspect ratio, scaled."""
    _, height, width = shape
    if not squash and image.width * height != image.height * width:
        scale = min(image.width / width, image.height / height)
        cut = (max(1, round(width * scale)), max(1, round(height * scale)))
        left, top = (image.width - cut[0]) // 2, (image.height - cut[1]) // 2
        steps.append(f"cropped to the middle {cut[0]}x{cut[1]} of {image.width}x{image.height} px")
        image = image.crop((left, top, left + cut[0], top + cut[1]))
    if image.size == (width, height):
        return image
    steps.append(f"scaled from {image.width}x{image.height} to {width}x{height} px")
    return image.resize((width, height), Image.Resampling.LANCZOS)
