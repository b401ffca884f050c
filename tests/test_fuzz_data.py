"""Data files that were damaged in any way: they are read, or a DataError names them; nothing is changed or executed.

More of them: ATTNCEM_FUZZ_COUNT=1750 ATTNCEM_FUZZ_SEED=7 pytest -s -o timeout=0 tests/test_fuzz_data.py -k many
"""

from __future__ import annotations

import gzip
import io
import os
import pickle
import random
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attncem.base.types import AttncemError, DataError
from attncem.config.options.data import DataOptions
from attncem.data import sources
from attncem.data.folders import check_files, listing_notes
from attncem.data.inspect import inspect_datasets
from attncem.data.readers import FOLDER_SETS, read_dataset
from attncem.data.sources import CIFAR10_MD5, IDX_FILES, locate
from attncem.data.specs import DATASETS
from attncem.data.splits import split_data
from attncem_edge.pictures import read_picture
from fuzzing import Tally, amount, contents, fuzz_in_places, limited_memory, start

FEW, MANY = 40, 500
SECONDS = 5.0
PICTURES = (
    *(("a.png", "RGB", "PNG"), ("b.jpg", "RGB", "JPEG"), ("c.bmp", "L", "BMP"), ("d.gif", "P", "GIF")),
    *(("e.tif", "RGB", "TIFF"), ("f.webp", "RGB", "WEBP"), ("g.ppm", "RGB", "PPM"), ("h.png", "RGBA", "PNG")),
    *(("i.png", "I;16", "PNG"), ("j.tif", "CMYK", "TIFF"), ("k.png", "P", "PNG"), ("l.jpg", "L", "JPEG")),
)
NUMBERS = (0, 1, 2, 9, 10, 127, 255, 28, 2**16, 2**31 - 1, 2**31, 2**32 - 1)
TEXTS = ("", "\t", "n01", "../../x", "\0", "é" * 300, "n01\tn02", "val_0.JPEG\tn99", "val_0.JPEG", "/etc/passwd", " ")
OPCODES = b"(.0123FGIJKLMNPQRSTUVX]abcdeghijlopqrstu}\x80\x81\x85\x8a\x8b\x8c\x8e\x93\x94\x95\x96\x97"


# whole data sets, small


def numbered(count: int, classes: int) -> list[int]:
    return [number % classes for number in range(count)]


def write_idx(folder: Path, *, packed: bool) -> None:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name, count in zip(IDX_FILES, (40, 40, 20, 20), strict=True):
        images = "images" in name
        values = rng.integers(0, 256, (count, 28, 28)) if images else np.array(numbered(count, 10))
        raw = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.astype("u1").tobytes()
        (folder / f"{name}{'.gz' * packed}").write_bytes(gzip.compress(raw) if packed else raw)


def write_cifar(folder: Path, *, hundred: bool, protocol: int) -> None:
    folder.mkdir(parents=True)
    rng, classes = np.random.default_rng(0), 100 if hundred else 10
    names = ("train", "test") if hundred else tuple(name for name, _ in CIFAR10_MD5)
    spec = DATASETS["cifar100" if hundred else "cifar10"]
    for name in names:
        data = rng.integers(0, 256, (classes, 3072)).astype(np.uint8)
        batch = {
            "data": data,
            "fine_labels" if hundred else "labels": numbered(classes, classes),
            "filenames": ["x"] * 3,
        }
        (folder / name).write_bytes(pickle.dumps(batch, protocol=protocol))
    meta = {"fine_label_names" if hundred else "label_names": list(spec.class_names), "num_cases_per_batch": classes}
    (folder / ("meta" if hundred else "batches.meta")).write_bytes(pickle.dumps(meta, protocol=protocol))


def write_picture(path: Path, mode: str, kind: str, size: int = 16) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(len(path.parts))
    image = Image.fromarray(rng.integers(0, 256, (size, size, 3)).astype(np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    wide = Image.fromarray(rng.integers(0, 65536, (size, size)).astype(np.uint16))
    more = {"exif": exif} if kind in ("JPEG", "PNG", "TIFF", "WEBP") and mode != "I;16" else {}
    (wide if mode == "I;16" else image.convert(mode)).save(path, kind, **more)


def write_folders(root: Path, parts: tuple[str, ...] = ("train", "test"), size: int = 16) -> None:
    kinds = [row for row in PICTURES if row[1] in ("RGB", "L", "P")]
    for part in parts:
        for name in ("ant", "bee"):
            for file, mode, kind in kinds:
                write_picture(root / part / name / file, mode, kind, size)


def write_tiny(root: Path) -> None:
    folder, lines = root / "tiny-imagenet-200", []
    for name in ("n01", "n02"):
        write_picture(folder / "train" / name / "images" / f"{name}_0.JPEG", "RGB", "JPEG", 64)
        write_picture(folder / "val" / "images" / f"{name}_1.JPEG", "RGB", "JPEG", 64)
        lines.append(f"{name}_1.JPEG\t{name}\t0\t0\t62\t62")
    (folder / "wnids.txt").write_text("n01\nn02\n")
    (folder / "words.txt").write_text("n01\tant, insect\nn02\tbee\n")
    (folder / "val" / "val_annotations.txt").write_text("\n".join(lines))


def write_mini(root: Path) -> None:
    """Another copy of the embedded images."""
    root.mkdir()
    embedded = Path(sources.__file__).parent / "embedded" / "fashion_mnist_mini.npz"
    shutil.copy(embedded, root / embedded.name)


MADE: dict[str, tuple[str, Callable[[Path], None]]] = {
    "idx": ("fashion_mnist", lambda root: write_idx(root, packed=False)),
    "packed idx": ("fashion_mnist", lambda root: write_idx(root, packed=True)),
    "cifar10": ("cifar10", lambda root: write_cifar(root, hundred=False, protocol=2)),
    "old cifar10": ("cifar10", lambda root: write_cifar(root, hundred=False, protocol=0)),
    "cifar100": ("cifar100", lambda root: write_cifar(root, hundred=True, protocol=4)),
    "folders": ("image_folder", write_folders),
    "undivided": ("image_folder", lambda root: write_folders(root, ("",))),
    "people": ("facescrub", lambda root: write_folders(root, ("train", "validate"), 48)),
    "tiny": ("tiny_imagenet_200", write_tiny),
    "mini": ("fashion_mnist_mini", write_mini),
}
"""Data sets that are damaged: the name under which each is read, and who writes it."""


# damage


class Damage:
    """Changes one file, from one random generator; what it did is in `said`."""

    def __init__(self, rng: random.Random, root: Path, outside: Path) -> None:
        self.rng, self.root, self.outside, self.said = rng, root, outside, ""

    def once(self) -> Path:
        """Damage one file, and name it."""
        file = self.rng.choice(sorted(path for path in self.root.rglob("*") if path.is_file()))
        ways = [self._flipped, self._flipped, self._cut, self._other, self._numbers, self._spliced, self._place]
        if file.suffix == ".txt":
            ways += [self._lines] * 5
        elif file.suffix == ".gz":
            ways += [self._inside] * 5
        elif file.suffix.lower() == ".png":
            ways += [self._chunk] * 5
        elif "cifar" in file.parent.name or file.name.startswith(("data_batch", "test", "train", "meta", "batches")):
            ways += [self._opcode] * 5
        way = self.rng.choice(ways)
        self.said = f"{self.said} {way.__name__} {file.relative_to(self.root)}"
        way(file)
        return file

    def _flipped(self, file: Path) -> None:
        data = bytearray(file.read_bytes())
        reach = self.rng.choice((16, 64, 400, len(data)))
        for _ in range(self.rng.randint(1, 8) if data else 0):
            data[self.rng.randrange(min(reach, len(data)))] ^= 1 << self.rng.randrange(8)
        file.write_bytes(data)

    def _cut(self, file: Path) -> None:
        data = file.read_bytes()
        place = self.rng.randrange(len(data) + 1)
        file.write_bytes(self.rng.choice((data[:place], data[place:], b"", data[:20], data[:-1], data + data)))

    def _other(self, file: Path) -> None:
        """What something else would hold."""
        others = [path for path in self.root.rglob("*") if path.is_file()]
        noise = self.rng.randbytes(self.rng.randrange(3000))
        bomb = gzip.compress(bytes(2**22))
        file.write_bytes(self.rng.choice((self.rng.choice(others).read_bytes(), noise, bomb, b"\0" * 999, NPZ, EVIL)))

    def _numbers(self, file: Path) -> None:
        """A number of four bytes, near the beginning where sizes stand, of another size."""
        data = bytearray(file.read_bytes())
        place = self.rng.randrange(min(len(data), 120) or 1)
        value = struct.pack(self.rng.choice("<>") + "I", self.rng.choice(NUMBERS))
        data[place : place + 4] = value
        file.write_bytes(data)

    def _spliced(self, file: Path) -> None:
        data = file.read_bytes()
        one, other = (self.rng.randrange(len(data) + 1) for _ in range(2))
        file.write_bytes(data[:one] + data[other : other + 200] + data[one:])

    def _place(self, file: Path) -> None:
        file.unlink()
        kind = self.rng.choice(("gone", "folder", "link", "loop", "dangling", "pipe", "folder gone", "other name"))
        self.said += f": {kind}"
        if kind == "folder":
            file.mkdir()
        elif kind == "pipe":
            os.mkfifo(file)
        elif kind == "folder gone" and file.parent != self.root:
            shutil.rmtree(file.parent)
        elif kind == "other name":
            (file.parent / self.rng.choice((".hidden", "é\x1b[1m.png", "a\nb.png", "no-suffix", "x.PNG"))).write_bytes(
                b"x"
            )
        elif kind in ("link", "loop", "dangling"):
            target = {"link": self.outside / "kept.txt", "loop": file, "dangling": self.outside / "none"}[kind]
            file.symlink_to(target)

    def _lines(self, file: Path) -> None:
        lines = file.read_text(errors="replace").splitlines() or [""]
        place = self.rng.randrange(len(lines))
        new = (self.rng.choice(TEXTS), lines[place] * 2, lines[place].upper(), self.rng.choice(lines), lines[place][1:])
        lines[place] = self.rng.choice(new)
        text = self.rng.choice(("\n", "\r\n", "\r")).join(lines)
        file.write_bytes(text.encode(self.rng.choice(("utf-8", "utf-16", "utf-8-sig"))))

    def _inside(self, file: Path) -> None:
        """Damage what is packed, and pack it again."""
        try:
            data = bytearray(gzip.decompress(file.read_bytes()))
        except (OSError, EOFError, zlib.error):
            return
        plain = file.with_suffix("")
        plain.write_bytes(data)
        self.rng.choice((self._flipped, self._cut, self._numbers, self._spliced))(plain)
        file.write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()

    def _chunk(self, file: Path) -> None:
        """Another value in a chunk of a PNG, with the right sum."""
        data = bytearray(file.read_bytes())
        starts = [place for name in (b"IHDR", b"PLTE", b"IDAT", b"eXIf") if (place := data.find(name)) > 0]
        if not starts:
            return
        at = self.rng.choice(starts)
        (length,) = struct.unpack(">I", data[at - 4 : at])
        if not 0 < length <= len(data) - at - 8:
            return
        place = at + 4 + self.rng.randrange(length)
        data[place] = self.rng.choice((0, 1, 2, 3, 4, 6, 7, 8, 16, 127, 255))
        data[at + 4 + length : at + 8 + length] = struct.pack(">I", zlib.crc32(data[at : at + 4 + length]))
        file.write_bytes(data)

    def _opcode(self, file: Path) -> None:
        """Another step in a pickle."""
        data = bytearray(file.read_bytes())
        for _ in range(self.rng.randint(1, 3) if data else 0):
            place = self.rng.choice((self.rng.randrange(len(data)), self.rng.randrange(min(len(data), 250))))
            data[place] = self.rng.choice(OPCODES)
        file.write_bytes(data)


class Evil:
    """Would show itself if a pickle were executed."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch executed",)


EVIL = pickle.dumps({"data": Evil()})
_buffer = io.BytesIO()
np.savez(_buffer, train_images=np.zeros((2, 28, 28), np.uint8))
NPZ = _buffer.getvalue()


# the readers


def read_all(name: str, root: Path, image_size: int | None) -> None:
    """All that training does with a data set before the first step."""
    raw = read_dataset(name, root, image_size)
    split_data(raw, DataOptions(name=name, root=str(root), validation_fraction=0.3, held_out_fraction=0.1))


def look_at_all(name: str, root: Path) -> None:
    """What `attncem data` and `attncem train` say of it."""
    inspect_datasets(str(root), verify=True)
    if name in FOLDER_SETS:
        folder = locate(name, root)
        listing_notes(name, folder)
        check_files(name, folder)


def fuzz_data(number: int, rng: random.Random, originals: Path, place: Path, tally: Tally) -> None:
    """Damage a copy of a data set and read it."""
    kind = list(MADE)[number % len(MADE)]
    name, root, outside = MADE[kind][0], place / "data", place / "outside"
    outside.mkdir(parents=True)
    (outside / "kept.txt").write_text("a person's")
    shutil.copytree(originals / kind, root)
    damage = Damage(rng, root, outside)
    file = damage.once()
    before, said = contents((place,)), (number, kind, damage.said)
    tally.ended["files"] += 1
    size = rng.choice((None, 8, 20)) if name in FOLDER_SETS else None
    tally.survives(lambda: read_all(name, root, size), said, AttncemError)
    tally.survives(lambda: look_at_all(name, root), said, DataError)
    if name in FOLDER_SETS:
        shape = rng.choice(((3, 32, 32), (1, 28, 28)))
        tally.survives(lambda: read_picture(file, shape, squash=rng.random() < 0.5), said, DataError)
    tally.expect(contents((place,)) == before, "files were changed", said)
    tally.expect(not Path("executed").exists(), "a pickle was executed", said)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sets")
    for kind, (_, write) in MADE.items():
        write(root / kind)
    return root


def fuzz(count: int, seed: int, originals: Path, root: Path) -> None:
    tally = Tally("readings of data files", SECONDS)
    fuzz_in_places(tally, lambda number, rng, place: fuzz_data(number, rng, originals, place, tally), count, seed, root)


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ATTNCEM_DATA", raising=False)
    monkeypatch.setattr(sources, "SYSTEM_PLACE", tmp_path / "system")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("kind", MADE)
def test_what_is_whole_is_read(originals: Path, kind: str) -> None:
    read_all(MADE[kind][0], originals / kind, None if MADE[kind][0] not in FOLDER_SETS else 16)


def test_a_few_damaged_data_files(originals: Path, tmp_path: Path) -> None:
    fuzz(FEW, 5, originals, tmp_path)


@pytest.mark.slow
def test_many_damaged_data_files(originals: Path, tmp_path: Path) -> None:
    with limited_memory():
        fuzz(amount(MANY), start(6), originals, tmp_path)
