"""Checks of an archive before anything in it is read: its kind, the number of its members, and their names."""

from __future__ import annotations

import os
import re
import stat
import struct
import unicodedata
import zipfile
from pathlib import Path, PurePosixPath

from attncem.base.types import RunError
from attncem.campaigns.travelling import is_key
from attncem.records.campaign_folder import ASKED, CELLS, FAILURES, LOG, PLANNED, RUNS

MOST_MEMBERS = 300_000
"""Members of the largest archive that is read; a campaign of 10,000 runs has fewer."""
_LONGEST_PART, _DEEPEST = 200, 8
_CAMPAIGN_PART = re.compile(rf"{ASKED}|{PLANNED}|{LOG}|({CELLS}|{FAILURES})/[A-Za-z0-9._-]+\.(yaml|json)")
_RUN_PART = re.compile(rf"{RUNS}/(?P<cell>[A-Za-z0-9][A-Za-z0-9._-]*)/(?P<file>.+)")
_DEVICE = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])(\.|$)", re.IGNORECASE)
"""Names that open a device on Windows, with any suffix."""
_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Categories of characters that a name must not have: controls, marks of direction, unassigned ones."""
_END, _END_64, _PLACE_64 = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_LONGEST_END = 2**16 + 22


def check_archive(archive: Path) -> None:
    """RunError unless it is a regular file whose directory has a sane number of members."""
    if not stat.S_ISREG(archive.stat().st_mode):
        raise RunError(f"{archive} is not a file: an archive cannot be read from a pipe, a device or a folder")
    count = _members(archive)
    if count > MOST_MEMBERS:
        raise RunError(f"{archive} is refused: it has {count:,} members, and at most {MOST_MEMBERS:,} are read")


def _members(archive: Path) -> int:
    """The number of members, at least: what the zip says, or what fits into its directory; 0 where it has none."""
    with archive.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _LONGEST_END - 20))
        tail = file.read()
        at = tail.rfind(_END)
        if at < 0 or len(tail) < at + 22:
            return 0
        count, directory = struct.unpack("<HI", tail[at + 10 : at + 16])
        if at >= 20 and tail[at - 20 : at - 16] == _PLACE_64:
            (place,) = struct.unpack("<Q", tail[at - 12 : at - 4])
            file.seek(min(place, size))
            record = file.read(56)
            if record[:4] == _END_64 and len(record) == 56:
                count, directory = struct.unpack("<QQ", record[32:48])
        return int(max(count, min(directory, size) // 100))  # an entry takes 46 bytes and its name


def check_member(archive: Path, info: zipfile.ZipInfo) -> None:
    """RunError unless a member may be written into a campaign's folder."""
    name = info.filename
    if is_key(name):
        raise RunError(f"{archive} is refused: {name!r} has a key's name; a key does not belong in a campaign archive")
    if not is_safe(name):
        raise RunError(f"{archive} is refused: it has a member {name!r}, which does not belong in a campaign")
    if not is_plain(info):
        raise RunError(f"{archive} is refused: {name!r} is a link, or is packed in an unknown way")


def is_plain(info: zipfile.ZipInfo) -> bool:
    """Whether a member is a file like those we write: no link or device, not encrypted, stored or deflated only."""
    mode = info.external_attr >> 16
    kind_is_fine = stat.S_IFMT(mode) in (0, stat.S_IFREG)
    packed = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    return kind_is_fine and packed and not info.flag_bits & 1 and not info.is_dir()


def is_safe(name: str) -> bool:
    """Whether a member's name is allowed in a campaign's folder, on every system."""
    path = PurePosixPath(name)
    clean = str(path) == name and not path.is_absolute() and not set(name) & set('\\:*?"<>|')
    seen = not any(unicodedata.category(letter) in _UNSEEN for letter in name)
    placed = _CAMPAIGN_PART.fullmatch(name) or _RUN_PART.fullmatch(name)
    return bool(clean and seen and len(path.parts) <= _DEEPEST and placed and all(map(_is_safe_part, path.parts)))


def _is_safe_part(part: str) -> bool:
    odd = part.startswith((".", " ")) or part.endswith((".", " ")) or len(part) > _LONGEST_PART
    return not (odd or _DEVICE.match(part))


def same_name(name: str) -> str:
    """One form of all names that some file system takes as equal."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
