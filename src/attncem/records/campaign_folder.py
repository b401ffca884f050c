"""A campaign's folder: the request, its cells, their runs, and the state of each. Never imports torch.

campaign.yaml       the request, with resolved paths and its suites included
campaign.json       the plan: every cell, written last when the folder is made
cells/ID.yaml       the full configuration of a cell's run
cells/ID.json       which of its audits are complete, and how its epochs were scaled
runs/ID/            its run folder
failures/ID.json    why it failed; removed once the cell is done
log.jsonl           events, with times
stop                asks the process that runs the campaign to end
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import re
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import attncem
from attncem.base.plugins import PluginUse, additions, standing_in
from attncem.base.record import read
from attncem.base.types import SCHEMA_VERSION, AttncemError, RunError
from attncem.config.loading.load import dump_config, load, load_config
from attncem.config.loading.suggest import did_you_mean
from attncem.config.options.campaigns import Campaign
from attncem.config.options.run import RunConfig
from attncem.config.options.suites import load_suite
from attncem.config.plugins import KINDS, require, stand_ins, uses, uses_of
from attncem.records.audit import AuditResult
from attncem.records.campaign import CampaignPlan, Cell, Event, Failure, Finished, State
from attncem.records.files import (
    PARTIAL,
    append,
    cut_to_lines,
    explain_os_error,
    is_held,
    locked,
    read_bytes,
    read_lines,
    read_record,
    write_atomic,
    write_record,
)
from attncem.records.ledger import PLAN, joined, ledgers
from attncem.records.on_device import best_of, candidate_of, read_choice
from attncem.records.runs import RunDirectory, nearest_folder

ASKED, PLANNED, LOG, STOP, LOCK = "campaign.yaml", "campaign.json", "log.jsonl", "stop", ".lock"
CELLS, RUNS, FAILURES = "cells", "runs", "failures"
PORTRAIT = "portrait.json"
_CELL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")
_FIRST_PARTS = {ASKED, CELLS, LOCK, RUNS, FAILURES}
"""Entries of a folder whose creation was interrupted."""
_OLD = 60
"""Age in seconds after which a temporary file is left over from a killed process."""
_ADVICE = "finished work is kept: fix this and run the same command again"


@dataclass(frozen=True)
class PlannedCell:
    """A cell with the configuration of its run."""

    cell: Cell
    config: RunConfig


@dataclass(frozen=True)
class CellView:
    """The current state of a cell. ``path`` is its run folder, ``reason`` why it failed or cannot be read."""

    cell: Cell
    state: State
    reason: str
    path: Path

    def audits(self) -> list[AuditResult]:
        """The audits of its run, complete or not, oldest first."""
        return [joined(ledger.path) for ledger in ledgers(self.path / "audits")]


class CampaignFolder:
    """A campaign's folder. `create` makes one, `open` opens an existing one."""

    def __init__(self, path: Path, plan: CampaignPlan, campaign: Campaign) -> None:
        self.path, self.plan, self.campaign = path, plan, campaign

    @classmethod
    def create(cls, path: str | Path, campaign: Campaign, cells: Sequence[PlannedCell]) -> CampaignFolder:
        """Make a new folder, or complete one whose creation was interrupted; any other non-empty folder is refused."""
        folder = Path(path)
        with explain_os_error(folder, "no campaign was made; choose another folder"):
            if folder.exists() and not is_free(folder):
                raise RunError(f"{folder} already exists and was not changed; choose another --out")
            folder.mkdir(parents=True, exist_ok=True)
        return cls.adopt(folder, campaign, cells)

    @classmethod
    def adopt(cls, path: Path, campaign: Campaign, cells: Sequence[PlannedCell]) -> CampaignFolder:
        """Make this the folder's campaign. Files of cells that it no longer asks for stay."""
        text = dump_config(campaign)
        with explain_os_error(path, _ADVICE):
            for name in (CELLS, RUNS, FAILURES):
                (path / name).mkdir(exist_ok=True)
            for planned in cells:
                _write_where_other(path / CELLS / f"{planned.cell.id}.yaml", dump_config(planned.config))
            plan = CampaignPlan(
                name=campaign.name,
                meaning=campaign.meaning,
                sha256=hashlib.sha256(text.encode()).hexdigest(),
                cells=[planned.cell for planned in cells],
                made=datetime.now().astimezone().isoformat(),
                versions={"attncem": attncem.__version__, "python": platform.python_version()},
                plugins=_plugins(campaign, cells),
            )
            write_atomic(path / ASKED, text.encode())
            write_record(path / PLANNED, plan)
        return cls.open(path)

    @classmethod
    def open(cls, path: str | Path) -> CampaignFolder:
        """An existing campaign; RunError where the folder holds none."""
        folder = require_campaign(Path(path))
        try:
            campaign = load(Campaign, folder / ASKED).config
        except AttncemError as error:
            raise RunError(f"{folder / ASKED} cannot be used: {error}") from error
        return cls(folder, checked(read_record(CampaignPlan, folder / PLANNED), folder / PLANNED), campaign)

    # cells

    def views(self) -> list[CellView]:
        """The current state of every cell of the plan."""
        return [self.view(cell) for cell in self.plan.cells]

    def view(self, cell: Cell) -> CellView:
        """The current state of one cell."""
        try:
            state, reason = self._state(cell)
        except AttncemError as error:
            state, reason = "failed", str(error)
        return CellView(cell, state, reason, self.run_path(cell.id))

    def _state(self, cell: Cell) -> tuple[State, str]:
        if self.is_worked_on(cell.id):
            return "running", ""
        if failure := self.failure(cell.id):
            return "failed", failure.reason
        if not (self.run_path(cell.id) / "manifest.json").exists():
            return "planned", ""
        if not RunDirectory.open(self.run_path(cell.id)).is_finished:
            return "interrupted", ""
        lacks = self.missing_audits(cell.id) or self.lacks_portrait(cell) or self.lacks_choice(cell)
        return "trained" if lacks else "done", ""

    def missing_audits(self, cell_id: str) -> list[str]:
        """The keys of the campaign's audits that are not complete for this cell."""
        if self.cell(cell_id).budget is not None:  # nothing is released
            return []
        there, audits = self.finished(cell_id).audits, self.run_path(cell_id) / "audits"
        keys = [audit.key for audit in self.campaign.audits]
        return [key for key in keys if key not in there or not (audits / there[key] / PLAN).is_file()]

    def lacks_portrait(self, cell: Cell) -> bool:
        """Whether the report needs this cell's portrait and it is missing."""
        wanted = self.campaign.portraits and cell.seed == self.campaign.seed_list[0] and cell.budget is None
        return wanted and not (self.run_path(cell.id) / PORTRAIT).exists()

    def candidates(self, cell: Cell) -> list[RunDirectory]:
        """The runs of the candidates among which this client alone is chosen: the same budget and seed."""
        alike = (other for other in self.plan.cells if other.budget is not None)
        return [RunDirectory(self.run_path(it.id)) for it in alike if (it.arm, it.seed) == (cell.arm, cell.seed)]

    def lacks_choice(self, cell: Cell) -> bool:
        """Whether all candidates are trained, this one is the best, and it lacks the record of the choice."""
        if cell.budget is None:
            return False
        runs = self.candidates(cell)
        if not all((run.path / "manifest.json").exists() and run.is_finished for run in runs):
            return False
        own = RunDirectory(self.run_path(cell.id))
        return best_of(map(candidate_of, runs)).run == own.path.name and read_choice(own) is None

    def cell(self, cell_id: str) -> Cell:
        """The cell of this name; RunError where it does not exist."""
        found = self.plan.cell(cell_id)
        if found is None:
            raise RunError(f"{self.path} has no cell {cell_id}; attncem campaign status {self.path} lists them")
        return found

    def config(self, cell_id: str) -> RunConfig:
        """The configuration of a cell's run."""
        file = self.path / CELLS / f"{cell_id}.yaml"
        try:
            with standing_in(stand_ins(self.plan.plugins)):
                return load_config(file).config
        except AttncemError as error:
            raise RunError(f"{file} cannot be used: {error}") from error

    def require_plugins(self) -> None:
        """RunError if a plugin of the campaign is not loaded, or if its file has changed since the campaign began."""
        require(self.plan.plugins, str(self.path), same=True)

    def run_path(self, cell_id: str) -> Path:
        """The run folder of a cell."""
        return self.path / RUNS / cell_id

    def left(self) -> list[str]:
        """Cells of an earlier version of the campaign that this one no longer asks for, started or not."""
        asked = {cell.id for cell in self.plan.cells}
        return [file.stem for file in sorted((self.path / CELLS).glob("*.yaml")) if file.stem not in asked]

    def finished(self, cell_id: str) -> Finished:
        """The complete parts of a cell."""
        file = self.path / CELLS / f"{cell_id}.json"
        return read_record(Finished, file) if file.exists() else Finished()

    def write_finished(self, cell_id: str, finished: Finished) -> None:
        """Write the complete parts of a cell."""
        with explain_os_error(self.path, _ADVICE):
            write_record(self.path / CELLS / f"{cell_id}.json", finished)

    # failures

    def failure(self, cell_id: str) -> Failure | None:
        """Why a cell failed; None where it did not."""
        file = self.path / FAILURES / f"{cell_id}.json"
        return read_record(Failure, file) if file.exists() else None

    def fail(self, cell_id: str, stage: str, error: BaseException | str) -> Failure:
        """Record why a cell failed."""
        details = "".join(traceback.format_exception(error)) if isinstance(error, BaseException) else ""
        reason = f"{error}" if isinstance(error, str | AttncemError) else f"{type(error).__name__}: {error}"
        when = datetime.now().astimezone().isoformat(timespec="seconds")
        attempts = max(self.finished(cell_id).failures, getattr(self.failure(cell_id), "attempts", 0)) + 1
        failure = Failure(cell_id, stage, reason, details, attempts, when)
        with explain_os_error(self.path, _ADVICE):
            write_record(self.path / FAILURES / f"{cell_id}.json", failure)
        return failure

    def forgive(self, cell_id: str) -> None:
        """Remove a failure, because the cell is done or will be retried. The number of failures is kept."""
        if failure := self.failure(cell_id):
            self.write_finished(cell_id, replace(self.finished(cell_id), failures=failure.attempts))
        with explain_os_error(self.path, _ADVICE):
            (self.path / FAILURES / f"{cell_id}.json").unlink(missing_ok=True)

    # processes

    @contextlib.contextmanager
    def held_cell(self, cell_id: str) -> Iterator[None]:
        """Hold a cell's lock for the process that works on it."""
        with locked(self._cell_lock(cell_id), f"{cell_id} is being worked on by another process"):
            yield

    def is_worked_on(self, cell_id: str) -> bool:
        """Whether a process works on a cell."""
        return bool(is_held(self._cell_lock(cell_id)))

    def _cell_lock(self, cell_id: str) -> Path:
        return self.path / CELLS / f"{cell_id}.lock"

    def is_running(self) -> bool:
        """Whether a process runs the campaign."""
        return bool(is_held(self.path / LOCK))

    def ask_to_stop(self) -> None:
        """Ask the process that runs the campaign to end."""
        with explain_os_error(self.path, "the campaign was not asked to stop"):
            write_atomic(self.path / STOP, b"")

    @property
    def asked_to_stop(self) -> bool:
        """Whether the process that runs the campaign was asked to end."""
        return (self.path / STOP).exists()

    def clear_stop(self) -> None:
        """Remove the request to end."""
        (self.path / STOP).unlink(missing_ok=True)

    def log(self, event: str, **facts: Any) -> None:
        """Append an event."""
        line = {"schema_version": SCHEMA_VERSION, "event": event, "time": round(time.time(), 3), **facts}
        with explain_os_error(self.path, _ADVICE):
            append(self.path / LOG, (json.dumps(line, allow_nan=False) + "\n").encode())

    def mend_log(self) -> None:
        """Remove an incomplete last line, which a full disk or a kill left."""
        log = self.path / LOG
        with explain_os_error(self.path, _ADVICE):
            cut_to_lines(log, log.stat().st_size if log.exists() else 0)

    def events(self) -> list[dict[str, Any]]:
        """The events, oldest first; RunError names a line with an entry of the wrong kind."""
        lines = read_lines(self.path / LOG)
        for where, line in lines:
            read(Event, line, where)
        return [line for _, line in lines]


def _plugins(campaign: Campaign, cells: Sequence[PlannedCell]) -> list[PluginUse]:
    """The plugins of the cells' runs and of the audits' attacks, each use once."""
    if not additions(*KINDS):
        return []
    suites = (load_suite(audit.suite, audit.set).suite for audit in campaign.audits)
    rows = [("attack", row) for suite in suites for row in suite.rows.values()]
    every = [*(use for planned in cells for use in uses_of(planned.config)), *uses(rows)]
    return [use for place, use in enumerate(every) if use not in every[:place]]


def require_campaign(folder: Path) -> Path:
    """The folder; RunError where it holds no campaign, with a similar folder where it does not exist."""
    if not (folder / PLANNED).is_file():
        hint = "" if folder.exists() else did_you_mean(nearest_folder(folder))
        raise RunError(f"{folder} is not a campaign's folder: {PLANNED} is missing{hint}")
    return folder


def checked(plan: CampaignPlan, where: object) -> CampaignPlan:
    """The plan; RunError where a cell's name cannot be a folder's, or two cells have the same name."""
    names = [cell.id for cell in plan.cells]
    if odd := next((name for name in names if not _CELL.fullmatch(name)), None):
        raise RunError(f"{where} is damaged: {odd!r} cannot be the name of a cell")
    if len(set(names)) < len(names):
        raise RunError(f"{where} is damaged: two cells have the same name")
    return plan


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock of a campaign's folder, which need not exist yet; a second process is refused."""
    with locked(path / LOCK, f"{path} is being run by another process; attncem campaign stop {path} ends it"):
        for leftover in (*path.glob(f"{PARTIAL}*"), *path.glob(f"*/{PARTIAL}*")):
            with contextlib.suppress(OSError):  # another machine may still be writing a recent one
                if leftover.is_file() and leftover.stat().st_mtime < time.time() - _OLD:
                    leftover.unlink()
        yield


def is_free(folder: Path) -> bool:
    """Whether a campaign may be made in a folder: it is empty, or its creation was interrupted."""
    if not folder.is_dir():
        return not folder.exists()
    names = {entry.name for entry in folder.iterdir() if not entry.name.startswith(PARTIAL)}
    begun = (folder / RUNS).is_dir() and any((folder / RUNS).iterdir())
    return names <= _FIRST_PARTS and not begun


def _write_where_other(file: Path, text: str) -> None:
    """Write a file unless it already holds this text, so unchanged cells are not touched."""
    if not (file.exists() and read_bytes(file) == text.encode()):
        write_atomic(file, text.encode())
