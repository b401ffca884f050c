"""Folders of people's own photographs: turned by a camera, of many sizes, few, undivided, or no pictures at all."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from attncem.base.progress import silent
from attncem.base.types import ConfigError, DataError
from attncem.cli.main import main
from attncem.config.loading.load import load_config
from attncem.config.options.data import DataOptions
from attncem.config.options.run import RunConfig
from attncem.data.folders import decode_image, list_images, listing_notes
from attncem.data.inspect import DatasetState, inspect_datasets
from attncem.data.readers import dataset_spec, read_dataset
from attncem.data.splits import split_data
from attncem.judging.auditing import audit
from attncem.judging.inference import predict
from attncem.training.build import check, data_notes, load_data
from attncem.training.engine import resolve_device
from attncem.training.train import train
from attncem_edge import decoding
from attncem_edge.pictures import read_picture

RNG = np.random.default_rng(16)
RGB = (3, 12, 16)


def photo(path: Path, *, size: tuple[int, int] = (16, 12), orientation: int | None = None) -> Path:
    """A random picture, upright (width, height) as given, stored as a camera held otherwise stores it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(RNG.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))
    if orientation is None:
        image.save(path)
        return path
    exif = Image.Exif()
    exif[0x0112] = orientation
    back = {6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270, 3: Image.Transpose.ROTATE_180}
    image.transpose(back[orientation]).save(path, exif=exif)
    return path


def album(root: Path, count: int = 6, classes: tuple[str, ...] = ("ant", "bee", "cow"), **options: Any) -> Path:
    """Folders of classes, undivided."""
    for name in classes:
        for number in range(count):
            photo(root / name / f"{number:02d}.png", **options)
    return root


def divided(root: Path, train: int = 6, test: int = 2, **options: Any) -> Path:
    album(root / "train", train, **options)
    album(root / "test", test, **options)
    return root


def settings(root: Path, **more: Any) -> RunConfig:
    small = {"data.name": "image_folder", "data.root": str(root), "model.width": 4, "device": "cpu"}
    return load_config("demo-none", {**small, "training.batch_size": 4, "training.epochs": 1, **more}).config


def verified(root: Path) -> DatasetState:
    return next(state for state in inspect_datasets(str(root), verify=True) if state.name == "image_folder")


# turned by a camera


@pytest.mark.parametrize("orientation", [3, 6, 8])
@pytest.mark.parametrize("suffix", ["jpg", "png", "tif"])
def test_training_and_predict_turn_a_photograph_alike(tmp_path: Path, orientation: int, suffix: str) -> None:
    path = photo(tmp_path / f"a.{suffix}", orientation=orientation)
    picture = read_picture(path, RGB)
    assert np.array_equal(picture.pixels, decode_image(path, RGB))
    assert picture.steps == ["EXIF orientation applied"]
    assert decoding.read_head(path).size == (16, 12)


def test_a_turned_photograph_is_upright_again(tmp_path: Path) -> None:
    plain = photo(tmp_path / "plain.png")
    with Image.open(plain) as image:
        upright, exif = np.asarray(image), Image.Exif()
        exif[0x0112] = 6
        image.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "turned.png", exif=exif)
    assert np.array_equal(decode_image(tmp_path / "turned.png", RGB), upright.transpose(2, 0, 1))


def test_turned_photographs_are_counted_and_labels_agree(tmp_path: Path) -> None:
    root = divided(tmp_path / "photos", test=1)
    raw = read_dataset("image_folder", root)
    assert raw.turned == 0
    for name in ("ant", "bee"):
        photo(root / "test" / name / "00.png", orientation=6)
    turned = read_dataset("image_folder", root)
    assert turned.turned == 2
    assert turned.train_images.tobytes() == raw.train_images.tobytes()
    assert verified(root).note.endswith("; EXIF orientation applied to 2 images")
    run = train(settings(root, **{"channel.name": "identity"}), out=tmp_path / "run", progress=silent)
    files = [root / "test" / name / "00.png" for name in ("ant", "bee", "cow")]
    given = predict(run.path, [*files, "test:0", "test:1", "test:2"]).predictions
    for one, other in zip(given[:3], given[3:], strict=True):
        assert [(c.label, c.probability) for c in one.top] == [(c.label, c.probability) for c in other.top]


def test_the_hash_of_plain_pictures_is_what_it_was(tmp_path: Path) -> None:
    """Of a set made without random numbers: pixels, labels and the split, as versions before this one had them."""
    for part, count in (("train", 10), ("test", 2)):
        for label, name in enumerate(("ant", "bee")):
            for number in range(count):
                path = tmp_path / part / name / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                values = (np.arange(8 * 8 * 3).reshape(8, 8, 3) * (label + 1) + number) % 256
                Image.fromarray(values.astype(np.uint8)).save(path)
    raw = read_dataset("image_folder", tmp_path)
    assert raw.sha256 == "ccc298bb8292a0ce5fa05e924a571995ace9516854ca652cfbc7167dc8923dd8"
    assert split_data(raw, DataOptions()).sha256 == "bf1ffa770a03f47c7bd820f1faac132d3c02e73296066d5dc8b296ee6bbddd6a"


# undivided


def test_undivided_classes_are_divided_by_a_fixed_rule(tmp_path: Path) -> None:
    root = album(tmp_path, 11, ("bee", "ant"))
    photo(root / "cow" / "b.png")
    photo(root / "cow" / "a.png")
    listing = list_images("image_folder", root)
    assert listing.classes == ("ant", "bee", "cow")
    assert [f"{path.parent.name}/{path.name}" for path, _ in listing.test] == [
        *("ant/04.png", "ant/09.png", "bee/04.png", "bee/09.png", "cow/b.png"),
    ]
    assert len(listing.train) == 9 + 9 + 1
    assert [label for _, label in listing.test] == [0, 0, 1, 1, 2]
    assert not {path for path, _ in listing.train} & {path for path, _ in listing.test}
    raw = read_dataset("image_folder", root)
    assert (len(raw.train_labels), len(raw.test_labels)) == (19, 5)
    assert "no train and test folders: 5 images (every fifth of a class) are the test images" in verified(root).note


def test_an_undivided_class_of_one_is_refused(tmp_path: Path) -> None:
    root = album(tmp_path)
    photo(root / "dog" / "alone.png")
    with pytest.raises(DataError, match=r"dog has one file only; a class needs one to train on and one to test on"):
        read_dataset("image_folder", root)


def test_folders_of_other_sets_are_no_classes(tmp_path: Path) -> None:
    for name in ("cifar-10-batches-py", "notes"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "readme.txt").write_text("x")
    assert verified(tmp_path).state == "missing"
    divided(tmp_path / "half")
    shutil.rmtree(tmp_path / "half" / "test")
    with pytest.raises(DataError, match="is missing"):
        read_dataset("image_folder", tmp_path / "half")


# of many sizes, and bad ones


def test_verify_reads_pictures_of_many_sizes(tmp_path: Path) -> None:
    root = divided(tmp_path)
    photo(root / "test" / "ant" / "large.png", size=(40, 30))
    state = verified(root)
    assert (state.ok, state.state, state.shape) == (True, "ok", "3xmixed")
    assert "pictures of 16x12 to 40x30 px: training needs data.image_size" in state.note
    assert (state.classes, state.train, state.test) == ("3", "18", "7")


def test_every_bad_file_is_named_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = divided(tmp_path)
    bad = [root / "train" / "ant" / "01.png", root / "train" / "cow" / "05.png", root / "test" / "bee" / "00.png"]
    bad[0].write_bytes(b"")
    bad[1].write_text("no picture")
    bad[2].write_bytes(bad[2].read_bytes()[:100])
    photo(root / "test" / "cow" / "another_size.png", size=(9, 9))
    assert main(["data", "--root", str(root), "--verify"]) == 2
    shown = capsys.readouterr().out
    assert "3 files cannot be used:" in shown
    assert all(str(path) in shown for path in bad)


def test_training_names_every_bad_file_of_a_part(tmp_path: Path) -> None:
    root = divided(tmp_path)
    for name in ("ant", "bee"):
        photo(root / "train" / name / "zz.png", size=(9, 9))
    with pytest.raises(DataError, match=r"(?s)2 files cannot be used:.*ant/zz\.png is 9x9 px.*bee/zz\.png is 9x9 px"):
        read_dataset("image_folder", root)


def test_of_very_many_bad_files_the_first_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attncem.data.folders.NAMED", 2)
    root = divided(tmp_path)
    for path in (root / "train").rglob("*.png"):
        path.write_text("no picture")
    with pytest.raises(DataError, match="more than 2 files cannot be used") as caught:
        read_dataset("image_folder", root)
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize("place", ["train/ant/pipe.png", "test/cow/pipe.png"])
def test_a_pipe_is_named_and_not_opened(tmp_path: Path, place: str) -> None:
    root = divided(tmp_path)
    os.mkfifo(root / place)
    reading = threading.Thread(target=lambda: states.append(verified(root)), daemon=True)
    states: list[DatasetState] = []
    reading.start()
    reading.join(20)
    assert not reading.is_alive(), "it waits for a writer"
    assert f"{root / place} is not a regular file" in states[0].note
    with pytest.raises(DataError, match=r"pipe\.png is not a regular file"):
        read_picture(root / place, RGB)


# few


def test_a_class_with_hardly_any_pictures_is_said_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = divided(tmp_path / "photos")
    shutil.rmtree(root / "test" / "bee")
    photo(root / "train" / "dog" / "alone.png")
    notes = listing_notes("image_folder", root)
    assert notes == data_notes(settings(root))
    assert notes[0].startswith("one training image only: dog;")
    assert notes[1].startswith("no test image: bee, dog;")
    assert "no test image: bee, dog;" in verified(root).note
    words = [f"data.root={root}", "data.name=image_folder", "training.batch_size=4", "training.epochs=1"]
    assert main(["train", "--config", "demo-none", "--out", str(tmp_path / "run"), "model.width=4", *words]) == 0
    shown = capsys.readouterr().err
    assert shown.startswith("note: one training image only: dog;")
    assert data_notes(load_config("demo").config) == []


def test_four_pictures_a_class_can_be_trained_on(tmp_path: Path) -> None:
    config = settings(divided(tmp_path / "photos", train=4))
    data = load_data(config, resolve_device("cpu"))
    assert (len(data.train), len(data.validation), len(data.held_out)) == (9, 3, 0)
    assert sorted(data.validation.labels.tolist()) == [0, 1, 2]
    assert train(config, out=tmp_path / "run", progress=silent).manifest["status"] == "finished"


def test_one_picture_a_class_is_refused_before_training(tmp_path: Path) -> None:
    config = settings(divided(tmp_path / "photos", train=1), **{"training.batch_size": 2})
    with pytest.raises(ConfigError, match="keeps no image for validation: no class of image_folder has two"):
        train(config, out=tmp_path / "run", progress=silent)
    assert not (tmp_path / "run").exists()


# small


def test_pictures_too_small_for_the_network_are_refused(tmp_path: Path) -> None:
    config = settings(album(tmp_path / "photos", size=(8, 8)))
    with pytest.raises(ConfigError, match=r"model\.name=small_cnn .* of 8x8 px; it takes 12 px and more"):
        check(config)
    check(settings(tmp_path / "photos", **{"data.image_size": 12}))
    check(settings(tmp_path / "photos", **{"model.bottleneck": None}))
    check(config, custom_network=True)


def test_pictures_of_eight_pixels_can_be_audited(tmp_path: Path) -> None:
    root = album(tmp_path / "photos", 20, size=(8, 8))
    run = train(settings(root, **{"model.bottleneck": None}), out=tmp_path / "run", progress=silent)
    result = audit(run.path, "quick", overrides=["decoder.epochs=1"], progress=silent)
    assert {row.outcome for row in result.rows} == {"ok"}
    assert dataset_spec(DataOptions(name="image_folder", root=str(root))).shape == (3, 8, 8)
