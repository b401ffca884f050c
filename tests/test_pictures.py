"""Pictures of users: every kind that Pillow reads becomes the run's size and colours, and a bad file is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from attncem.base.types import DataError
from attncem.data.folders import decode_image
from attncem_edge import decoding
from attncem_edge.pictures import read_picture

GREY, RGB = (1, 12, 12), (3, 12, 12)


def pixels(*size: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def saved(path: Path, image: Image.Image, **options: Any) -> Path:
    image.save(path, **options)
    return path


def test_a_fitting_file_is_left_as_it_is(tmp_path: Path) -> None:
    values = pixels(12, 12, 3)
    picture = read_picture(saved(tmp_path / "a.png", Image.fromarray(values)), RGB)
    assert picture.steps == []
    assert np.array_equal(picture.pixels, values.transpose(2, 0, 1))
    assert picture.file_bytes == (tmp_path / "a.png").stat().st_size


@pytest.mark.parametrize(
    ("mode", "shape"),
    [("1", GREY), ("L", GREY), *((mode, RGB) for mode in ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK"))],
)
def test_what_the_data_reader_accepts_gets_the_same_pixels(
    tmp_path: Path, mode: str, shape: tuple[int, int, int]
) -> None:
    suffix = "tif" if mode in ("PA", "CMYK") else "png"
    image = Image.fromarray(pixels(20, 30, 3)).convert("P" if mode == "PA" else mode)
    path = saved(tmp_path / f"a.{suffix}", image.convert("PA") if mode == "PA" else image)
    picture = read_picture(path, shape, squash=True)
    assert np.array_equal(picture.pixels, decode_image(path, shape, resize=True))
    assert picture.steps[-1] == "scaled from 30x20 to 12x12 px"


@pytest.mark.parametrize(
    ("mode", "shape", "step"),
    [
        ("RGB", GREY, "colours made grey"),
        ("CMYK", RGB, "CMYK made RGB"),
        ("L", RGB, "grey copied to three equal channels"),
        ("LA", GREY, "transparency left out"),
        ("RGBA", RGB, "transparency left out"),
    ],
)
def test_what_was_done_is_said(tmp_path: Path, mode: str, shape: tuple[int, int, int], step: str) -> None:
    suffix = "tif" if mode == "CMYK" else "png"
    path = saved(tmp_path / f"a.{suffix}", Image.fromarray(pixels(12, 12, 3)).convert(mode))
    assert read_picture(path, shape).steps == [step]


def test_the_middle_is_cut_out_in_proportion(tmp_path: Path) -> None:
    values = np.zeros((12, 40), np.uint8)
    values[:, 14:26] = pixels(12, 12)
    picture = read_picture(saved(tmp_path / "wide.png", Image.fromarray(values)), GREY)
    assert np.array_equal(picture.pixels[0], values[:, 14:26])
    assert picture.steps == ["cropped to the middle 12x12 of 40x12 px"]


def test_sixteen_bits_become_eight(tmp_path: Path) -> None:
    values = pixels(12, 12)
    path = saved(tmp_path / "deep.png", Image.fromarray(values.astype(np.uint16) * 257))
    picture = read_picture(path, GREY)
    assert np.array_equal(picture.pixels[0], values)
    assert picture.steps == ["converted from 16 to 8 bits"]
    three = read_picture(path, RGB)
    assert np.array_equal(three.pixels[2], values)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("deep", [False, True])
def test_a_turned_photograph_is_turned_back(tmp_path: Path, orientation: int, deep: bool) -> None:
    values = pixels(12, 12)
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = Image.fromarray(values.astype(np.uint16) * 257 if deep else values)
    path = saved(tmp_path / "photo.png", image, exif=exif)
    picture = read_picture(path, GREY)
    with Image.open(saved(tmp_path / "plain.png", Image.fromarray(values), exif=exif)) as plain:
        upright = np.asarray(ImageOps.exif_transpose(plain))
    assert np.array_equal(picture.pixels[0], upright)
    assert ("EXIF orientation applied" in picture.steps) == (orientation > 1)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_damaged_exif_data_turns_nothing(tmp_path: Path) -> None:
    values = pixels(12, 12)
    path = saved(tmp_path / "photo.jpg", Image.fromarray(values), exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x09torn")
    picture = read_picture(path, GREY)
    assert picture.steps == []
    assert np.array_equal(picture.pixels, decode_image(path, GREY))


def test_of_an_animation_the_first_frame_counts(tmp_path: Path) -> None:
    frames = [Image.fromarray(np.full((12, 12), level, np.uint8)) for level in (10, 200)]
    path = saved(tmp_path / "moving.gif", frames[0], save_all=True, append_images=frames[1:])
    picture = read_picture(path, GREY)
    assert (picture.pixels == 10).all()
    assert picture.steps[0] == "first of several frames used"


def test_a_bomb_is_refused_before_it_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "bomb.png", Image.fromarray(np.zeros((40, 40), np.uint8)))
    assert decoding.MOST_PIXELS == Image.MAX_IMAGE_PIXELS
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1500)  # above it a warning of Pillow's, which is left out
    for attempt in (lambda: read_picture(path, GREY), lambda: decode_image(path, GREY, resize=True)):
        monkeypatch.setattr(decoding, "MOST_PIXELS", 1600)
        attempt()
        monkeypatch.setattr(decoding, "MOST_PIXELS", 1599)
        with pytest.raises(DataError, match=r"bomb\.png has more than 0 million pixels"):
            attempt()
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # above twice that an error of Pillow's
    with pytest.raises(DataError, match=r"bomb\.png has more than 0 million pixels"):
        read_picture(path, GREY)


def test_bad_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("not an image")
    (tmp_path / "empty.png").write_bytes(b"")
    whole = saved(tmp_path / "whole.png", Image.fromarray(pixels(40, 40))).read_bytes()
    (tmp_path / "torn.png").write_bytes(whole[: len(whole) // 2])
    saved(tmp_path / "float.tif", Image.fromarray(pixels(12, 12).astype(np.float32)))
    saved(tmp_path / "int.tif", Image.fromarray(pixels(12, 12).astype(np.int32) * 100_000))
    messages = {
        "text.png": "cannot be read as an image",
        "empty.png": "is empty",
        "torn.png": "cannot be read as an image",
        "float.tif": "pixels of mode F",
        "int.tif": "pixels of 32 bits",
        "missing.png": "is not there",
        ".": "is a folder",
    }
    for name, message in messages.items():
        with pytest.raises(DataError, match=message) as caught:
            read_picture(tmp_path / name, GREY)
        assert str(tmp_path / name) in str(caught.value)
