"""The device's own folder: the key of keyed noise, and the count of releases. Both stay on the device.

noise.key         32 random bytes, made at the first use; or put there by you, so that several devices share their noise
releases.sqlite   the releases of each image (`budget`)
"""

from __future__ import annotations

import os
import secrets
import stat
import sys
from pathlib import Path

from attncem_edge.errors import ConfigError
from attncem_edge.noise import SECRET_BYTES, new_key

KEY, RELEASES = "noise.key", "releases.sqlite"
_OTHERS = 0o077
"""Permission bits of everybody but the owner."""


def default_folder() -> Path:
    """The folder of this user's device: where programs keep their state."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "attncem-edge"
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "attncem-edge"


def noise_key(folder: Path) -> bytes:
    """The key of keyed noise, made if there is none; ConfigError where it cannot be one, or others can read it."""
    file = folder / KEY
    if not file.exists():
        make_private(file, new_key())
    require_private(file)
    try:
        key = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    if len(key) != SECRET_BYTES or len(set(key)) == 1:
        raise ConfigError(f"{file} is no key: it must hold {SECRET_BYTES} random bytes; restore it from a copy")
    return key


def make_private(file: Path, data: bytes) -> None:
    """Make a file that only its owner can read, complete or not at all; one that is there stays as it is."""
    temporary = file.with_name(f".partial-{secrets.token_hex(8)}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        try:
            os.link(temporary, file)
        except FileExistsError:  # another process was faster
            pass
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write to {file}: {error.strerror}; choose another folder for the device") from error


def require_private(file: Path) -> None:
    """ConfigError where other users can read or change a file."""
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    if os.name == "posix" and mode & _OTHERS:
        raise ConfigError(f"{file} is open to other users (mode {mode:04o}): run chmod 600 {file}")
