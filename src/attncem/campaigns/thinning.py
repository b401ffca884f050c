"""Results made small: fewer lines of a log, fewer pictures of an audit. Every number of every row stays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from attncem.base.record import Record
from attncem.base.types import SCHEMA_VERSION
from attncem.config.options.suites import row_file
from attncem.records.audit import AuditResult, Picture, Row
from attncem.records.files import parse_json, read_bytes
from attncem.records.ledger import JOINED, PICTURES, PLAN, joined

MOST_LINES = 300
"""Lines of training steps that are kept of a log; those of validations and warnings all are."""
MOST_PICTURES = 48 * 2**10
"""Bytes of pictures that are kept of an audit."""


def thinned_metrics(log: bytes) -> bytes:
    """The log with its lines of training steps evenly thinned, first and last kept."""
    lines = log.splitlines(keepends=True)
    steps = [place for place, line in enumerate(lines) if _is_step(line)]
    if len(steps) <= MOST_LINES:
        return log
    kept = {steps[round(place * (len(steps) - 1) / (MOST_LINES - 1))] for place in range(MOST_LINES)}
    dropped = set(steps) - kept
    return b"".join(line for place, line in enumerate(lines) if place not in dropped)


def _is_step(line: bytes) -> bool:
    try:
        data = parse_json(line, in_log=True)
    except (ValueError, RecursionError):  # not ours to judge here
        return False
    return isinstance(data, dict) and data.get("kind") == "train"


def thinned_audit(folder: Path) -> dict[str, bytes]:
    """The files of an audit that are results: its plan, rows, their join and pictures, by name.

    Pictures are taken in turns: the strongest attack's first, then the next row's, as long as they are small enough
    together; what is left out is taken out of the rows, so that nothing names a file that is not there.
    """
    result = joined(folder)
    kept, files = _pictures(folder, result)
    rows = [replace(row, pictures=[item for item in row.pictures if item.image in kept]) for row in result.rows]
    found = {PLAN: read_bytes(folder / PLAN), JOINED: _packed(replace(result, rows=rows, folder=""))}
    found |= {f"{row_file(row.name)}.json": _packed(row) for row in rows}
    return found | {f"{PICTURES}/{name}": data for name, data in files.items()}


def _pictures(folder: Path, result: AuditResult) -> tuple[set[str], Mapping[str, bytes]]:
    """Names of the recovered images that are kept, and the files of these and their originals."""
    kept: set[str] = set()
    files: dict[str, bytes] = {}
    for picture in _in_turns(result):
        pair = {name: _read(folder, name) for name in (picture.original, picture.image) if name not in files}
        if any(data is None for data in pair.values()):
            continue
        new = {name: data for name, data in pair.items() if data is not None}
        if sum(map(len, [*files.values(), *new.values()])) > MOST_PICTURES:
            break
        files |= new
        kept.add(picture.image)
    return kept, files


def _in_turns(result: AuditResult) -> list[Picture]:
    """One fixed picture of every row, then the second of every row …; the strongest row first in each turn."""
    rows: list[Row] = sorted(result.rows, key=lambda row: row.name not in (result.strongest, *result.leaders))
    most = max((len(row.pictures) for row in rows), default=0)
    return [row.pictures[turn] for turn in range(most) for row in rows if turn < len(row.pictures)]


def _read(folder: Path, name: str) -> bytes | None:
    file = folder / PICTURES / Path(name).name
    return read_bytes(file) if file.is_file() and not file.is_symlink() else None


def _packed(record: Record) -> bytes:
    data = {"schema_version": SCHEMA_VERSION, **record.to_dict()}
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
