"""The key of keyed noise as a file, and seals under it.

A seal is HMAC-SHA-256 under the key over facts of a run, so nobody without the key can change these facts unnoticed.
docs/channels.md says what that protects against, and what not.
"""

from __future__ import annotations

import hmac
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attncem.base.types import RunError
from attncem.records.files import read_if_there

KEY_BYTES = 32
_PURPOSE = b"attncem seal, version 1\n"
"""First bytes of every sealed message: no message of keyed noise begins with them."""
_OTHERS = 0o077
"""Permission bits of everybody but the owner."""


def read_key(file: Path) -> bytes | None:
    """The key in a file, None without the file; RunError where it cannot be a key."""
    key = read_if_there(file)
    if key is not None and (problem := key_problem(key)):
        raise RunError(
            f"{file} is damaged: {problem}; restore it from a copy, or remove it and make a new one with "
            f"attncem seal {file.parent} --new-key"
        )
    return key


def key_problem(key: bytes) -> str:
    """Why these bytes cannot be a random key; empty where they can."""
    if len(key) != KEY_BYTES:
        return f"it must hold {KEY_BYTES} bytes, not {len(key)}"
    return "all of its bytes are equal, so anybody can guess them" if len(set(key)) == 1 else ""


def open_mode(file: Path) -> str:
    """The mode of a file that other users can read or change, such as 0644; empty where they cannot.

    Empty on Windows too, where a mode says nothing about other users.
    """
    mode = stat.S_IMODE(file.stat().st_mode)
    return f"{mode:04o}" if os.name == "posix" and mode & _OTHERS else ""


def sealed(key: bytes, facts: Mapping[str, Any]) -> str:
    """The seal of these facts in hexadecimal digits."""
    message = json.dumps(facts, sort_keys=True, allow_nan=False).encode()
    return hmac.digest(key, _PURPOSE + message, "sha256").hex()


def same_seal(one: str, other: str) -> bool:
    """Whether two seals are equal; the time does not depend on where they differ."""
    return hmac.compare_digest(one.encode(), other.encode())
