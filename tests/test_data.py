from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from attncem.base.types import ConfigError, DataError
from attncem.config.options.data import DataOptions
from attncem.config.options.training import BalancedOptions, ShuffledOptions
from attncem.data import readers
from attncem.data.batches import DeviceData, Images, augment
from attncem.data.inspect import inspect_datasets
from attncem.data.readers import FOLDER_SETS, READERS, RawData, read_dataset
from attncem.data.specs import DATASETS
from attncem.data.splits import Split, split_data

NAME = "fashion_mnist_mini"
FILE = "fashion_mnist_mini.npz"


@pytest.fixture(scope="module")
def raw() -> RawData:
    return read_dataset(NAME)


@pytest.fixture(scope="module")
def split(raw: RawData) -> Split:
    return split_data(raw, DataOptions())


def embedded_bytes() -> bytes:
    return (resources.files("attncem.data") / "embedded" / FILE).read_bytes()


def arrays(**changes: np.ndarray) -> dict[str, np.ndarray]:
    labels = np.arange(20, dtype=np.int64) % 10
    images = np.zeros((20, 1, 28, 28), dtype=np.uint8)
    return {
        "train_images": images,
        "train_labels": labels,
        "test_images": images,
        "test_labels": labels,
        **changes,
    }


# readers


def test_every_data_set_has_a_reader_and_whole_facts() -> None:
    assert set(READERS) == set(DATASETS)
    for name, spec in DATASETS.items():
        assert spec.name == name
        assert len(spec.mean) == len(spec.std)
        assert len(spec.mean) == spec.shape[0] or (name in FOLDER_SETS and not spec.mean), "measured on the images"
        assert len(spec.class_names) in (0, spec.num_classes)


def test_embedded_set(raw: RawData) -> None:
    assert raw.train_images.shape == (5000, 1, 28, 28)
    assert raw.test_images.shape == (1000, 1, 28, 28)
    assert raw.train_images.dtype == raw.test_images.dtype == np.uint8
    assert raw.train_labels.dtype == raw.test_labels.dtype == np.int64
    assert np.bincount(raw.train_labels).tolist() == [500] * 10
    assert np.bincount(raw.test_labels).tolist() == [100] * 10
    assert raw.sha256 == "39336b5fd30685bd1ea9ab14094a791ac9b2573730f8343b2e819d1f06c42209"


def test_embedded_set_has_the_mean_and_deviation_of_its_facts(raw: RawData) -> None:
    pixels = raw.train_images / 255
    assert pixels.mean() == pytest.approx(raw.spec.mean[0], abs=0.01)
    assert pixels.std() == pytest.approx(raw.spec.std[0], abs=0.01)


def test_no_test_image_is_a_training_image(raw: RawData) -> None:
    train = {image.tobytes() for image in raw.train_images}
    assert not any(image.tobytes() in train for image in raw.test_images)


def test_a_copy_elsewhere_is_the_same_set(raw: RawData, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(embedded_bytes())
    assert read_dataset(NAME, tmp_path).sha256 == raw.sha256


def flip_a_byte(data: bytes) -> bytes:
    return data[:5000] + bytes([data[5000] ^ 1]) + data[5001:]


@pytest.mark.parametrize("damage", [flip_a_byte, lambda data: data[:-100], lambda data: b""])
def test_a_damaged_file_is_named(tmp_path: Path, damage) -> None:
    (tmp_path / FILE).write_bytes(damage(embedded_bytes()))
    with pytest.raises(DataError, match="damaged") as caught:
        read_dataset(NAME, tmp_path)
    assert str(tmp_path / FILE) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="missing") as caught:
        read_dataset(NAME, tmp_path / "nowhere")
    assert str(tmp_path / "nowhere" / FILE) in str(caught.value)


@pytest.mark.parametrize("data", [b"not a zip", b"PK\x03\x04 torn", embedded_bytes()[:-100]])
def test_a_file_that_is_no_archive_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    (tmp_path / FILE).write_bytes(data)
    monkeypatch.setattr(readers, "MINI_SHA256", readers.hashlib.sha256(data).hexdigest())
    with pytest.raises(DataError, match="cannot be read") as caught:
        read_dataset(NAME, tmp_path)
    assert FILE in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_images": np.zeros((20, 1, 27, 28), np.uint8)}, "train images have shape"),
        ({"test_images": np.zeros((20, 28, 28), np.uint8)}, "test images have shape"),
        ({"train_images": np.zeros((20, 1, 28, 28), np.float32)}, "float32"),
        ({"train_labels": np.zeros(19, np.int64)}, "20 train images but 19 labels"),
        ({"test_labels": np.full(20, 10)}, "test labels must"),
        ({"train_labels": np.full(20, -1)}, "train labels must"),
        ({"train_labels": np.full(20, 0.5)}, "train labels must"),
        ({"train_labels": np.zeros((20, 1), np.int64)}, "train labels must"),
        ({"test_images": np.zeros((0, 1, 28, 28), np.uint8), "test_labels": np.zeros(0, np.int64)}, "test labels"),
    ],
)
def test_wrong_arrays_are_refused(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, np.ndarray], message: str
) -> None:
    monkeypatch.setitem(READERS, NAME, lambda request: arrays(**changes))
    with pytest.raises(DataError, match=message):
        read_dataset(NAME)


def test_the_hash_is_of_images_and_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    def hash_of(**changes: np.ndarray) -> str:
        monkeypatch.setitem(READERS, NAME, lambda request: arrays(**changes))
        return read_dataset(NAME).sha256

    image = np.zeros((20, 1, 28, 28), np.uint8)
    image[3, 0, 4, 5] = 1
    plain = hash_of()
    assert hash_of() == plain == hash_of(train_labels=(np.arange(20) % 10).astype(np.uint8))
    assert hash_of(train_images=image) != plain
    assert hash_of(test_labels=(np.arange(20, dtype=np.int64) + 1) % 10) != plain


def test_inspection_tells_whole_from_damaged(tmp_path: Path) -> None:
    state = inspect_datasets()[0]
    assert (state.name, state.shape, state.classes) == (NAME, "1x28x28", "10")
    assert (state.train, state.test, state.ok) == ("5000", "1000", True)
    assert inspect_datasets(str(tmp_path))[0] == state, "what is embedded needs no folder"
    (tmp_path / FILE).write_bytes(embedded_bytes()[:-100])
    state = inspect_datasets(str(tmp_path))[0]
    assert (state.ok, state.state) == (False, "damaged")
    assert str(tmp_path / FILE) in state.note


# splits


def test_parts_have_their_sizes(split: Split) -> None:
    assert split.counts() == {
        "train": 4000,
        "validation": 500,
        "held_out": 500,
        "test": 1000,
        "infer_auxiliary": 900,
        "infer_evaluation": 100,
        "sha256": split.sha256,
    }
    assert split.sha256 == "a5d8ebb5c5585676bc8175e3b17949557343f2aadc0bf0e50d1ba0c65d7f4ce6"


def test_parts_of_the_training_images_are_disjoint_and_whole(split: Split) -> None:
    together = np.concatenate([split.train, split.validation, split.held_out])
    assert sorted(together.tolist()) == list(range(5000))


def test_the_published_attackers_images_are_not_those_it_is_judged_on(split: Split) -> None:
    together = np.concatenate([split.infer_auxiliary, split.infer_evaluation])
    assert sorted(together.tolist()) == list(range(1000))
    assert split.test.tolist() == list(range(1000))


@pytest.mark.parametrize(
    ("part", "labels", "per_class"),
    [
        ("train", "train_labels", 400),
        ("validation", "train_labels", 50),
        ("held_out", "train_labels", 50),
        ("infer_auxiliary", "test_labels", 90),
        ("infer_evaluation", "test_labels", 10),
    ],
)
def test_parts_are_stratified(raw: RawData, split: Split, part: str, labels: str, per_class: int) -> None:
    assert np.bincount(getattr(raw, labels)[getattr(split, part)]).tolist() == [per_class] * 10


def test_a_split_is_decided_by_its_seed_and_fractions(raw: RawData, split: Split) -> None:
    again = split_data(raw, DataOptions())
    assert again.sha256 == split.sha256
    assert np.array_equal(again.train, split.train)
    for options in (DataOptions(split_seed=1), DataOptions(validation_fraction=0.2), DataOptions(held_out_fraction=0)):
        other = split_data(raw, options)
        assert other.sha256 != split.sha256
        assert not np.array_equal(other.train, split.train)
    assert len(split_data(raw, DataOptions(held_out_fraction=0)).held_out) == 0
    augmented = split_data(raw, DataOptions(horizontal_flip=True))
    assert augmented.sha256 == split.sha256


def test_rare_classes_are_split_without_overlap() -> None:
    labels = np.array([0] * 7 + [1] * 3 + [2], dtype=np.int64)
    images = np.zeros((11, 1, 28, 28), np.uint8)
    parts = split_data(RawData(DATASETS[NAME], images, labels, images, labels, "x"), DataOptions(held_out_fraction=0.4))
    together = np.concatenate([parts.train, parts.validation, parts.held_out])
    assert sorted(together.tolist()) == list(range(11))


def test_a_subset_limits_the_training_images_and_leaves_the_test_images(raw: RawData, split: Split) -> None:
    subset = split_data(raw, DataOptions(images_per_class=50))
    sizes = [
        np.bincount(raw.train_labels[part]).tolist() for part in (subset.train, subset.validation, subset.held_out)
    ]
    assert sizes == [[40] * 10, [5] * 10, [5] * 10]
    assert np.array_equal(subset.test, split.test) and np.array_equal(subset.infer_auxiliary, split.infer_auxiliary)
    assert (subset.available, split.available) == (5000, 5000)
    assert subset.sha256 not in (split.sha256, split_data(raw, DataOptions(images_per_class=60)).sha256)
    assert subset.sha256 == split_data(raw, DataOptions(images_per_class=50)).sha256
    assert split.sha256 == split_data(raw, DataOptions(images_per_class=500)).sha256, "all images are no subset"


def test_a_smaller_subset_lies_within_a_larger_one(raw: RawData) -> None:
    def images(count: int, seed: int = 0) -> set[int]:
        part = split_data(raw, DataOptions(images_per_class=count, split_seed=seed))
        return {int(index) for index in np.concatenate([part.train, part.validation, part.held_out])}

    assert len(images(2)) == 20 and images(2) < images(50) < images(60)
    assert images(50) != images(50, seed=1)


def test_a_subset_keeps_small_classes_whole_and_refuses_what_limits_nothing() -> None:
    labels = np.array([0] * 7 + [1] * 3 + [2], dtype=np.int64)
    images = np.zeros((11, 1, 28, 28), np.uint8)
    few = RawData(DATASETS[NAME], images, labels, images, labels, "x")
    parts = split_data(few, DataOptions(images_per_class=4))
    together = np.concatenate([parts.train, parts.validation, parts.held_out])
    assert np.bincount(labels[together]).tolist() == [4, 3, 1]
    with pytest.raises(
        ConfigError, match="images_per_class=8: no class of fashion_mnist_mini has more than 7 training"
    ):
        split_data(few, DataOptions(images_per_class=8))
    unlabelled = replace(few, spec=replace(few.spec, num_classes=0))
    with pytest.raises(ConfigError, match="images_per_class=4: the pictures of fashion_mnist_mini have no classes"):
        split_data(unlabelled, DataOptions(images_per_class=4))


# batches


def device_data(count: int = 10) -> DeviceData:
    images = np.arange(count, dtype=np.uint8)[:, None, None, None].repeat(4, 2).repeat(4, 3)
    labels = np.arange(count, dtype=np.int64)
    return DeviceData.from_arrays(images, labels, np.arange(count), torch.device("cpu"))


def labels_of(batches: Iterator[tuple[Tensor, Tensor]]) -> list[list[int]]:
    return [labels.tolist() for _, labels in batches]


def test_from_arrays_takes_what_the_index_says() -> None:
    images = np.arange(5, dtype=np.uint8)[:, None, None, None]
    data = DeviceData.from_arrays(images, np.arange(5), np.array([3, 1]), torch.device("cpu"))
    x, y = data.get(slice(None))
    assert len(data) == 2
    assert y.tolist() == [3, 1]
    assert x.flatten().tolist() == pytest.approx([3 / 255, 1 / 255])
    assert x.dtype == torch.float32


def test_in_order_gives_every_image_once() -> None:
    assert labels_of(device_data().in_order(4)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def shuffled(batch_size: int, seed: int = 0) -> Tensor:
    return device_data().epoch_order(batch_size, torch.Generator().manual_seed(seed), ShuffledOptions())


def test_shuffled_batches_are_full_and_do_not_repeat() -> None:
    assert shuffled(4).shape == (2, 4)
    assert len(shuffled(4).unique()) == 8
    assert shuffled(5).flatten().sort().values.tolist() == list(range(10))


def test_shuffled_order_is_the_generators_first_permutation() -> None:
    """Runs of earlier versions depend on it: nothing else may be drawn before."""
    assert torch.equal(shuffled(4, 7).flatten(), torch.randperm(10, generator=torch.Generator().manual_seed(7))[:8])


def test_an_index_keeps_images_with_their_labels() -> None:
    for index in shuffled(5, 3):
        x, y = device_data().get(index)
        assert (x[:, 0, 0, 0] * 255).round().tolist() == y.tolist()


def balanced(labels: Tensor, batch_size: int, samples: int, seed: int = 0) -> Tensor:
    data = DeviceData(torch.zeros(len(labels), 1, 1, 1, dtype=torch.uint8), labels)
    options = BalancedOptions(samples_per_class=samples)
    return data.epoch_order(batch_size, torch.Generator().manual_seed(seed), options)


def unequal_labels(seed: int = 0) -> Tensor:
    """200 classes of 3 to 60 images, in any order; class 7 has none."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(3, 61, (200,), generator=generator)
    sizes[7] = 0
    labels = torch.arange(200).repeat_interleave(sizes)
    return labels[torch.randperm(len(labels), generator=generator)]


@pytest.mark.parametrize(("batch_size", "samples"), [(128, 4), (128, 2), (100, 5), (32, 16), (199 * 2, 2)])
def test_balanced_batches_hold_whole_classes(batch_size: int, samples: int) -> None:
    labels = unequal_labels()
    order = balanced(labels, batch_size, samples)
    assert order.shape == (len(labels) // batch_size, batch_size)
    for row in order:
        _, counts = labels[row].unique(return_counts=True)
        assert counts.tolist() == [samples] * (batch_size // samples)
        per_class = labels.bincount()[labels[row]]
        assert len(row.unique()) == batch_size or bool((per_class < samples).any())


@pytest.mark.parametrize(("num_classes", "batch_size", "samples"), [(10, 32, 4), (200, 128, 4), (5, 10, 2), (7, 6, 2)])
def test_balanced_batches_draw_every_class_equally_often(num_classes: int, batch_size: int, samples: int) -> None:
    labels = torch.arange(6000) % num_classes
    for seed in range(3):
        drawn = labels[balanced(labels, batch_size, samples, seed)].flatten().bincount(minlength=num_classes)
        assert int(drawn.max() - drawn.min()) <= 2 * samples


def test_balanced_batches_use_every_image_of_a_class_before_one_comes_again() -> None:
    labels = torch.tensor([0] * 10 + [1] * 40 + [2] * 50)
    used = balanced(labels, 4, 2).flatten().bincount(minlength=100)
    assert set(used[:10].tolist()) <= {3, 4}
    assert int(used[10:].max()) == 1


def test_a_class_smaller_than_its_share_repeats_its_images() -> None:
    labels = torch.tensor([0, *[1] * 20])
    order = balanced(labels, 6, 3)
    assert all(sorted(row.tolist()).count(0) == 3 for row in order)


@pytest.mark.parametrize("kind", ["shuffled", "balanced"])
def test_the_generator_decides_the_order(kind: str) -> None:
    def order(seed: int) -> list[list[int]]:
        found = shuffled(5, seed) if kind == "shuffled" else balanced(torch.arange(60) % 6, 12, 3, seed)
        return [row.tolist() for row in found]

    assert order(1) == order(1)
    assert order(1) != order(2)


# augmentation


def pictures(count: int = 64, height: int = 9, width: int = 12) -> Tensor:
    return torch.rand(count, 2, height, width, generator=torch.Generator().manual_seed(8))


def moved(x: Tensor, seed: int = 0, **options: object) -> Tensor:
    return augment(x, DataOptions.model_validate(options), torch.Generator().manual_seed(seed))


def shifted(image: Tensor, right: int, down: int) -> Tensor:
    """The image moved by whole pixels, black where nothing comes from."""
    _, H, W = image.shape
    out = torch.zeros_like(image)
    out[:, max(0, down) : H + min(0, down), max(0, right) : W + min(0, right)] = image[
        :, max(0, -down) : H - max(0, down), max(0, -right) : W - max(0, right)
    ]
    return out


def test_no_augmentation_is_the_identity() -> None:
    x = pictures()
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    assert augment(x, DataOptions(), generator) is x
    assert torch.equal(generator.get_state(), before)


@pytest.mark.parametrize(
    "options",
    [
        {"crop_padding": 2},
        {"horizontal_flip": True},
        {"rotation_degrees": 15},
        {"crop_padding": 4, "horizontal_flip": True, "rotation_degrees": 180},
    ],
)
def test_augmented_pixels_stay_pixels_and_depend_on_the_generator(options: dict[str, object]) -> None:
    x = torch.cat([pictures(), torch.ones(8, 2, 9, 12)])
    out = moved(x, **options)
    assert out.shape == x.shape
    assert out.min() >= 0
    assert out.max() <= 1
    assert torch.equal(out, moved(x, **options))
    assert not torch.equal(out, moved(x, seed=1, **options))


def test_shifts_are_by_whole_pixels_and_reach_every_offset_alike() -> None:
    image = pictures(1)[0]
    out = moved(image.expand(2000, -1, -1, -1), crop_padding=2)
    candidates = {(r, d): shifted(image, r, d) for r in range(-2, 3) for d in range(-2, 3)}
    counts = dict.fromkeys(candidates, 0)
    for picture in out:
        (match,) = [offset for offset, target in candidates.items() if (picture - target).abs().max() < 1e-4]
        counts[match] += 1
    assert min(counts.values()) > 40
    assert max(counts.values()) < 130


def test_shifted_bytes_come_back_exactly() -> None:
    image = (pictures(1) * 255).round() / 255
    out = moved(image.expand(50, -1, -1, -1), crop_padding=1)
    seen = set((out * 255).round().to(torch.uint8).flatten().tolist())
    assert seen <= set((image * 255).round().to(torch.uint8).flatten().tolist()) | {0}


def test_flip_mirrors_about_half_of_the_images() -> None:
    x = pictures(200)
    out = moved(x, horizontal_flip=True)
    kept = (out - x).abs().amax((1, 2, 3)) < 1e-4
    mirrored = (out - x.flip(3)).abs().amax((1, 2, 3)) < 1e-4
    assert bool((kept ^ mirrored).all())
    assert 70 <= int(mirrored.sum()) <= 130


def test_rotation_keeps_shapes_rigid_on_oblong_images() -> None:
    rows, columns = torch.meshgrid(torch.arange(33) - 16.0, torch.arange(65) - 32.0, indexing="ij")
    disc = ((rows**2 + columns**2) < 100).float()[None, None]
    out = moved(disc.expand(20, -1, -1, -1), rotation_degrees=90)
    assert (out - disc).abs().mean() < 0.01
    assert (out - disc).abs().max() > 0


# images in parts


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("stored", ["bytes", "floats"])
def test_images_in_parts_are_those_of_the_whole(stored: str, mirrored: bool) -> None:
    kept = torch.randint(0, 256, (10, 3, 4, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    whole = kept.float() / 255
    images = Images(kept if stored == "bytes" else whole.clone(), torch.device("cpu"), mirrored)
    expected = whole.flip(-1) if mirrored else whole
    index = torch.tensor([7, 0, 7])
    assert (len(images), images.shape, images.device) == (10, kept.shape, kept.device)
    assert torch.equal(images[:], expected) and torch.equal(images[index], expected[index])
    assert torch.equal(images[3], expected[3]) and torch.equal(images[2:4], expected[2:4])
    parts = list(images.split(4))
    assert [len(part) for part in parts] == [4, 4, 2] and torch.equal(torch.cat(parts), expected)
    for chosen in (images[:], images[index], images[3], *images.split(4)):
        chosen.zero_()
    assert torch.equal(images[:], expected), "what is handed out is a copy"


# streamed images


def test_streamed_batches_are_those_of_images_on_the_device() -> None:
    resident = device_data()
    streamed = DeviceData(resident.images, resident.labels, streamed=True)
    order = shuffled(3, 5)
    for (x, y), (other, label) in zip(list(resident.batches(order)), list(streamed.batches(order)), strict=True):
        assert torch.equal(x, other)
        assert torch.equal(y, label)


def test_streamed_batches_do_not_overwrite_one_another() -> None:
    streamed = DeviceData(device_data().images, device_data().labels, streamed=True)
    kept = list(streamed.batches(shuffled(2, 1)))
    assert all(torch.equal(x[:, 0, 0, 0].long(), y) for x, y in kept)
