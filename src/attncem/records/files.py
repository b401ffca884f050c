"""Files: atomic writes that overwrite no other file and follow no link; JSON is read with one kind of error.

Every file and folder follows the umask, except those of `write_private`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import secrets
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from attncem.base.record import Record, read
from attncem.base.types import SCHEMA_VERSION, RunError
from attncem.records.json_text import parse_json
from attncem.records.sizes import check_size, named_memory

R = TypeVar("R", bound=Record)

PARTIAL = ".partial-"
"""Prefix of temporary files and folders; safe to delete after a crash."""
_BEING_MADE = f"{PARTIAL}made"
"""Lock file in a folder that is being created, held by the process that creates it."""
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_TRIES, _PAUSE = 5, 0.01
"""Lock attempts and the delay between them in seconds: a process that only checks a lock holds it for an instant."""


def hash_file(path: Path) -> str:
    """SHA-256 of a file of any size; RunError where it is missing or cannot be read."""
    with _opened(path) as handle:
        if handle is not None:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    raise RunError(f"{path} is missing")


# reading


def read_bytes(path: Path) -> bytes:
    """The contents of a file; RunError where it is missing or cannot be read."""
    data = read_if_there(path)
    if data is None:
        raise RunError(f"{path} is missing")
    return data


def read_if_there(path: Path) -> bytes | None:
    """The contents of a file, None where it does not exist; one that is too large for its kind is a RunError."""
    with _opened(path) as handle, named_memory(path):
        if handle is None:
            return None
        check_size(path, os.fstat(handle.fileno()).st_size)
        return handle.read()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[io.BufferedReader | None]:
    """A file to read, None where it does not exist; a pipe or a device, which may never end, is not opened."""
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise OSError(errno.EINVAL, "it is not a regular file")
        handle = path.open("rb")
    except FileNotFoundError:
        yield None
        return
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    with handle:
        try:
            yield handle
        except OSError as error:
            raise RunError(f"{path} cannot be read: {error.strerror or error}") from error


# writing


def write_atomic(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Write a file so that a reader sees the old one or the complete new one, never a part.

    Without `sync` a power failure may lose the file until it is synced.
    """
    with _written_beside(path, data, sync=sync) as temporary:
        temporary.replace(path)
    if sync:
        sync_folder(path.parent)


def write_new(path: Path, data: bytes) -> None:
    """Write a new file atomically; RunError where it exists already or cannot be written."""
    with explain_os_error(path, "choose another folder"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _written_beside(path, data) as temporary:
            name_new(temporary, path)
        sync_folder(path.parent)


def write_private(path: Path, data: bytes) -> None:
    """Write a new file atomically that only its owner can read, whatever the umask."""
    with _written_beside(path, data, private=True) as temporary:
        name_new(temporary, path)
    sync_folder(path.parent)


@contextlib.contextmanager
def _written_beside(path: Path, data: bytes, *, sync: bool = True, private: bool = False) -> Iterator[Path]:
    """The complete new file in the same folder under a temporary name, which is removed at the end."""
    temporary = partial_path(path.parent)
    try:
        if private:
            temporary.touch(0o600, exist_ok=False)
        with temporary.open("r+b" if private else "xb") as handle:
            _write_through(handle, data, sync=sync)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _write_through(handle: Any, data: bytes, *, sync: bool = True) -> None:
    """Write and wait until the data is on the disk."""
    handle.write(data)
    handle.flush()
    if sync:
        os.fsync(handle.fileno())


def name_new(temporary: Path, path: Path) -> None:
    """Rename a written file, unless the new name is taken."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links: reserve the name, then fill it by one rename
        path.open("xb").close()
        try:
            temporary.replace(path)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def partial_path(folder: Path) -> Path:
    """An unused temporary path in a folder."""
    return folder / f"{PARTIAL}{secrets.token_hex(8)}"


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk; syncing a file does not sync its name."""
    if not hasattr(os, "O_DIRECTORY"):  # this platform cannot open folders
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):  # this file system does not support it
            raise
    finally:
        os.close(descriptor)


# folders


@contextlib.contextmanager
def made_at_once(folder: Path, parts: Collection[str], last: str) -> Iterator[None]:
    """Make a new folder, for one process at a time: its `parts`, and `last`, the file that makes it complete.

    A folder that holds anything is refused. A kill at any moment leaves a complete folder, or one that can be made
    again; an error leaves nothing.
    """
    _check_free(folder, parts)
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with _held_while_made(folder):
            _check_free(folder, parts)  # another process may have been faster
            with _undone_by_an_error(folder, last):
                yield
    except BaseException:
        if is_new:
            with contextlib.suppress(OSError):  # it is not empty: another process made it
                folder.rmdir()
        raise
    sync_folder(folder)
    sync_folder(folder.absolute().parent)


@contextlib.contextmanager
def _held_while_made(folder: Path) -> Iterator[None]:
    with locked(folder / _BEING_MADE, f"{folder} is being made by another process"):
        try:
            yield
        finally:
            (folder / _BEING_MADE).unlink(missing_ok=True)


@contextlib.contextmanager
def _undone_by_an_error(folder: Path, last: str) -> Iterator[None]:
    _clear(folder)
    try:
        yield
    except BaseException:
        if not (folder / last).exists():
            _clear(folder)
        raise


def cut_short(folder: Path) -> bool:
    """Whether the creation of a folder was interrupted, so that it can be made again."""
    return (folder / _BEING_MADE).exists()


def _check_free(folder: Path, parts: Collection[str]) -> None:
    """Refuse a folder that holds anything but the remains of an interrupted creation."""
    if not os.path.lexists(folder):
        return
    names = {entry.name for entry in folder.iterdir()} if folder.is_dir() else {""}
    left = {name for name in names if name in parts or name.startswith(PARTIAL)}
    if names and not (_BEING_MADE in names and names == left):
        raise RunError(f"{folder} already exists and was not changed; choose another --out, or --resume it")


def _clear(folder: Path) -> None:
    """Remove the parts of an incomplete folder; of its sub-folders only empty ones."""
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            entry.rmdir()
        elif entry.name != _BEING_MADE:
            entry.unlink()


# logs


def open_plain(file: Path, flags: int) -> int:
    """Open a file without emptying it; RunError names a link."""
    try:
        return os.open(file, flags | _NO_LINKS, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise RunError(f"{file} is a link: nothing is written through it; put the file itself there") from error


def append(file: Path, data: bytes) -> None:
    """Append to a file; a link is refused."""
    with os.fdopen(open_plain(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as handle:
        handle.write(data)


def cut_to_lines(file: Path, size: int) -> None:
    """Cut a file to the complete lines among its first `size` bytes; a link is refused."""
    with contextlib.suppress(FileNotFoundError), os.fdopen(open_plain(file, os.O_RDWR), "r+b") as handle:
        handle.truncate(handle.read(size).rfind(b"\n") + 1)


def lost_of(log: Path, size: int) -> str:
    """The problem of a log whose first `size` bytes were complete lines; empty where there is none."""
    data = read_if_there(log) or b""
    if len(data) < size:
        return f"{log} has lost its end: {len(data)} of {size} bytes are left"
    changed = size > 0 and data[size - 1 : size] != b"\n"
    return f"{log} was changed: its first {size} bytes are no longer whole lines" if changed else ""


# JSON


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write a JSON object with its schema_version, atomically."""
    text = json.dumps({"schema_version": SCHEMA_VERSION, **data}, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomic(path, text.encode())


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; RunError names a file that is missing, damaged or from a newer version."""
    try:
        with named_memory(path):
            data = parse_json(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is damaged: {error}") from error
    if not isinstance(data, dict):
        raise RunError(f"{path} is damaged: not a JSON object")
    version = data.get("schema_version", 0)
    if not isinstance(version, int):
        raise RunError(f"{path} is damaged: schema_version is {version!r}")
    if version > SCHEMA_VERSION:
        raise RunError(f"{path} was written by a newer attncem (schema {version}): upgrade to read it")
    return data


def read_lines(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """The complete lines of a log, each with its position in words; RunError names a line that is not a JSON object."""
    with named_memory(path):
        lines = (read_if_there(path) or b"").split(b"\n")[:-1]
        return [(f"{path}: line {number}", _read_line(path, number, line)) for number, line in enumerate(lines, 1)]


def _read_line(path: Path, number: int, line: bytes) -> dict[str, Any]:
    where = f"{path} is damaged: line {number}"
    if line.endswith(b"\r"):
        raise RunError(f"{where} ends with CR LF, which attncem does not write: turn the line ends back into LF")
    try:
        data = parse_json(line, in_log=True)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{where}: {error}") from error
    if not isinstance(data, dict):
        raise RunError(f"{where}: not a JSON object")
    return data


def read_record(kind: type[R], path: Path) -> R:
    """Read a file that holds one record."""
    data = read_json(path)
    data.pop("schema_version", None)
    return read(kind, data, path)


def write_record(path: Path, record: Record) -> None:
    """Write one record as a file, atomically."""
    write_json(path, record.to_dict())


# locks


@contextlib.contextmanager
def locked(file: Path, refusal: str) -> Iterator[None]:
    """Hold a lock file for one process; a second one gets a RunError. The system frees it if the process dies."""
    try:
        import fcntl
    except ImportError:  # this platform has no such locks
        yield
        return
    try:
        descriptor = open_plain(file, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise RunError(f"cannot write to {file.parent}: {error.strerror}") from error
    try:
        if not any(_try_lock(descriptor, fcntl.LOCK_EX, attempt) for attempt in range(_TRIES)):
            raise RunError(refusal)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, kind: int, attempt: int = 0) -> bool:
    import fcntl

    time.sleep(_PAUSE if attempt else 0)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def is_held(file: Path) -> bool | None:
    """Whether a process holds a lock file; None where that is unknown. Nothing is written."""
    try:
        import fcntl

        descriptor = open_plain(file, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except (ImportError, OSError, RunError):
        return None
    try:
        return not _try_lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def explain_os_error(path: Path, advice: str) -> Iterator[None]:
    """Turn a failed write (full disk, no permission) into an error for people."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunError(f"cannot write to {path}: {reason}; {advice}") from error
