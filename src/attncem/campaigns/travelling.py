"""How a campaign's files leave this machine: without absolute paths, user names and keys, and on request pictures."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from attncem.base.shown_paths import without_paths, without_paths_in
from attncem.base.types import AttncemError
from attncem.config.loading.yaml_text import dump_yaml, parse_yaml
from attncem.records.files import read_record
from attncem.records.json_text import parse_json
from attncem.records.portrait import Portrait

_KEY = re.compile(r"noise[\W_]*key|\.key\b|\.key[\W_]|private[\W_]*key", re.IGNORECASE)
_RUN_FILES = re.compile(
    r"(config\.yaml|(manifest|best|portrait|on_device)\.json|(metrics|timing|problems)\.jsonl"
    r"|checkpoints/epoch-\d+/(checkpoint\.json|optimizer\.pt|\w+\.safetensors)"
    r"|audits/[^/]+/([^/]+\.(json|npz|safetensors)|pictures/[^/]+\.png))"
)
"""All files of a run that a resume needs; a user's own files beside them stay where they are."""


def is_key(name: str) -> bool:
    """Whether a file's name is that of a key or of a copy of one, in any case and with any suffix."""
    return bool(_KEY.search(PurePosixPath(name).name))


def is_of_run(place: str) -> bool:
    """Whether a file of a run folder, by its path in it, may travel with an unfinished run."""
    return bool(_RUN_FILES.fullmatch(place)) and not is_key(place)


def for_others(name: str, data: bytes) -> bytes:
    """A file's contents without absolute paths; those of weights and pictures, and all without a path, as they are."""
    change = _FORMS.get(PurePosixPath(name).suffix)
    return data if change is None else change(data)


def _yaml(data: bytes) -> bytes:
    try:
        tree = parse_yaml(data.decode(), "")
    except (AttncemError, UnicodeDecodeError):  # damage is reported where the file is used
        return without_paths(data.decode(errors="replace")).encode()
    hidden = without_paths_in(tree)
    return data if hidden == tree else dump_yaml(hidden).encode()


def _json(data: bytes, **form: Any) -> bytes:
    try:
        tree = parse_json(data, in_log=True)
    except (ValueError, RecursionError):
        return without_paths(data.decode(errors="replace")).encode()
    hidden = without_paths_in(tree)
    return data if hidden == tree else json.dumps(hidden, ensure_ascii=False, allow_nan=False, **form).encode()


def _lines(data: bytes) -> bytes:
    """A log line by line; a shorter line is filled with spaces, because checkpoints know the length of the logs."""
    return b"\n".join(_json(line).ljust(len(line)) for line in data.split(b"\n"))


_FORMS: dict[str, Callable[[bytes], bytes]] = {
    ".yaml": _yaml,
    ".json": lambda data: _json(data, indent=1),
    ".jsonl": _lines,
}


def with_hash(document: bytes, key: str, old: bytes, new: bytes) -> bytes:
    """A JSON file whose entry `key`, the SHA-256 of another file, is that of its exported form.

    A hash that did not fit the file, and a file that is damaged, stay: who imports them is told.
    """
    before, after = (hashlib.sha256(data).hexdigest() for data in (old, new))
    try:
        tree = parse_json(document)
    except (ValueError, RecursionError):
        return document
    if before == after or not isinstance(tree, dict) or tree.get(key) != before:
        return document
    return json.dumps({**tree, key: after}, indent=1, ensure_ascii=False, allow_nan=False).encode()


def portrait_without_pictures(file: Path) -> Portrait:
    """A portrait whose numbers stay and whose images are left out."""
    portrait = read_record(Portrait, file)
    return replace(portrait, classes=[replace(one, faces=[]) for one in portrait.classes])
