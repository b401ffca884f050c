"""Seals: hashes in the JSON files of an audit, which show that a file was changed after it was written.

A seal covers the contents of its own file, the audit that it belongs to, and the hashes of other files. It detects
accidents: whoever can write the folder can also write a new seal. Files of version 0.2 have none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from attncem.base.record import Record, read
from attncem.records.files import read_json

_KEY = "seal"
"""Key of the seal in a file; versions without seals keep it as an unknown entry."""


class Seal(Record):
    """``sha256`` covers the contents and ``files``, the hashes of other files by name."""

    sha256: str
    files: dict[str, str]


def sha256(data: bytes) -> str:
    """SHA-256 of the bytes of a file."""
    return hashlib.sha256(data).hexdigest()


def digest(data: Mapping[str, Any], audit: str, files: Mapping[str, str]) -> str:
    """Hash of plain data; spaces and the order of keys do not matter."""
    return sha256(json.dumps([audit, data, files], sort_keys=True, separators=(",", ":")).encode())


def sealed(data: Mapping[str, Any], audit: str, files: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The data with its seal, as written to a file of this audit."""
    seal = Seal(digest(data, audit, files or {}), dict(files or {}))
    return {**data, _KEY: seal.to_dict()}


class Sealed:
    """Contents of a file that may have a seal; RunError where the file cannot be read."""

    def __init__(self, file: Any) -> None:
        self.data = read_json(file)
        self.data.pop("schema_version", None)
        seal = self.data.pop(_KEY, None)
        self.seal = None if seal is None else read(Seal, seal, file)

    @property
    def files(self) -> dict[str, str]:
        """Hashes of other files by name; empty without a seal."""
        return self.seal.files if self.seal else {}

    def mark(self, audit: str) -> str:
        """Hash of the contents and of ``files``, as a part of this audit."""
        return digest(self.data, audit, self.files)

    def fits(self, mark: str) -> bool:
        """Whether the contents have this hash, as they were written; True without a seal, where nobody can know."""
        return self.seal is None or self.seal.sha256 == mark
