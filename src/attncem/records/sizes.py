"""Largest sizes of the files that are read whole: far above those we write, and small enough for any machine."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attncem.base.types import RunError

LARGEST = {
    ".json": 32 * 2**20,
    ".jsonl": 512 * 2**20,
    ".yaml": 4 * 2**20,
    ".npz": 256 * 2**20,
    ".png": 64 * 2**20,
    ".html": 256 * 2**20,
    ".key": 2**12,
}
"""Bytes by the end of the file's name. A log of a million lines takes 300 MiB."""
_LARGEST_OTHER = 4 * 2**30


def check_size(file: Path, size: int) -> None:
    """RunError names a file that is larger than any of its kind."""
    most = LARGEST.get(file.suffix.lower(), _LARGEST_OTHER)
    if size > most:
        raise RunError(
            f"{file} is not read: it takes {in_words(size)}, and a file of its kind at most {in_words(most)}"
        )


def check_unpacked(file: Path, data: bytes | Path, most: int) -> None:
    """RunError names a zip (.npz, .pt) whose members take more than `most` bytes; ValueError where it is none."""
    try:
        with zipfile.ZipFile(io.BytesIO(data) if isinstance(data, bytes) else data) as packed:
            size = sum(info.file_size for info in packed.infolist())
    except zipfile.BadZipFile as error:
        raise ValueError(str(error)) from error
    if size > most:
        raise RunError(f"{file} is not read: unpacked it takes {in_words(size)}, and at most {in_words(most)} are read")


def in_words(size: int) -> str:
    """A size for people."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size} bytes"


@contextmanager
def named_memory(file: Path) -> Iterator[None]:
    """Turn a lack of memory into a RunError that names the file."""
    try:
        yield
    except MemoryError as error:
        size = in_words(file.stat().st_size) if file.is_file() else "?"
        raise RunError(f"{file} ({size}) does not fit into the free memory") from error
