"""Readers of the CIFAR family: pickled batches, through an unpickler that can build only data. No torch."""

from __future__ import annotations

import io
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attncem.base.types import DataError, DatasetSpec
from attncem.config.loading.flat import show
from attncem_edge.decoding import require_file

Arrays = dict[str, NDArray[np.generic]]
MOST_BYTES = 2**30
"""Largest size of a file; train of CIFAR-100 has 155 million bytes."""
MOST_STEPS = 10**7
"""Largest number of pickle operations; about 200,000 are usual."""
MOST_TUPLES = 1000
"""Largest number of tuples in a pickle; about ten are usual."""
PLAIN = frozenset(
    """INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT NONE NEWTRUE NEWFALSE STRING BINSTRING
    SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8 UNICODE SHORT_BINUNICODE BINUNICODE BINUNICODE8 GLOBAL
    STACK_GLOBAL REDUCE""".split()  # noqa: SIM905  (a line each would be longer than its use)
)
"""Operations that produce text, a number or a stand-in below; a pickle may reuse these."""
KEEPING, ASKING = ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), ("GET", "BINGET", "LONG_BINGET")


def read_cifar10(folder: Path, spec: DatasetSpec) -> Arrays:
    """The folder cifar-10-batches-py: five training batches and one test batch."""
    count = _check_meta(folder / "batches.meta", "label_names", spec)
    batches = [_read_batch(folder / f"data_batch_{number}", "labels", spec, count) for number in range(1, 6)]
    train = tuple(np.concatenate(parts) for parts in zip(*batches, strict=True))
    return _arrays((train[0], train[1]), _read_batch(folder / "test_batch", "labels", spec, count))


def read_cifar100(folder: Path, spec: DatasetSpec) -> Arrays:
    """The folder cifar-100-python with its fine labels."""
    _check_meta(folder / "meta", "fine_label_names", spec)
    return _arrays(*(_read_batch(folder / part, "fine_labels", spec) for part in ("train", "test")))


def load_data_pickle(path: Path) -> dict[str, Any]:
    """The dictionary in a pickle that holds only data; DataError for anything else. Nothing is executed."""
    require_file(path)
    try:
        if path.stat().st_size > MOST_BYTES:
            raise DataError(f"is refused: it has more than {MOST_BYTES} bytes; get it again")
        raw = path.read_bytes()
        _check_steps(raw)
        content = _DataUnpickler(io.BytesIO(raw), encoding="bytes").load()
    except DataError as error:
        raise DataError(f"{path} {error}") from error
    except Exception as error:  # a damaged pickle can fail in any way
        raise DataError(f"{path} is damaged: {error or type(error).__name__}; get it again") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} holds no dictionary: it is not a CIFAR file; get it again")
    return {
        _text(key): getattr(value, "value", None) if isinstance(value, _ByteArray) else value
        for key, value in content.items()
    }


def _check_steps(raw: bytes) -> None:
    """Reject a pickle that builds much from few bytes: without shared containers it is no larger than its file.

    A list that holds another twice, nested forty times, has 2^40 leaves; hashing or printing it never ends.
    """
    plain, before, tuples = dict[int, bool](), "", 0
    for step, (opcode, argument, _) in enumerate(pickletools.genops(raw)):
        name = opcode.name
        place = len(plain) if name == "MEMOIZE" else argument if isinstance(argument, int) else 0
        tuples += name.startswith("TUPLE")
        if name in KEEPING:
            plain[place] = before in PLAIN
        if name == "DUP" or max(step, place * (name in KEEPING)) > MOST_STEPS or tuples > MOST_TUPLES:
            raise DataError("is refused: it builds more than a data file holds; get it again")
        if name in ASKING and not plain.get(place):
            raise DataError("is refused: it holds one list or tuple in several places; get it again")
        before = name


class _Name:
    """A stand-in for one allowed name; it has no attributes that a pickle could set."""

    __slots__ = ()


class _ByteType(_Name):
    """A stand-in for the type of an array; only bytes are supported, and a file's further state is ignored."""

    def __setstate__(self, state: object) -> None: ...


class _ByteArray:
    """A stand-in for an array of bytes, whose shape and content come as its state."""

    __slots__ = ("value",)
    value: NDArray[np.uint8]

    def __setstate__(self, state: tuple[object, tuple[int, ...], object, object, bytes]) -> None:
        _, shape, kind, fortran, content = state
        if not isinstance(kind, _ByteType) or not isinstance(content, bytes):
            raise ValueError("an array of something else than bytes")
        self.value = np.frombuffer(content, np.uint8).reshape(shape, order="F" if fortran else "C")


class _MakeArray(_Name):
    """numpy's _reconstruct."""

    def __call__(self, *_: object) -> _ByteArray:
        return _ByteArray()


class _MakeType(_Name):
    """numpy's dtype."""

    def __call__(self, code: str | bytes, *_: object) -> _ByteType:
        if _text(code) not in ("u1", "|u1", "uint8"):
            raise ValueError(f"an array of {_text(code)} instead of bytes")
        return _ByteType()


class _Encode(_Name):
    """_codecs.encode, as old protocols write bytes: Latin-1 only."""

    def __call__(self, text: str, *_: object) -> bytes:
        return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], _Name] = {
    ("numpy.core.multiarray", "_reconstruct"): _MakeArray(),
    ("numpy._core.multiarray", "_reconstruct"): _MakeArray(),
    ("numpy", "ndarray"): _Name(),
    ("numpy", "dtype"): _MakeType(),
    ("_codecs", "encode"): _Encode(),
}


class _DataUnpickler(pickle.Unpickler):
    """Builds arrays, lists, dictionaries, strings, bytes and numbers; every other name is refused."""

    def find_class(self, module: str, name: str) -> Any:
        """A stand-in for an allowed name. The real objects are never loaded."""
        allowed = _ALLOWED.get((module, name))
        if allowed is None:
            raise DataError(f"is refused: it asks for {module}.{name}, and a data file may hold only arrays and text")
        return allowed


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("latin1")
    return value if isinstance(value, str) else f"a {type(value).__name__}"


def _check_meta(path: Path, key: str, spec: DatasetSpec) -> int | None:
    """Compare the class names, if the file exists, and the number of images in each batch, if the file gives it."""
    if not path.is_file():
        return None
    meta = load_data_pickle(path)
    names = meta.get(key)
    if not isinstance(names, list) or tuple(map(_text, names)) != spec.class_names:
        raise DataError(f"{path} does not list the {spec.num_classes} classes of {spec.name}; get it again")
    count = meta.get("num_cases_per_batch")
    return count if isinstance(count, int) and 0 < count <= MOST_BYTES else None


def _read_batch(
    path: Path, key: str, spec: DatasetSpec, count: int | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    batch = load_data_pickle(path)
    images, labels = batch.get("data"), batch.get(key)
    pixels = int(np.prod(spec.shape))
    if not isinstance(images, np.ndarray) or images.shape[1:] != (pixels,):
        raise DataError(f"{path}: data must be rows of {pixels} bytes; it is not a file of {spec.name}, get it again")
    if not isinstance(labels, list) or len(labels) != len(images) or len(images) != (count or len(images) or 1):
        got = len(labels) if isinstance(labels, list) else "no"
        raise DataError(f"{path}: {len(images)} images, {got} {key}, expected {count or 'as many'}; get it again")
    for position, label in enumerate(labels):
        if not isinstance(label, int) or not 0 <= label < spec.num_classes:
            raise DataError(
                f"{path}: label {show(label)} at {position} is not in 0…{spec.num_classes - 1}; get it again"
            )
    return images.reshape(-1, *spec.shape), np.array(labels, np.int64)


def _arrays(*parts: tuple[NDArray[np.uint8], NDArray[np.int64]]) -> Arrays:
    (train_images, train_labels), (test_images, test_labels) = parts
    return {
        "train_images": train_images,
        "train_labels": train_labels,
        "test_images": test_images,
        "test_labels": test_labels,
    }
