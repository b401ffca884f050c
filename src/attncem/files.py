"""Files: written whole or not at all, never over another; JSON objects and records read with one kind of error."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from attncem.results.record import Record, read
from attncem.types import SCHEMA_VERSION, RunError

R = TypeVar("R", bound=Record)


def hash_file(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old one or the whole new one, never a part."""
    descriptor, temporary = tempfile.mkstemp(prefix=".partial-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_new(path: Path, data: bytes) -> None:
    """Write a file that is not there yet; RunError where one is, or where nothing can be written."""
    with explain_os_error(path, "choose another folder"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as handle:
            handle.write(data)


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write a JSON object with its schema_version, atomically."""
    text = json.dumps({"schema_version": SCHEMA_VERSION, **data}, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomic(path, text.encode())


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; RunError names a file that is missing, damaged or from a newer version."""
    try:
        data = json.loads(path.read_bytes(), parse_constant=_refuse_constant)
    except FileNotFoundError:
        raise RunError(f"{path} is missing") from None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from error
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


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def read_record(kind: type[R], path: Path) -> R:
    """Read a file that holds one record."""
    data = read_json(path)
    data.pop("schema_version", None)
    return read(kind, data, path)


def write_record(path: Path, record: Record) -> None:
    """Write one record as a file, atomically."""
    write_json(path, record.to_dict())


@contextlib.contextmanager
def locked(file: Path, refusal: str) -> Iterator[None]:
    """Hold a lock file for one process; a second one gets a RunError. Freed by the system if the process dies."""
    try:
        import fcntl
    except ImportError:  # no such locks on this platform
        yield
        return
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise RunError(f"cannot write to {file.parent}: {error.strerror}") from error
    with os.fdopen(descriptor, "w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunError(refusal) from None
        yield


@contextlib.contextmanager
def explain_os_error(path: Path, advice: str) -> Iterator[None]:
    """Turn a failed write (full disk, no permission) into an error for people."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunError(f"cannot write to {path}: {reason}; {advice}") from error
