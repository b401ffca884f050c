"""import_campaign(): import an archive of a campaign; nothing in it is trusted, and no file is overwritten."""

from __future__ import annotations

import os
import re
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from attncem.base.record import read
from attncem.base.types import RunError
from attncem.campaigns.archive import LISTING, copy_listed
from attncem.campaigns.planning import standing
from attncem.records.campaign import ArchiveList, ArchiveMember, CampaignPlan
from attncem.records.campaign_folder import (
    ASKED,
    CELLS,
    FAILURES,
    LOG,
    PLANNED,
    RUNS,
    CampaignFolder,
    checked,
    held,
    is_free,
)
from attncem.records.files import (
    explain_os_error,
    parse_json,
    partial_path,
    read_bytes,
    sync_folder,
)
from attncem.records.runs import KEY_FILE

_LARGEST_LISTING = 64 * 2**20
_LARGEST_MEMBER = 16 * 2**30
_CAMPAIGN_PART = re.compile(rf"{ASKED}|{PLANNED}|{LOG}|({CELLS}|{FAILURES})/[A-Za-z0-9._-]+\.(yaml|json)")
_RUN_PART = re.compile(rf"{RUNS}/(?P<cell>[A-Za-z0-9][A-Za-z0-9._-]*)/(?P<file>.+)")


@dataclass(frozen=True)
class Imported:
    """The outcome for an archive's cells: imported, or skipped because the folder already has them."""

    folder: CampaignFolder
    taken: list[str]
    left: list[str]


def import_campaign(archive: Path, folder: Path) -> Imported:
    """Import an archive into a new folder, or into that of the same campaign, where only cells are added.

    Everything is checked before anything is written: names, kinds, sizes and hashes. Nothing in it is executed.
    """
    with _readable(archive) as file:
        members = _checked(archive, file, folder)
        plan = _plan(archive, file, members)
        if not is_free(folder):
            return _add(archive, file, members, plan, CampaignFolder.open(folder))
        return _new(file, members, folder, plan)


@contextmanager
def _readable(archive: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(archive) as file:
            yield file
    except FileNotFoundError:
        raise RunError(f"{archive} is missing") from None
    except (zipfile.BadZipFile, EOFError, NotImplementedError, zlib.error) as error:
        raise RunError(f"{archive} is damaged, or is not a campaign archive: {error}") from error


def _checked(archive: Path, file: zipfile.ZipFile, folder: Path) -> dict[str, ArchiveMember]:
    """The members, which must match the list exactly; every byte is read once."""
    infos = file.infolist()
    listed = _listing(archive, file, infos)
    if len({info.filename.lower() for info in infos}) < len(infos):
        raise RunError(f"{archive} is damaged: two members have the same name")
    if {info.filename for info in infos} != {LISTING, *listed}:
        raise RunError(f"{archive} is damaged: its members are not those of its list")
    total = sum(member.bytes for member in listed.values())
    free = shutil.disk_usage(standing(folder)).free
    if total > free or any(not 0 <= member.bytes <= _LARGEST_MEMBER for member in listed.values()):
        raise RunError(f"{archive} would take {total >> 20} MiB, and {free >> 20} are free")
    for info in infos:
        name = info.filename
        if name == LISTING:
            continue
        if not _is_safe(name):
            raise RunError(f"{archive} is refused: it has a member {name!r}, which does not belong in a campaign")
        if not _is_plain(info):
            raise RunError(f"{archive} is refused: {name!r} is a link, or is packed in an unknown way")
        with file.open(info) as data:
            copy_listed(data, None, listed[name])
    return listed


def _listing(archive: Path, file: zipfile.ZipFile, infos: list[zipfile.ZipInfo]) -> dict[str, ArchiveMember]:
    head = next((info for info in infos if info.filename == LISTING), None)
    if head is None or head.file_size > _LARGEST_LISTING or not _is_plain(head):
        raise RunError(f"{archive} is not a campaign archive: it has no {LISTING}")
    listing = _json(archive, file, LISTING)
    members = read(ArchiveList, listing, f"{archive}: {LISTING}").members
    return {member.name: member for member in members}


def _is_plain(info: zipfile.ZipInfo) -> bool:
    """Whether a member is a file like those we write: no link or device, not encrypted, stored or deflated only."""
    mode = info.external_attr >> 16
    kind_is_fine = stat.S_IFMT(mode) in (0, stat.S_IFREG)
    packed = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    return kind_is_fine and packed and not info.flag_bits & 1 and not info.is_dir()


def _is_safe(name: str) -> bool:
    """Whether a member's name is allowed in a campaign's folder."""
    path = PurePosixPath(name)
    parts = path.parts
    clean = str(path) == name and not path.is_absolute() and "\\" not in name and ":" not in name and "\0" not in name
    hidden = any(part.startswith(".") or len(part) > 200 for part in parts)
    placed = _CAMPAIGN_PART.fullmatch(name) or _RUN_PART.fullmatch(name)
    return bool(clean and not hidden and len(parts) <= 8 and placed and parts[-1] != KEY_FILE)


def _plan(archive: Path, file: zipfile.ZipFile, members: Mapping[str, ArchiveMember]) -> CampaignPlan:
    if not {ASKED, PLANNED} <= members.keys() or members[PLANNED].bytes > _LARGEST_LISTING:
        raise RunError(f"{archive} is not a campaign archive: {PLANNED} is missing")
    return checked(read(CampaignPlan, _json(archive, file, PLANNED), f"{archive}: {PLANNED}"), f"{archive}: {PLANNED}")


def _json(archive: Path, file: zipfile.ZipFile, name: str) -> Any:
    with file.open(name) as data:
        text = data.read(_LARGEST_LISTING)
    try:
        return parse_json(text)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{archive} is damaged: {name}: {error}") from error


def _new(file: zipfile.ZipFile, members: Mapping[str, ArchiveMember], folder: Path, plan: CampaignPlan) -> Imported:
    """Import into a new folder, which gets its name when it is complete."""
    with explain_os_error(folder, "nothing was imported; choose another folder"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = partial_path(folder.parent)
        try:
            for name in (CELLS, RUNS, FAILURES):
                (temporary / name).mkdir(parents=True)
            _extract(file, members.values(), temporary)
            _make_whole(temporary / RUNS)
            CampaignFolder.open(temporary)
            if folder.is_dir():
                folder.rmdir()
            temporary.rename(folder)
            sync_folder(folder.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return Imported(CampaignFolder.open(folder), [cell.id for cell in plan.cells], [])


def _add(
    archive: Path,
    file: zipfile.ZipFile,
    members: Mapping[str, ArchiveMember],
    plan: CampaignPlan,
    there: CampaignFolder,
) -> Imported:
    """Add cells that the folder's campaign asks for and has no run of; all others are left unchanged."""
    if plan.name != there.plan.name:
        raise RunError(
            f"{archive} is of the campaign {plan.name}, {there.path} of {there.plan.name}; choose a new folder"
        )
    taken, left = [], []
    with held(there.path), explain_os_error(there.path, "imported cells are complete: run the same command again"):
        for cell in plan.cells:
            files = [member for name, member in members.items() if name.startswith(f"{RUNS}/{cell.id}/")]
            if not files:
                continue
            name = f"{CELLS}/{cell.id}.yaml"
            is_planned = there.plan.cell(cell.id) is not None and name in file.namelist()
            same = is_planned and file.read(name) == read_bytes(there.path / name)
            if not same or there.run_path(cell.id).exists():
                left.append(cell.id)
                continue
            _add_cell(file, members, files, there, cell.id)
            taken.append(cell.id)
    return Imported(there, taken, left)


def _add_cell(
    file: zipfile.ZipFile,
    members: Mapping[str, ArchiveMember],
    files: Iterable[ArchiveMember],
    there: CampaignFolder,
    cell_id: str,
) -> None:
    """Add one cell: its facts first, then its run by one rename."""
    temporary = partial_path(there.path)
    try:
        (temporary / RUNS).mkdir(parents=True)
        _extract(file, files, temporary)
        _make_whole(temporary / RUNS)
        for name in (f"{CELLS}/{cell_id}.json", f"{FAILURES}/{cell_id}.json"):
            if name in members and not (there.path / name).exists():
                _extract(file, [members[name]], there.path)
        (temporary / RUNS / cell_id).rename(there.run_path(cell_id))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _make_whole(runs: Path) -> None:
    """Make the folders that a run has even where they are empty."""
    for run in runs.iterdir():
        for name in ("checkpoints", "audits"):
            (run / name).mkdir(exist_ok=True)


def _extract(file: zipfile.ZipFile, members: Iterable[ArchiveMember], folder: Path) -> None:
    """Write members as new files below a folder; an existing file is never overwritten."""
    for member in members:
        target = folder / member.name
        target.parent.mkdir(parents=True, exist_ok=True)
        with file.open(member.name) as source, target.open("xb") as handle:
            copy_listed(source, handle, member)
            handle.flush()
            os.fsync(handle.fileno())
