"""Golden vectors: noise and preprocessing give the numbers that were committed before they moved into this package."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edge_golden import GOLDEN, KEY, SECRET, pattern
from PIL import Image

from attncem_edge import noise
from attncem_edge.pictures import read_picture

LAWS = ("normal", "laplace", "uniform")
STAGES = (0, 1, 7)
KEYED = {
    "plain": ("", 0, b""),
    "of a model": ("ab" * 32, 0, bytes(range(256)) * 3),
    "of a stage": ("ab" * 32, 3, bytes(range(256)) * 3),
    "with a name": ("Ünder", 2, b"\x00\xff"),
}
SHAPES = {"rgb 32": (3, 32, 32), "grey 28": (1, 28, 28), "wide": (3, 16, 40)}


def draws() -> dict[str, list[float]]:
    """First numbers and two sums of each law and stage."""
    made = {(law, stage): noise.draw(SECRET, law, 20_000, stage) for law in LAWS for stage in STAGES}
    parts = {key: [*row[:6], *row[-2:], np.sort(row)[0], np.sort(row)[-1]] for key, row in made.items()}
    return {f"{law} {stage}": [float(it) for it in row] for (law, stage), row in parts.items()}


def grids() -> list[float]:
    """Releases of local_dp, multiples of the grid."""
    z = np.linspace(-3, 5, 24).reshape(2, 12)
    z[1, 3] = np.nan
    numbers = noise.draw(SECRET, "normal", 24).reshape(2, 12)
    made = noise.noisy_on_grid(z, numbers, clip=2.5, noise_std=0.7, grid=2.0**-11)
    return [float(it) for it in made.ravel()]


def _turned(orientation: int) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        exif = Image.Exif()
        exif[0x0112] = orientation
        file = folder / "turned.png"
        Image.fromarray(pattern(45, 70, 3)).save(file, exif=exif)
        return file

    return write


def _of_mode(mode: str, ending: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        file = folder / f"picture.{ending}"
        Image.fromarray(pattern(61, 47, 3)).convert(mode).save(file)
        return file

    return write


def _wide(folder: Path) -> Path:
    values = pattern(50, 50, 1)[..., 0].astype(np.uint16) * 251 + 17
    Image.fromarray(values).save(folder / "wide.png")
    return folder / "wide.png"


def _frames(folder: Path) -> Path:
    frames = [Image.fromarray(pattern(40, 40, 3)[:, :: 1 - 2 * side]) for side in (0, 1)]
    frames[0].save(folder / "frames.gif", save_all=True, append_images=frames[1:])
    return folder / "frames.gif"


def _exact(folder: Path) -> Path:
    Image.fromarray(pattern(32, 32, 3)).save(folder / "exact.bmp")
    return folder / "exact.bmp"


def _lossless(folder: Path) -> Path:
    Image.fromarray(pattern(33, 90, 3)).save(folder / "picture.webp", lossless=True)
    return folder / "picture.webp"


PICTURES: dict[str, Callable[[Path], Path]] = {
    **{f"orientation {turn}": _turned(turn) for turn in range(1, 9)},
    **{
        mode: _of_mode(mode, ending)
        for mode, ending in (
            *(("RGB", "png"), ("RGBA", "png"), ("L", "png"), ("LA", "png"), ("P", "png"), ("1", "png")),
            *(("CMYK", "tiff"), ("YCbCr", "tiff")),
        )
    },
    "webp without loss": _lossless,
    "16 bits": _wide,
    "frames": _frames,
    "exact size": _exact,
}


def pictures(folder: Path) -> dict[str, list[Any]]:
    """SHA-256 of the pixels and the steps of each picture in each shape."""
    made = {}
    for name, write in PICTURES.items():
        file = write(folder)
        for title, shape in SHAPES.items():
            for squash in (False, True):
                picture = read_picture(file, shape, squash=squash)
                key = f"{name}, {title}{', squashed' * squash}"
                made[key] = [hashlib.sha256(picture.pixels.tobytes()).hexdigest(), picture.steps]
    return made


def test_noise_has_the_committed_numbers() -> None:
    assert GOLDEN["scheme"] == noise.SCHEME
    for name, row in draws().items():
        assert row == pytest.approx(GOLDEN["draws"][name], rel=1e-15, abs=0), name
    assert draws().keys() == GOLDEN["draws"].keys()


def test_keyed_secrets_have_the_committed_bytes() -> None:
    made = {name: noise.keyed_secret(KEY, *parts).hex() for name, parts in KEYED.items()}
    assert made == GOLDEN["keyed"]


def test_releases_on_a_grid_have_the_committed_numbers() -> None:
    assert grids() == GOLDEN["grids"]


def test_pictures_have_the_committed_pixels(tmp_path: Path) -> None:
    made = pictures(tmp_path)
    assert made == GOLDEN["pictures"]
    assert len(made) == len(PICTURES) * len(SHAPES) * 2
