"""A campaign as one file: results without weights, and complete runs where work must continue elsewhere.

A zip whose first member, archive.json, lists every other with its size and SHA-256. A finished cell is exported as
results: configuration, manifest, logs, best.json, on_device.json, portrait, and for each audit its plan, its rows,
their join and some pictures. An unfinished cell is exported with everything that a resume needs. Keys and copies of
them are never exported, and every path is reduced to its last name (`campaigns/travelling.py`).
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from attncem.base.types import SCHEMA_VERSION, RunError
from attncem.campaigns.expansion import needs
from attncem.campaigns.travelling import for_others, is_of_run, portrait_without_pictures, with_hash
from attncem.records.audit import AuditResult, Picture, Row
from attncem.records.campaign import ArchiveList, ArchiveMember
from attncem.records.campaign_folder import (
    ASKED,
    CELLS,
    FAILURES,
    LOG,
    PLANNED,
    PORTRAIT,
    CampaignFolder,
)
from attncem.records.files import (
    PARTIAL,
    explain_os_error,
    name_new,
    partial_path,
    read_bytes,
    read_record,
    sync_folder,
)
from attncem.records.json_text import parse_json
from attncem.records.ledger import PICTURES, PLAN, Ledger
from attncem.records.listing import decision_of
from attncem.records.run_files import DECISION, LEFT_BEHIND, Best
from attncem.records.runs import RunDirectory

LISTING = "archive.json"
_CHUNK = 2**20
_LOGS = ("metrics.jsonl", "timing.jsonl", "problems.jsonl")
_RESULTS = ("config.yaml", "manifest.json", *_LOGS, "best.json", "on_device.json")
"""Files of a run that are results, in addition to its portrait and audits."""
MOST_LINES = 300
"""Largest number of training-step lines kept from a log; all lines of validations and warnings are kept."""
MOST_PICTURES = 48 * 2**10
"""Largest total size in bytes of the pictures kept from an audit."""


@dataclass(frozen=True)
class Exported:
    """An archive: the number of its cells, how many of them are complete runs, and the number of its pictures."""

    path: Path
    cells: int
    whole: int
    pictures: int


# export


def export_campaign(folder: Path, archive: Path, *, results_only: bool = False, pictures: bool = True) -> Exported:
    """Write a campaign as one new file. A running campaign is refused.

    Unfinished cells are exported with their runs; with ``results_only`` they are left out and start from the beginning
    after an import. Without ``pictures`` originals, reconstructions and the images of portraits are left out.
    """
    campaign = CampaignFolder.open(folder)
    views = campaign.views()
    if campaign.is_running() or any(view.state == "running" for view in views):
        raise RunError(f"{folder} is running: attncem campaign stop {folder} stops it; it can be resumed")
    begun = [view.cell.id for view in views if (view.state == "done" if results_only else view.state != "planned")]
    unfinished = [] if results_only else [view.cell for view in views if view.state != "done"]
    needed = {name for cell in unfinished for name in needs(campaign.campaign, campaign.plan, cell)}
    whole = {cell.id for cell in unfinished} | needed
    with explain_os_error(archive, "no archive was made; choose another place"):
        if os.path.lexists(archive):
            raise RunError(f"{archive} already exists and was not changed; choose another name")
        archive.parent.mkdir(parents=True, exist_ok=True)
        temporary = partial_path(archive.parent)
        try:
            names = _write(temporary, _members(campaign, begun, whole, pictures))
            name_new(temporary, archive)
            sync_folder(archive.parent)
        finally:
            temporary.unlink(missing_ok=True)
    shown = sum(name.endswith(".png") for name in names)
    return Exported(archive, len(begun), len(whole.intersection(begun)), shown)


def _members(
    campaign: CampaignFolder, begun: Iterable[str], whole: set[str], pictures: bool
) -> Iterator[tuple[str, Path | bytes]]:
    """Every member: its name, and its file or bytes."""
    root = campaign.path
    cells = {cell.id for cell in campaign.plan.cells}
    asked, plan = read_bytes(root / ASKED), for_others(PLANNED, read_bytes(root / PLANNED))
    yield ASKED, for_others(ASKED, asked)
    yield PLANNED, with_hash(plan, "sha256", asked, for_others(ASKED, asked))
    named = [root / LOG]
    for part, ends in ((CELLS, (".yaml", ".json")), (FAILURES, (".json",))):
        named += [f for f in sorted((root / part).glob("*")) if f.stem in cells and f.suffix in ends]
    for place, file in _files(root, named):
        yield place, for_others(place, read_bytes(file))
    for cell_id in begun:
        run = campaign.run_path(cell_id)
        files = _whole_run(run, pictures) if cell_id in whole else _results(run, pictures)
        for inside, source in files:
            yield (run / inside).relative_to(root).as_posix(), _of_run(run, inside, source)


def _files(root: Path, files: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """The regular files among these, by their path below the root."""
    for file in files:
        if file.is_file() and not file.is_symlink():
            yield file.relative_to(root).as_posix(), file


def _of_run(run: Path, inside: str, source: Path | bytes) -> Path | bytes:
    """The exported form of a run's file: without paths, and the manifest with the hash of the exported settings."""
    if PurePosixPath(inside).suffix not in (".json", ".jsonl", ".yaml"):
        return source
    data = for_others(inside, read_bytes(source) if isinstance(source, Path) else source)
    if inside == "manifest.json":
        settings = read_bytes(run / "config.yaml")
        return with_hash(data, "config_sha256", settings, for_others("config.yaml", settings))
    return data


def _whole_run(run: Path, pictures: bool) -> Iterator[tuple[str, Path | bytes]]:
    """All files that a resume needs; only the newest and the best checkpoint."""
    kept = RunDirectory(run).checkpoints()[-1:]
    if (run / "best.json").exists():
        kept.append(read_record(Best, run / "best.json").checkpoint)
    for place, file in _files(run, sorted(run.rglob("*"))):
        inside = PurePosixPath(place).parts
        left_out = inside[0] == "checkpoints" and inside[1] not in kept
        hidden = any(part.startswith(PARTIAL) for part in inside) or not is_of_run(place)
        replaced = not pictures and (place == PORTRAIT or (inside[0] == "audits" and file.suffix in (".json", ".png")))
        if not (left_out or hidden or replaced):
            yield place, file
    if not pictures:
        yield from _portrait(run, pictures)
        yield from _audits(run, pictures)


def _results(run: Path, pictures: bool) -> Iterator[tuple[str, Path | bytes]]:
    """The results of a run, without weights: a shorter log and fewer pictures."""
    for name, file in _files(run, [run / name for name in _RESULTS]):
        yield name, _result(run, file)
    yield from _portrait(run, pictures)
    yield from _audits(run, pictures)


def _portrait(run: Path, pictures: bool) -> Iterator[tuple[str, Path | bytes]]:
    for name, file in _files(run, [run / PORTRAIT]):
        yield name, file if pictures else _packed(portrait_without_pictures(file).to_dict())


def _audits(run: Path, pictures: bool) -> Iterator[tuple[str, bytes]]:
    for plan in sorted((run / "audits").glob(f"*/{PLAN}")):
        for name, data in thinned_audit(plan.parent, pictures=pictures).items():
            yield (plan.parent / name).relative_to(run).as_posix(), data


def _result(run: Path, file: Path) -> Path | bytes:
    """A run's file among results: a shorter log, or a manifest that names the weights left out."""
    if file.name == "metrics.jsonl":
        return thinned_metrics(read_bytes(file))
    directory = RunDirectory(run)
    if file.name == "manifest.json" and directory.checkpoints():
        decision = {DECISION: release} if (release := decision_of(directory)) else {}
        manifest = {**directory.manifest, LEFT_BEHIND: directory.encoder_sha256("best"), **decision}
        return json.dumps(manifest, indent=1, ensure_ascii=False, allow_nan=False).encode()
    return file


def _write(target: Path, members: Iterable[tuple[str, Path | bytes]]) -> list[str]:
    """Write the zip: the list of its members first, then each member; returns their names."""
    made = list(members)
    listed = [ArchiveMember(name, *_facts(source)) for name, source in made]
    head = {"schema_version": SCHEMA_VERSION, **ArchiveList(listed).to_dict()}
    with zipfile.ZipFile(target, "x", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        file.writestr(LISTING, json.dumps(head, ensure_ascii=False))
        for (name, source), fact in zip(made, listed, strict=True):
            with file.open(name, "w", force_zip64=True) as member, _opened(source) as data:
                copy_listed(data, member, fact)
    return [name for name, _ in made]


def _facts(source: Path | bytes) -> tuple[int, str]:
    """Size and SHA-256."""
    with _opened(source) as data:
        digest = hashlib.file_digest(data, "sha256").hexdigest()
        return data.seek(0, io.SEEK_END), digest


@contextmanager
def _opened(source: Path | bytes) -> Iterator[io.BytesIO | io.BufferedReader]:
    with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as data:
        yield data


def copy_listed(source: IO[bytes], target: IO[bytes] | None, listed: ArchiveMember) -> None:
    """Copy at most the listed size; RunError where size or hash differ from the list."""
    digest, size = hashlib.sha256(), 0
    while chunk := source.read(min(_CHUNK, listed.bytes - size + 1)):
        size += len(chunk)
        if size > listed.bytes:
            break
        digest.update(chunk)
        if target is not None:
            target.write(chunk)
    if size != listed.bytes or digest.hexdigest() != listed.sha256:
        raise RunError(f"the archive is damaged: {listed.name} is not what its list says")


# smaller results: fewer lines of a log, fewer pictures of an audit; every number of every row stays


def thinned_metrics(log: bytes) -> bytes:
    """The log with its training-step lines thinned evenly; the first and last stay."""
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
    except (ValueError, RecursionError):  # damage is reported elsewhere
        return False
    return isinstance(data, dict) and data.get("kind") == "train"


def thinned_audit(folder: Path, *, pictures: bool = True) -> dict[str, bytes]:
    """The result files of an audit: its plan, rows, their join and pictures, by name.

    Pictures are chosen in turns: the strongest attack's first, then the next row's, up to the size limit; the rows name
    only pictures that are included.
    """
    ledger = Ledger.open(folder)
    kept, files = _pictures(folder, ledger.result()) if pictures else (set[str](), {})
    records = {PLAN: read_bytes(folder / PLAN)} | {name: _packed(data) for name, data in ledger.thinned(kept).items()}
    return records | {f"{PICTURES}/{name}": data for name, data in files.items()}


def _pictures(folder: Path, result: AuditResult) -> tuple[set[str], Mapping[str, bytes]]:
    """Names of the kept reconstructions, and the files of these and their originals."""
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
    """The first picture of every row, then the second of every row …; the strongest row first in each turn."""
    rows: list[Row] = sorted(result.rows, key=lambda row: row.name not in (result.strongest, *result.leaders))
    most = max((len(row.pictures) for row in rows), default=0)
    return [row.pictures[turn] for turn in range(most) for row in rows if turn < len(row.pictures)]


def _read(folder: Path, name: str) -> bytes | None:
    file = folder / PICTURES / Path(name).name
    return read_bytes(file) if file.is_file() and not file.is_symlink() else None


def _packed(data: Mapping[str, Any]) -> bytes:
    versioned = {"schema_version": SCHEMA_VERSION, **data}
    return json.dumps(versioned, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
