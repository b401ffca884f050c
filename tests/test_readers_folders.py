"""Readers of image files in folders, on small made-up images."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attncem.base.types import DataError
from attncem.cli.main import main
from attncem.config.loading.load import load_config
from attncem.config.options.data import DataOptions
from attncem.data import folders, readers
from attncem.data.folders import channel_statistics, decode_image, listing_notes
from attncem.data.inspect import inspect_datasets
from attncem.data.readers import RawData, dataset_spec, read_dataset
from attncem.data.splits import split_data
from attncem.judging.opening import open_run
from attncem.training.build import build_model, check, load_data
from attncem.training.train import train

RNG = np.random.default_rng(6)


def picture(size: tuple[int, int] = (16, 16), mode: str = "RGB") -> Image.Image:
    W, H = size
    shape = (H, W) if mode == "L" else (H, W, 3)
    return Image.fromarray(RNG.integers(0, 256, shape, dtype=np.uint8))


def write(path: Path, size: tuple[int, int] = (16, 16), mode: str = "RGB") -> np.ndarray:
    """Save a random picture and give its pixels [C, H, W] as they are in the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture(size, mode).save(path)
    with Image.open(path) as image:
        return np.atleast_3d(np.asarray(image)).transpose(2, 0, 1)


def write_classes(
    root: Path,
    classes: tuple[str, ...] = ("bee", "ant", "cow"),
    *,
    parts: tuple[str, str] = ("train", "test"),
    size: tuple[int, int] = (16, 16),
    mode: str = "RGB",
) -> dict[str, np.ndarray]:
    written = {}
    for part, count in zip(parts, (6, 2), strict=True):
        for name in classes:
            for number in range(count):
                path = root / part / name / f"{name}_{number}.png"
                written[path.relative_to(root).as_posix()] = write(path, size, mode)
    return written


def write_tiny(root: Path, ids: tuple[str, ...] = ("n02", "n01", "n03")) -> Path:
    folder = root / "tiny-imagenet-200"
    lines = []
    for label, name in enumerate(ids):
        for number in range(4):
            mode = "L" if number == 3 else "RGB"
            write(folder / "train" / name / "images" / f"{name}_{number}.JPEG", (64, 64), mode)
        (folder / "train" / name / f"{name}_boxes.txt").write_text("boxes")
        for number in (label, label + len(ids)):
            write(folder / "val" / "images" / f"val_{number}.JPEG", (64, 64))
            lines.append(f"val_{number}.JPEG\t{name}\t0\t0\t62\t62")
    (folder / "wnids.txt").write_text("\n".join(ids) + "\n")
    (folder / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    return folder


def refused(name: str, root: Path, *words: object, image_size: int | None = None) -> None:
    with pytest.raises(DataError) as caught:
        read_dataset(name, root, image_size)
    for word in words:
        assert str(word) in str(caught.value)


# any folder per class


@pytest.mark.parametrize("test", ["test", "val", "validation"])
def test_a_folder_of_images_comes_back(tmp_path: Path, test: str) -> None:
    written = write_classes(tmp_path, parts=("train", test), size=(20, 12))
    raw = read_dataset("image_folder", tmp_path)
    assert raw.spec.class_names == ("ant", "bee", "cow")
    assert raw.spec.shape == (3, 12, 20)
    for images, labels, part in (
        (raw.train_images, raw.train_labels, "train"),
        (raw.test_images, raw.test_labels, test),
    ):
        expected = {key: value for key, value in sorted(written.items()) if key.startswith(f"{part}/")}
        assert np.array_equal(images, np.stack(list(expected.values())))
        assert [raw.spec.class_names[label] for label in labels] == [key.split("/")[1] for key in expected]


def test_test_goes_before_val(tmp_path: Path) -> None:
    write_classes(tmp_path, parts=("train", "val"))
    alone = read_dataset("image_folder", tmp_path)
    write_classes(tmp_path, parts=("train", "test"))
    assert not np.array_equal(read_dataset("image_folder", tmp_path).test_images, alone.test_images)


def test_mean_and_deviation_are_those_of_the_training_images(tmp_path: Path) -> None:
    write_classes(tmp_path)
    raw = read_dataset("image_folder", tmp_path)
    train_pixels = raw.train_images / 255
    assert raw.spec.mean == pytest.approx(train_pixels.mean((0, 2, 3)))
    assert raw.spec.std == pytest.approx(train_pixels.std((0, 2, 3)))
    assert channel_statistics(np.zeros((2, 1, 4, 4), np.uint8)) == ((0.0,), (1.0,))


def test_a_large_set_is_measured_on_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_classes(tmp_path)
    monkeypatch.setattr(folders, "SAMPLE", 6)
    raw = read_dataset("image_folder", tmp_path)
    assert raw.spec.mean == pytest.approx((raw.train_images[::3] / 255).mean((0, 2, 3)))


def test_grey_sets_have_one_channel_and_mixed_ones_three(tmp_path: Path) -> None:
    write_classes(tmp_path, mode="L")
    assert read_dataset("image_folder", tmp_path).train_images.shape == (18, 1, 16, 16)
    write(tmp_path / "test" / "ant" / "colour.png")
    refused("image_folder", tmp_path, tmp_path / "test" / "ant" / "colour.png", "colours")
    shutil.copy(tmp_path / "test" / "ant" / "colour.png", tmp_path / "train" / "cow" / "colour.png")
    assert read_dataset("image_folder", tmp_path).train_images.shape == (19, 3, 16, 16)


def test_another_size_is_named_unless_images_are_scaled(tmp_path: Path) -> None:
    write_classes(tmp_path)
    odd = tmp_path / "test" / "bee" / "odd.png"
    write(odd, (16, 17))
    refused("image_folder", tmp_path, odd, "16x17", "expected 16x16", "data.image_size")
    assert read_dataset("image_folder", tmp_path, 10).test_images.shape == (7, 3, 10, 10)


def test_scaling_changes_the_hash_and_the_shape(tmp_path: Path) -> None:
    write_classes(tmp_path)
    options = DataOptions(name="image_folder", root=str(tmp_path), image_size=8)
    assert dataset_spec(options).shape == (3, 8, 8)
    assert read_dataset("image_folder", tmp_path, 8).sha256 != read_dataset("image_folder", tmp_path).sha256


def damage_truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


def damage_empty(path: Path) -> None:
    path.write_bytes(b"")


def damage_text(path: Path) -> None:
    path.write_text("%!PS-Adobe-3.0 EPSF-3.0\n")


def damage_deep(path: Path) -> None:
    Image.new("I;16", (16, 16)).save(path)


@pytest.mark.parametrize("damage", [damage_truncate, damage_empty, damage_text, damage_deep])
@pytest.mark.parametrize("file", ["train/ant/ant_0.png", "train/cow/cow_5.png", "test/bee/bee_1.png"])
def test_a_damaged_image_is_named(tmp_path: Path, damage, file: str) -> None:
    write_classes(tmp_path)
    damage(tmp_path / file)
    refused("image_folder", tmp_path, tmp_path / file)


def test_folders_that_cannot_be_are_named(tmp_path: Path) -> None:
    refused("image_folder", tmp_path, "missing")
    write_classes(tmp_path)
    (tmp_path / "test" / "dog").mkdir()
    refused("image_folder", tmp_path, tmp_path / "test" / "dog", "without training images")
    (tmp_path / "train" / "dog").mkdir()
    refused("image_folder", tmp_path, tmp_path / "train" / "dog", "is empty")
    for name in ("dog", "ant", "bee"):
        shutil.rmtree(tmp_path / "train" / name)
        shutil.rmtree(tmp_path / "test" / name)
    assert read_dataset("image_folder", tmp_path).spec.num_classes == 0, "one class labels nothing"
    assert "has one class only" in listing_notes("image_folder", tmp_path)[0]
    shutil.rmtree(tmp_path / "test")
    refused("image_folder", tmp_path, tmp_path / "test", "missing")
    (tmp_path / "test").write_text("a file")
    refused("image_folder", tmp_path, tmp_path / "test", "cannot be read")


def test_hidden_files_are_passed_over(tmp_path: Path) -> None:
    write_classes(tmp_path)
    plain = read_dataset("image_folder", tmp_path).sha256
    for file in ("train/.DS_Store", "train/ant/.hidden", "test/bee/Thumbs.db", "train/README"):
        (tmp_path / file).write_text("x")
    assert read_dataset("image_folder", tmp_path).sha256 == plain
    (tmp_path / "train/ant/notes.txt").write_text("x")
    refused("image_folder", tmp_path, tmp_path / "train/ant/notes.txt", "cannot be read as an image")


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_modes_become_colours(tmp_path: Path, mode: str) -> None:
    image = Image.new("RGB", (8, 8), (255, 255, 255)).convert(mode)
    image.save(tmp_path / "image.png")
    assert decode_image(tmp_path / "image.png", (3, 8, 8)).min() == 255


# Tiny-ImageNet


def test_tiny_imagenet_comes_back_in_the_order_of_its_list(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path)
    raw = read_dataset("tiny_imagenet_200", tmp_path)
    assert raw.spec.class_names == ("n02", "n01", "n03")
    assert raw.spec.num_classes == 3
    assert raw.train_labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert raw.test_labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert raw.train_images.shape == (12, 3, 64, 64)
    with Image.open(folder / "val" / "images" / "val_3.JPEG") as image:
        assert np.array_equal(raw.test_images[1], np.asarray(image).transpose(2, 0, 1))


def test_words_name_the_classes(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path)
    (folder / "words.txt").write_text("n01\tgoldfish, Carassius auratus\nn02\tboa\nn09\tother\n")
    spec = dataset_spec(DataOptions(name="tiny_imagenet_200", root=str(folder)))
    assert spec.class_names == ("boa", "goldfish", "n03")


def test_tiny_imagenet_can_be_scaled(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    assert read_dataset("tiny_imagenet_200", tmp_path, 32).train_images.shape == (12, 3, 32, 32)


def test_mislabelled_tiny_images_are_named(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path)
    annotations = folder / "val" / "val_annotations.txt"
    whole = annotations.read_text()
    for text, words in (
        (whole.replace("n03", "n99"), ("unknown class 'n99'",)),
        (whole + "val_0.JPEG\tn03\n", ("two classes",)),
        (whole + "val_77.JPEG\tn03\n", ("val_77.JPEG", "missing")),
        (whole.partition("\n")[2], ("val_0.JPEG", "no line")),
        (whole.replace("\t", " "), ("unknown class",)),
        ("", ("is empty",)),
    ):
        annotations.write_text(text)
        refused("tiny_imagenet_200", tmp_path, annotations if "missing" not in words else "val", *words)


def test_the_class_list_must_fit_the_folders(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path)
    wnids = folder / "wnids.txt"
    wnids.write_text("n02\nn01\n")
    refused("tiny_imagenet_200", tmp_path, folder / "train" / "n03", "not a class")
    wnids.write_text("n02\nn01\nn03\nn04\n")
    refused("tiny_imagenet_200", tmp_path, folder / "train" / "n04" / "images", "cannot be read")
    wnids.write_text("n02\nn01\nn03\nn02\n")
    refused("tiny_imagenet_200", tmp_path, wnids, "twice")


# people


@pytest.mark.parametrize(
    ("name", "folder", "test", "size"),
    [("facescrub", "facescrub-dataset/48x48", "validate", 48), ("lfw_people", "lfw_people", "val", 64)],
)
def test_people_come_back_whatever_their_number(tmp_path: Path, name: str, folder: str, test: str, size: int) -> None:
    people = ("Ann Lee", "Bob_Ray", "Cy Ó")
    write_classes(tmp_path / folder, people, parts=("train", test), size=(size, size))
    raw = read_dataset(name, tmp_path)
    assert raw.spec.class_names == people
    assert raw.train_images.shape == (18, 3, size, size)
    assert raw.test_images.shape == (6, 3, size, size)
    assert len(raw.spec.mean) == 3
    (state,) = (s for s in inspect_datasets(str(tmp_path), verify=True) if s.name == name)
    assert (state.ok, state.classes) == (True, "3")
    assert "3 of the usual" in state.note


def test_facescrub_has_its_size_and_measured_constants(tmp_path: Path) -> None:
    folder = tmp_path / "facescrub"
    write_classes(folder, parts=("train", "validate"), size=(50, 50))
    refused("facescrub", tmp_path, folder / "train" / "ant" / "ant_0.png", "50x50", "expected 48x48")
    raw = read_dataset("facescrub", tmp_path, 48)
    assert raw.spec.mean == pytest.approx((raw.train_images / 255).mean((0, 2, 3)))


# in use


def test_parts_are_disjoint_and_whole(tmp_path: Path) -> None:
    write_classes(tmp_path)
    raw: RawData = read_dataset("image_folder", tmp_path)
    split = split_data(raw, DataOptions(validation_fraction=0.2, held_out_fraction=0.2))
    assert sorted(np.concatenate([split.train, split.validation, split.held_out]).tolist()) == list(range(18))


def test_a_run_on_a_folder_can_be_restored(tmp_path: Path) -> None:
    write_classes(tmp_path / "pictures")
    words = [f"data.root={tmp_path / 'pictures'}", "data.name=image_folder", "training.batch_size=4", "model.width=4"]
    config = load_config("demo-none", [*words, "data.validation_fraction=0.3", "training.epochs=1"]).config
    check(config)
    run = train(config, out=tmp_path / "run")
    opened = open_run(run)
    model = opened.model
    data = load_data(config, next(model.parameters()).device)
    x, _ = data.test.get(slice(None))
    assert model.predict(model.release(x)).shape == (6, 3)
    assert data.spec == dataset_spec(config.data)
    assert build_model(config, data.spec).encoder[0].mean.flatten().tolist() == pytest.approx(data.spec.mean)


# what is said before training


class Listener:
    """A program's own progress with a place for lines."""

    def __init__(self) -> None:
        self.lines = list[str]()

    def __call__(self, *_: object) -> None: ...

    def line(self, text: str) -> None:
        self.lines.append(text)


def test_a_program_hears_what_a_command_shows(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_classes(tmp_path / "data", ("bee", "ant"), parts=("", "more"))
    shutil.rmtree(tmp_path / "data" / "more")
    settings = {"data.name": "image_folder", "data.root": str(tmp_path / "data"), "data.validation_fraction": 0.3}
    settings |= {"model.width": 4, "training.batch_size": 4, "training.epochs": 1, "device": "cpu"}
    listener = Listener()
    run = train("demo-none", settings, out=tmp_path / "heard", progress=listener)
    said = f"note: {tmp_path / 'data'} has no train and test folders"
    assert [line for line in listener.lines if line.startswith(said)] == listener.lines[:1]
    assert capfd.readouterr().err == ""
    train("demo-none", settings, out=tmp_path / "shown")
    assert capfd.readouterr().err.count(said) == 1, "without a progress it is shown"
    words = [f"{key}={value}" for key, value in settings.items()]
    assert main(["train", "--config", "demo-none", "--out", str(tmp_path / "by-command"), *words]) == 0
    assert capfd.readouterr().err.count(said) == 1, "the command says it once"
    assert train(resume=run, progress=listener).is_finished
    assert len([line for line in listener.lines if said in line]) == 1


def test_what_was_read_last_is_kept_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For processes that work on one run after the other; elsewhere every call reads."""
    for part in ("train", "test"):
        for name in ("ants", "bees"):
            for number in range(2):
                write(tmp_path / "one" / part / name / f"{number}.png")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    decoded: list[Path] = []
    decode = folders._decode
    monkeypatch.setattr(folders, "_decode", lambda path, *a, **k: (decoded.append(path), decode(path, *a, **k))[1])

    def read(name: str = "one") -> tuple[RawData, int]:
        decoded.clear()
        return read_dataset("image_folder", tmp_path / name), len(decoded)

    first, all_of_them = read()
    assert all_of_them >= 8 and read()[1] == all_of_them, "nothing is kept unless it is asked for"
    monkeypatch.setattr(readers, "_Kept", type("_Kept", (readers._Kept,), {}))
    readers.keep_last_read()
    kept, count = read()
    assert count == all_of_them and kept.sha256 == first.sha256
    assert read() == (kept, 0) and read()[0] is kept
    changed = write(tmp_path / "one" / "train" / "ants" / "0.png")
    again, count = read()
    assert count == all_of_them and (again.train_images[0] == changed).all()
    assert read("two")[1] and read("two")[1] == 0 and read()[1], "the last one alone"
    (tmp_path / "one" / "train" / "bees" / "0.png").unlink()
    assert len(read()[0].train_labels) == 3
    shutil.rmtree(tmp_path / "one")
    with pytest.raises(DataError):
        read()
