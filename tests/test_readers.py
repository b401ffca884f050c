"""Readers of idx files and CIFAR pickles, on small made-up files; where data sets are looked for."""

from __future__ import annotations

import gzip
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncem.base.types import ConfigError, DataError
from attncem.config.options.data import DataOptions
from attncem.data import inspect, sources
from attncem.data.cifar import load_data_pickle
from attncem.data.inspect import DatasetState, inspect_datasets
from attncem.data.readers import dataset_spec, read_dataset
from attncem.data.sources import CIFAR10_MD5, IDX_FILES, SOURCES, locate, places
from attncem.data.specs import DATASETS
from attncem.data.splits import split_data

RNG = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No data set of this machine is seen."""
    monkeypatch.delenv("ATTNCEM_DATA", raising=False)
    monkeypatch.setattr(sources, "SYSTEM_PLACE", tmp_path / "system")
    monkeypatch.chdir(tmp_path)


def pixels(count: int, *shape: int) -> np.ndarray:
    return RNG.integers(0, 256, (count, *shape), dtype=np.uint8)


def labels_for(count: int, classes: int) -> list[int]:
    return [number % classes for number in range(count)]


def idx_bytes(values: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes()


def write_fashion(folder: Path, *, compressed: bool = False) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True)
    parts = [pixels(40, 28, 28), np.array(labels_for(40, 10), np.uint8)]
    parts += [pixels(20, 28, 28), np.array(labels_for(20, 10), np.uint8)]
    for name, values in zip(IDX_FILES, parts, strict=True):
        raw = idx_bytes(values)
        (folder / f"{name}{'.gz' * compressed}").write_bytes(gzip.compress(raw) if compressed else raw)
    return dict(zip(IDX_FILES, parts, strict=True))


def write_pickle(path: Path, content: object, protocol: int = 2) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol=protocol))


def write_cifar10(folder: Path, count: int = 20) -> dict[str, np.ndarray]:
    data = {name: pixels(count, 3072) for name, _ in CIFAR10_MD5}
    for name, images in data.items():
        write_pickle(folder / name, {b"data": images, b"labels": labels_for(count, 10), b"batch_label": name.encode()})
    names = [name.encode() for name in DATASETS["cifar10"].class_names]
    write_pickle(folder / "batches.meta", {b"label_names": names, b"num_cases_per_batch": count})
    return data


def write_cifar100(folder: Path) -> dict[str, np.ndarray]:
    data = {"train": pixels(200, 3072), "test": pixels(100, 3072)}
    for name, images in data.items():
        fine, coarse = labels_for(len(images), 100), labels_for(len(images), 20)
        write_pickle(folder / name, {"data": images, "fine_labels": fine, "coarse_labels": coarse})
    write_pickle(folder / "meta", {"fine_label_names": list(DATASETS["cifar100"].class_names)})
    return data


def refused(name: str, root: Path, *words: object) -> None:
    with pytest.raises(DataError) as caught:
        read_dataset(name, root)
    for word in words:
        assert str(word) in str(caught.value)


# idx


@pytest.mark.parametrize("compressed", [False, True])
def test_idx_files_come_back(tmp_path: Path, compressed: bool) -> None:
    parts = write_fashion(tmp_path / "fashion-mnist", compressed=compressed)
    raw = read_dataset("fashion_mnist", tmp_path / "fashion-mnist")
    assert np.array_equal(raw.train_images[:, 0], parts[IDX_FILES[0]])
    assert np.array_equal(raw.test_images[:, 0], parts[IDX_FILES[2]])
    assert raw.train_labels.tolist() == labels_for(40, 10)
    assert raw.test_labels.tolist() == labels_for(20, 10)
    assert read_dataset("fashion_mnist", tmp_path).sha256 == raw.sha256, "the folder above works as well"


@pytest.mark.parametrize(
    ("number", "content", "word"),
    [
        (0, b"", "not an idx file"),
        (0, idx_bytes(pixels(40, 28, 28))[:-1], "is damaged"),
        (0, idx_bytes(pixels(40, 28, 28)) + b"x", "is damaged"),
        (2, idx_bytes(pixels(20, 32, 32)), "another data set"),
        (2, idx_bytes(pixels(0, 28, 28)), "is damaged"),
        (1, idx_bytes(pixels(40, 28, 28)), "not an idx file"),
        (3, idx_bytes(np.array(labels_for(20, 11), np.uint8)), "label 10 at 10"),
    ],
)
def test_a_damaged_idx_file_is_named(tmp_path: Path, number: int, content: bytes, word: str) -> None:
    write_fashion(tmp_path / "f")
    (tmp_path / "f" / IDX_FILES[number]).write_bytes(content)
    refused("fashion_mnist", tmp_path / "f", tmp_path / "f" / IDX_FILES[number], word)


def test_a_damaged_gz_file_is_named(tmp_path: Path) -> None:
    write_fashion(tmp_path / "f", compressed=True)
    file = tmp_path / "f" / f"{IDX_FILES[0]}.gz"
    whole = file.read_bytes()
    for content in (whole[:-100], b"not gzip", whole[:40] + b"zzzzzzzz" + whole[48:]):
        file.write_bytes(content)
        refused("fashion_mnist", tmp_path / "f", file, "cannot be read")


def test_images_and_labels_must_be_as_many(tmp_path: Path) -> None:
    write_fashion(tmp_path / "f")
    (tmp_path / "f" / IDX_FILES[1]).write_bytes(idx_bytes(np.zeros(39, np.uint8)))
    refused("fashion_mnist", tmp_path / "f", "train files hold different numbers")


# CIFAR


def test_cifar10_comes_back(tmp_path: Path) -> None:
    data = write_cifar10(tmp_path / "cifar-10-batches-py")
    raw = read_dataset("cifar10", tmp_path)
    assert raw.train_images.shape == (100, 3, 32, 32)
    expected = np.concatenate([data[f"data_batch_{number}"] for number in range(1, 6)])
    assert np.array_equal(raw.train_images.reshape(100, -1), expected)
    assert np.array_equal(raw.test_images.reshape(20, -1), data["test_batch"])
    assert raw.train_labels.tolist() == labels_for(20, 10) * 5
    assert raw.train_images[0, 0].tobytes() != raw.train_images[0, 1].tobytes()


def test_cifar100_comes_back_with_its_fine_labels(tmp_path: Path) -> None:
    data = write_cifar100(tmp_path / "cifar-100-python")
    raw = read_dataset("cifar100", tmp_path)
    assert np.array_equal(raw.train_images.reshape(200, -1), data["train"])
    assert raw.test_labels.tolist() == labels_for(100, 100)
    assert len(raw.spec.class_names) == 100


def test_parts_of_a_read_set_are_disjoint(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "cifar-10-batches-py")
    split = split_data(read_dataset("cifar10", tmp_path), DataOptions(name="cifar10"))
    assert sorted(np.concatenate([split.train, split.validation, split.held_out]).tolist()) == list(range(100))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"data": pixels(19, 3072)}, "19 images, 20 labels"),
        ({"data": pixels(20, 1024)}, "rows of 3072 bytes"),
        ({"data": "text"}, "rows of 3072 bytes"),
        ({"data": np.zeros((20, 3072), np.int64)}, "instead of bytes"),
        ({"labels": [10] * 20}, "label 10 at 0"),
        ({"labels": [*range(10), -1, *range(9)]}, "label -1 at 10"),
        ({"labels": ["0"] * 20}, "label 0 at 0"),
        ({"labels": None}, "no labels"),
        ({"data": pixels(10, 3072), "labels": [0] * 10}, "expected 20"),
    ],
)
def test_a_wrong_batch_is_named(tmp_path: Path, change: dict[str, Any], word: str) -> None:
    write_cifar10(tmp_path)
    write_pickle(tmp_path / "data_batch_3", {"data": pixels(20, 3072), "labels": [0] * 20, **change})
    refused("cifar10", tmp_path, tmp_path / "data_batch_3", word)


@pytest.mark.parametrize("keep", [0, 1, 60, 3000, -1])
def test_a_truncated_batch_is_named(tmp_path: Path, keep: int) -> None:
    write_cifar10(tmp_path)
    file = tmp_path / "test_batch"
    file.write_bytes(file.read_bytes()[:keep])
    refused("cifar10", tmp_path, file, "damaged")


def test_class_names_must_be_those_of_the_set(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    write_pickle(tmp_path / "batches.meta", {"label_names": ["cat"] * 10})
    refused("cifar10", tmp_path, tmp_path / "batches.meta", "10 classes")
    (tmp_path / "batches.meta").unlink()
    assert len(read_dataset("cifar10", tmp_path).train_labels) == 100


# a pickle that wants more than data


class Call:
    """Pickles as a call."""

    def __init__(self, function: Any, *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", [0, 1, 2, 4, 5])
@pytest.mark.parametrize("function", [os.mkdir, eval, getattr, np.load, np.frombuffer, bytearray, Path])
def test_a_malicious_pickle_is_refused_and_nothing_runs(tmp_path: Path, function: Any, protocol: int) -> None:
    write_cifar10(tmp_path)
    trap = tmp_path / "trap"
    argument = f"__import__('os').mkdir({str(trap)!r})" if function is eval else str(trap)
    write_pickle(tmp_path / "data_batch_1", {"data": Call(function, argument)}, protocol)
    refused("cifar10", tmp_path, tmp_path / "data_batch_1", "is refused", "may hold only arrays")
    assert not trap.exists()


RAW_PICKLES = {
    "dotted name": b"cnumpy\nload.__globals__\n.",
    "stack name": b"\x80\x04\x8c\x05numpy\x8c\x0endarray.dumps\x93.",
    "instance": b"(ios\nsystem\n.",
    "object": b"(cos\nsystem\nS'true'\no.",
    "array of any size": b"cnumpy\nndarray\n((I99999999999\nttR.",
    "attributes of an allowed name": b"cnumpy\ndtype\n}S'a'\nI1\nsb.",
    "objects in an array": b"cnumpy\ndtype\n(S'O8'\nI0\nI1\ntR.",
    "persistent": b"Pthing\n.",
    "extension": b"\x80\x02\x82\x01.",
    "no dictionary": b"].",
    "state without type": b"cnumpy.core.multiarray\n_reconstruct\n(tR(I1\n(I1\ntNNS'a'\ntb.",
}


@pytest.mark.parametrize("content", RAW_PICKLES.values(), ids=list(RAW_PICKLES))
def test_hand_made_pickles_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(DataError) as caught:
        load_data_pickle(tmp_path / "file")
    assert str(tmp_path / "file") in str(caught.value)


def test_an_array_without_state_is_no_data(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"}S'data'\ncnumpy.core.multiarray\n_reconstruct\n(tRs.")
    assert load_data_pickle(tmp_path / "file") == {"data": None}


def test_python_2_and_fortran_arrays_are_read(tmp_path: Path) -> None:
    array = np.asfortranarray(pixels(4, 6))
    for protocol in (0, 1, 2, 3):
        write_pickle(tmp_path / "file", {"data": array}, protocol)
        assert np.array_equal(load_data_pickle(tmp_path / "file")["data"], array)
    python2 = b"\x80\x02}U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    python2 += (
        b"(K\x01K\x03\x85cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    (tmp_path / "file").write_bytes(python2 + b"\x89U\x03abctbs.")
    assert load_data_pickle(tmp_path / "file")["data"].tobytes() == b"abc"


# where


def test_every_set_has_a_source() -> None:
    assert set(SOURCES) == set(DATASETS)


def test_the_places_in_their_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = "cifar-10-batches-py"
    assert places("cifar10") == [Path("data") / folder, tmp_path / "system" / folder]
    monkeypatch.setenv("ATTNCEM_DATA", str(tmp_path / "mine"))
    write_cifar10(tmp_path / "data" / folder)
    assert locate("cifar10") == Path("data") / folder
    write_cifar10(tmp_path / "mine" / folder)
    assert locate("cifar10") == tmp_path / "mine" / folder
    assert locate("cifar10", tmp_path / "data") == tmp_path / "data" / folder


def test_a_missing_set_says_where_it_was_looked_for_and_how_to_get_it() -> None:
    with pytest.raises(DataError, match=r"data/fashion-mnist.*dataset-fashion-mnist"):
        read_dataset("fashion_mnist")
    with pytest.raises(DataError, match=r"data\.root"):
        dataset_spec(DataOptions(name="image_folder"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    (tmp_path / "data_batch_4").unlink()
    refused("cifar10", tmp_path, tmp_path / "data_batch_4", "missing", "Toronto")


def test_fixed_sizes_are_not_scaled() -> None:
    with pytest.raises(ConfigError, match=r"data\.image_size=16.*image_folder"):
        dataset_spec(DataOptions(name="cifar10", image_size=16))
    assert dataset_spec(DataOptions()) is DATASETS["fashion_mnist_mini"]


# inspection


def states(root: Path | None = None, *, verify: bool = False) -> dict[str, DatasetState]:
    return {state.name: state for state in inspect_datasets(None if root is None else str(root), verify=verify)}


def test_inspection_only_looks_unless_told_to_verify(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_cifar10(tmp_path / "cifar-10-batches-py")
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(b"torn")
    state = states(tmp_path)["cifar10"]
    assert (state.ok, state.state, state.train) == (True, "found", "-")
    state = states(tmp_path, verify=True)["cifar10"]
    assert (state.ok, state.state) == (False, "damaged")
    assert "test_batch" in state.note


def test_inspection_counts_and_hashes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_cifar10(tmp_path / "cifar-10-batches-py")
    assert "expected 50000 + 10000" in states(tmp_path, verify=True)["cifar10"].note
    plain = SOURCES["cifar10"]
    monkeypatch.setitem(SOURCES, "cifar10", inspect_replace(plain, train=100, test=20))
    assert "not the published ones" in states(tmp_path, verify=True)["cifar10"].note
    md5 = tuple((name, inspect._md5(tmp_path / "cifar-10-batches-py" / name)) for name, _ in CIFAR10_MD5)
    monkeypatch.setitem(SOURCES, "cifar10", inspect_replace(plain, train=100, test=20, md5=md5))
    assert "original files" in states(tmp_path, verify=True)["cifar10"].note
    sha = read_dataset("cifar10", tmp_path).sha256
    monkeypatch.setitem(SOURCES, "cifar10", inspect_replace(plain, train=100, test=20, sha256=sha))
    state = states(tmp_path, verify=True)["cifar10"]
    assert "as expected" in state.note
    assert (state.ok, state.train, state.test, state.classes) == (True, "100", "20", "10")


def inspect_replace(source: sources.Source, **changes: Any) -> sources.Source:
    return sources.Source(**{**vars(source), **changes})


def test_an_incomplete_set_is_an_error_only_with_verify(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "cifar-10-batches-py")
    (tmp_path / "cifar-10-batches-py" / "data_batch_2").unlink()
    for verify in (False, True):
        state = states(tmp_path, verify=verify)["cifar10"]
        assert (state.ok, state.state) == (not verify, "incomplete")
        assert "data_batch_2" in state.note


def test_a_folder_is_taken_for_a_set_only_by_its_name(tmp_path: Path) -> None:
    write_cifar100(tmp_path / "cifar-100-python")
    assert states(tmp_path / "cifar-100-python")["cifar100"].state == "found"
    (tmp_path / "cifar-100-python").rename(tmp_path / "other")
    assert states(tmp_path / "other")["cifar100"].state == "missing"


# files that would take all memory, or for ever


def doubled(value: Any, times: int, kind: type) -> Any:
    """A container that holds another twice, over and over: 2^times ends in a file of some hundred bytes."""
    for _ in range(times):
        value = kind((value, value))
    return value


def large(path: Path, content: dict[Any, Any]) -> Path:
    write_pickle(path, content)
    return path


@pytest.mark.parametrize(
    "content",
    [
        {b"data": pixels(2, 3072), b"labels": [0, doubled([], 40, list)]},
        {b"data": pixels(2, 3072), b"labels": [0, doubled((), 40, tuple)]},
        {b"data": pixels(2, 3072), b"labels": [0, doubled({}, 40, lambda pair: dict(enumerate(pair)))]},
    ],
)
def test_a_pickle_that_blows_up_is_refused(tmp_path: Path, content: dict[bytes, Any]) -> None:
    with pytest.raises(DataError, match="is refused: it holds one list or tuple in several places"):
        load_data_pickle(large(tmp_path / "batch", content))


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02}K\x00" + b"2\x86" * 40 + b"K\x01s.",  # a tuple of two equal halves as a key: hashed as a tree
        b"\x80\x02}K\x00" + b"\x85" * 2000 + b"K\x01s.",  # tuples inside tuples: hashed until the stack ends
        b"\x80\x02}r\xff\xff\xff\xff.",  # a place in the memory of the reader beyond all bounds
        b"\x80\x02]N0q\x00h\x00h\x00\x86.",  # a list kept after a step that hides it
    ],
)
def test_steps_that_no_data_file_has_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "batch").write_bytes(content)
    with pytest.raises(DataError, match="batch is refused"):
        load_data_pickle(tmp_path / "batch")


def test_a_deep_or_huge_label_is_named_and_not_printed(tmp_path: Path) -> None:
    write_cifar100(tmp_path / "cifar-100-python")
    batch = tmp_path / "cifar-100-python" / "test"
    for label, word in ((1 << 40_000, "label 0x8"), ([[[["x"] * 9]]], "label [[[[")):
        write_pickle(batch, {"data": pixels(1, 3072), "fine_labels": [label]})
        refused("cifar100", tmp_path, batch, word)
    deep = b"\x80\x02}X\x10\x00\x00\x00fine_label_names]" + b"]" * 5000 + b"a" * 5000 + b"s."
    (tmp_path / "cifar-100-python" / "meta").write_bytes(deep)
    refused("cifar100", tmp_path, "does not list the 100 classes")


def test_a_pickle_of_many_steps_or_bytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = large(tmp_path / "batch", {b"labels": list(range(200))})
    monkeypatch.setattr("attncem.data.cifar.MOST_STEPS", 100)
    with pytest.raises(DataError, match="batch is refused: it builds more than a data file holds"):
        load_data_pickle(path)
    monkeypatch.setattr("attncem.data.cifar.MOST_BYTES", 100)
    with pytest.raises(DataError, match="batch is refused: it has more than 100 bytes"):
        load_data_pickle(path)


def test_what_is_shared_in_real_files_is_read(tmp_path: Path) -> None:
    """Two arrays share their type, and lists their texts, in every protocol."""
    first, second, text = pixels(2, 4), pixels(3, 4), "a word of some length"
    for protocol in range(5):
        write_pickle(tmp_path / "batch", {"one": first, "two": second, "words": [text, text], "n": [7] * 3}, protocol)
        content = load_data_pickle(tmp_path / "batch")
        assert np.array_equal(content["one"], first)
        assert np.array_equal(content["two"], second)
        assert content["words"] == [text, text]


def test_no_more_is_unpacked_than_the_head_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "fashion-mnist"
    write_fashion(folder, compressed=True)
    bomb = folder / f"{IDX_FILES[0]}.gz"
    bomb.write_bytes(gzip.compress(idx_bytes(pixels(40, 28, 28)) + bytes(50_000_000)))
    asked: list[int] = []
    read = gzip.GzipFile.read
    monkeypatch.setattr(gzip.GzipFile, "read", lambda self, size=-1: asked.append(size) or read(self, size))
    refused("fashion_mnist", tmp_path, bomb, "more of data, its header says 31360")
    assert asked == [16, 31361]


def test_a_head_that_promises_too_much_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "fashion-mnist"
    write_fashion(folder)
    (folder / IDX_FILES[0]).write_bytes(struct.pack(">BBBB3I", 0, 0, 8, 3, 2**32 - 1, 28, 28))
    refused("fashion_mnist", tmp_path, folder / IDX_FILES[0], "its header says 3367254359280 bytes")


def test_pipes_in_place_of_files_are_named(tmp_path: Path) -> None:
    write_cifar100(tmp_path / "cifar-100-python")
    write_fashion(tmp_path / "fashion-mnist")
    for pipe in (tmp_path / "cifar-100-python" / "train", tmp_path / "fashion-mnist" / f"{IDX_FILES[0]}"):
        pipe.unlink()
        os.mkfifo(pipe)
    refused("cifar100", tmp_path, "train is not a regular file")
    refused("fashion_mnist", tmp_path, IDX_FILES[0], "expected a file")
