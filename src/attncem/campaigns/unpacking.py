"""import_campaign(): import an archive of a campaign; nothing in it is trusted, and no file is overwritten."""

from __future__ import annotations

import os
import shutil
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attncem.base.record import read
from attncem.base.types import RunError
from attncem.campaigns.archive import LISTING, copy_listed
from attncem.campaigns.checking import check_archive, check_member, is_plain, same_name
from attncem.campaigns.planning import standing
from attncem.campaigns.travelling import for_others
from attncem.records.campaign import ArchiveList, ArchiveMember, CampaignPlan
from attncem.records.campaign_folder import (
    ASKED,
    CELLS,
    FAILURES,
    PLANNED,
    RUNS,
    CampaignFolder,
    checked,
    held,
    is_free,
)
from attncem.records.files import (
    explain_os_error,
    partial_path,
    read_bytes,
    sync_folder,
)
from attncem.records.json_text import parse_json

_LARGEST_LISTING = 32 * 2**20
_LISTED = 1024
"""Largest mean size in bytes of a member's entry in the list; ours take about 150."""
_LARGEST_PLAN = 16 * 2**20
_LARGEST_SETTINGS = 2**20
_RATIO, _SMALL, _LARGEST = 100, 64 * 2**20, 8 * 2**30
"""Default limit of the unpacked size: this often that of the archive, but not below `_SMALL` nor above `_LARGEST`."""


@dataclass(frozen=True)
class Imported:
    """The outcome for an archive's cells: imported, or skipped because the folder already has them."""

    folder: CampaignFolder
    taken: list[str]
    left: list[str]


def import_campaign(archive: Path, folder: Path, *, limit: int | None = None) -> Imported:
    """Import an archive into a new folder, or into that of the same campaign, where only cells are added.

    Everything is checked before anything is written: names, kinds, sizes and hashes. Nothing in it is executed.
    ``limit`` is the largest unpacked size in bytes; by default 100 times that of the archive, at most 8 GiB.
    """
    with _readable(archive) as file:
        members = _checked(archive, file, folder, limit)
        plan = _plan(archive, file, members)
        if not is_free(folder):
            return _add(archive, file, members, plan, CampaignFolder.open(folder))
        return _new(file, members, folder, plan)


@contextmanager
def _readable(archive: Path) -> Iterator[zipfile.ZipFile]:
    try:
        check_archive(archive)
        with zipfile.ZipFile(archive) as file:
            yield file
    except FileNotFoundError:
        raise RunError(f"{archive} is missing") from None
    except (zipfile.BadZipFile, EOFError, NotImplementedError, zlib.error) as error:
        raise RunError(f"{archive} is damaged, or is not a campaign archive: {error}") from error


def _checked(archive: Path, file: zipfile.ZipFile, folder: Path, limit: int | None) -> dict[str, ArchiveMember]:
    """The members, which must match the list exactly; every byte is read once."""
    infos = file.infolist()
    listed = _listing(archive, file, infos)
    if {info.filename for info in infos} != {LISTING, *listed}:
        raise RunError(f"{archive} is damaged: its members are not those of its list")
    for info in infos:
        if info.filename != LISTING:
            check_member(archive, info)
    _check_room(archive, list(listed.values()), folder, limit)
    for name, member in listed.items():
        with file.open(name) as data:
            copy_listed(data, None, member)
    return listed


def _check_room(archive: Path, listed: list[ArchiveMember], folder: Path, limit: int | None) -> None:
    """RunError where the files would take more than the limit or the free space."""
    total, size = sum(member.bytes for member in listed), archive.stat().st_size
    most = min(_LARGEST, max(_SMALL, _RATIO * size)) if limit is None else limit
    if any(member.bytes < 0 for member in listed) or total > most:
        raise RunError(
            f"{archive} ({size / 2**20:.1f} MiB) would take {total >> 20} MiB, and the limit is {most >> 20}; "
            "if you trust it, raise the limit with --limit GIB"
        )
    free = shutil.disk_usage(standing(folder)).free
    if total > free:
        raise RunError(f"{archive} would take {total >> 20} MiB, and {free >> 20} are free")


def _listing(archive: Path, file: zipfile.ZipFile, infos: list[zipfile.ZipInfo]) -> dict[str, ArchiveMember]:
    """The list of the members; it is read only where its size fits their number."""
    head = next((info for info in infos if info.filename == LISTING), None)
    if head is None or not is_plain(head):
        raise RunError(f"{archive} is not a campaign archive: it has no {LISTING}")
    if len({same_name(info.filename) for info in infos}) < len(infos):
        raise RunError(f"{archive} is damaged: two members have the same name")
    most = min(_LARGEST_LISTING, _LISTED * (len(infos) + 100))
    if head.file_size > most:
        raise RunError(f"{archive} is damaged: its list takes {head.file_size:,} bytes, for {len(infos):,} members")
    members = read(ArchiveList, _json(archive, file, LISTING, most), f"{archive}: {LISTING}").members
    listed = {member.name: member for member in members}
    if len(listed) < len(members):
        raise RunError(f"{archive} is damaged: its list names a member twice")
    return listed


def _plan(archive: Path, file: zipfile.ZipFile, members: Mapping[str, ArchiveMember]) -> CampaignPlan:
    if not {ASKED, PLANNED} <= members.keys():
        raise RunError(f"{archive} is not a campaign archive: {PLANNED} is missing")
    where = f"{archive}: {PLANNED}"
    return checked(read(CampaignPlan, _json(archive, file, PLANNED, _LARGEST_PLAN), where), where)


def _json(archive: Path, file: zipfile.ZipFile, name: str, most: int) -> Any:
    with file.open(name) as data:
        text = data.read(most + 1)
    if len(text) > most:
        raise RunError(f"{archive} is damaged: {name} is larger than {most:,} bytes")
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
            is_planned = there.plan.cell(cell.id) is not None and name in members
            same = is_planned and _same_settings(file, members[name], there.path / name)
            if not same or there.run_path(cell.id).exists():
                left.append(cell.id)
                continue
            _add_cell(file, members, files, there, cell.id)
            taken.append(cell.id)
    return Imported(there, taken, left)


def _same_settings(file: zipfile.ZipFile, member: ArchiveMember, there: Path) -> bool:
    """Whether a cell's configuration is the folder's, apart from where its files lie."""
    if member.bytes > _LARGEST_SETTINGS:
        return False
    return for_others(member.name, file.read(member.name)) == for_others(there.name, read_bytes(there))


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
