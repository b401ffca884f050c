"""run_campaign(): work on every unfinished cell, several at once; an interrupted campaign resumes where it stopped."""

from __future__ import annotations

import fnmatch
import math
import os
import shutil
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from attncem.base.courses import LEFT, SPENT
from attncem.base.progress import Progress, forget, shown, tell
from attncem.base.texts import text, written
from attncem.base.texts.titles import failed_at
from attncem.base.types import ConfigError, RunError
from attncem.campaigns.costs import Cost, Forecast, spent
from attncem.campaigns.engines import ENGINES, Ended, Engine, EngineOptions
from attncem.campaigns.expansion import needs
from attncem.campaigns.planning import Asked, Source, find, look, standing
from attncem.campaigns.results import Known, check_results_file, write_results
from attncem.config.loading.suggest import known
from attncem.records.campaign_folder import CampaignFolder, CellView, held
from attncem.records.files import explain_os_error

_ROOM = 64 * 2**20
"""Free bytes that a campaign needs at its start."""
_ON_A_GPU = 2
"""Default number of processes on a GPU: while one is busy on the host, the other computes."""
_GPU_TOOLS = ("nvidia-smi", "rocm-smi")
"""Tools that come with every GPU driver."""
_RUNNING = 0.1
"""A cell that runs is expected to need at least this share of its arm's mean time."""
_POLL = 0.5
"""Seconds between two checks for a stop request."""
_PATIENCE = 60.0
"""Seconds that `stop_campaign` waits for the end."""


@dataclass(frozen=True)
class CampaignResult:
    """The outcome of a campaign. ``stopped``: a stop request or the time limit ended it before it was done."""

    folder: CampaignFolder
    cells: list[CellView]
    stopped: bool = False

    @property
    def failed(self) -> list[CellView]:
        """The cells that failed."""
        return [view for view in self.cells if view.state == "failed"]

    @property
    def done(self) -> bool:
        """Whether every cell is complete."""
        return all(view.state == "done" for view in self.cells)


def run_campaign(
    source: Source,
    overrides: Sequence[str] = (),
    *,
    out: str | Path | None = None,
    engine: str = "local",
    options: EngineOptions | None = None,
    retry: Sequence[str] | None = None,
    cells: Sequence[str] = (),
    results: str | Path | None = None,
    within: float | None = None,
    progress: Progress | None = None,
) -> CampaignResult:
    """Train and audit every unfinished cell; finished work is never repeated.

    `source` is a campaign's folder, a packaged name, a YAML file, a mapping or a Campaign; `out` is its folder, by
    default campaigns/NAME, where an existing campaign resumes. A failed cell is recorded with its reason, and the
    others continue; `retry` names failed cells to try again, an empty list means all of them. With `cells`, patterns of
    names such as "slot-*", only those cells and the cells they need are run or retried, in the order of the patterns.
    `results` is a file that gets the results so far after every cell (`write_results`), because a machine may
    disappear. `within` is a time limit in minutes; a cell that cannot finish in time, even as fast as the fastest so
    far, is not started.
    """
    if within is not None and not within > 0:
        raise ConfigError(f"within={within:g}: must be more than 0 minutes")
    kind = ENGINES[known("engine", engine, ENGINES)]
    asked = find(source, overrides, out)
    if asked.existing is not None:
        asked.existing.require_plugins()
    named, keep = _named(asked, cells), None if results is None else Path(results)
    if keep is not None:
        check_results_file(asked.about.name, keep)
    _check_room(standing(asked.path))
    with ExitStack() as stack:
        with explain_os_error(asked.path, "no campaign was made; choose another folder with --out"):
            asked.path.mkdir(parents=True, exist_ok=True)
        stack.enter_context(held(asked.path))
        told = stack.enter_context(shown(progress))
        folder = _settle(asked, told)
        folder.clear_stop()
        chosen = _with_needs(folder, named)
        _clear_failures(folder, retry, chosen)
        settings = options or default_options(folder)
        deadline = math.inf if within is None else time.monotonic() + 60 * within
        return _Run(folder, kind, settings, told, chosen, keep, deadline).run()


def default_options(folder: CampaignFolder) -> EngineOptions:
    """One process per core, or per as many cores as a run has threads, or two on a GPU; at most one per cell."""
    cells = folder.plan.cells
    configs = [folder.config(cell.id) for cell in {cell.arm: cell for cell in reversed(cells)}.values()]
    fitting = processes_here({config.device for config in configs}) // max(config.threads for config in configs)
    return EngineOptions(workers=max(1, min(len(cells), fitting)))


def processes_here(devices: Collection[str]) -> int:
    """One process per core; where runs find a GPU, at most as many as can share it."""
    cores = os.cpu_count() or 1
    if set(devices) <= {"cpu"} or not any(map(shutil.which, _GPU_TOOLS)):
        return cores
    from attncem.training.engine import resolve_device  # torch takes seconds to import: only where there may be a GPU

    return min(cores, _ON_A_GPU) if resolve_device("auto").type == "cuda" else cores


def stop_campaign(path: str | Path) -> bool:
    """Ask the process that runs a campaign to end, and wait for it; False: no process runs it."""
    folder = CampaignFolder.open(path)
    if not folder.is_running():
        return False
    folder.ask_to_stop()
    deadline = time.monotonic() + _PATIENCE
    while folder.is_running():
        if time.monotonic() > deadline:
            raise RunError(f"{folder.path} was asked to stop and is still running: does it run on another machine?")
        time.sleep(_POLL / 5)
    return True


def _check_room(path: Path) -> None:
    free = shutil.disk_usage(path).free
    if free < _ROOM:
        raise RunError(f"{path}: {free >> 20} MiB are free and {_ROOM >> 20} are needed; free space, or choose --out")


def _settle(asked: Asked, told: Progress) -> CampaignFolder:
    """The folder with the requested campaign; changes are reported."""
    if asked.campaign is None and asked.existing is not None:
        return asked.existing
    assert asked.campaign is not None
    if asked.existing is None:
        return CampaignFolder.create(asked.path, asked.campaign, asked.cells)
    for line in look(asked).changes:
        tell(told, line)
    return CampaignFolder.adopt(asked.path, asked.campaign, asked.cells)


def _named(asked: Asked, patterns: Sequence[str]) -> list[str]:
    """The cells whose names match a pattern, in the order of the patterns; ConfigError where a pattern matches none."""
    names = asked.names
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise ConfigError(f"--cells {pattern}: no cell has this name; attncem campaign plan lists their names")
    return list(dict.fromkeys(name for pattern in patterns for name in fnmatch.filter(names, pattern)))


def _with_needs(folder: CampaignFolder, names: Sequence[str]) -> list[str]:
    """These cells, then all that they need; all cells where none is named."""
    cells = list(names or (cell.id for cell in folder.plan.cells))
    for name in cells:  # it grows during the loop
        cells += [other for other in needs(folder.campaign, folder.plan, folder.cell(name)) if other not in cells]
    return cells


def _clear_failures(folder: CampaignFolder, retry: Sequence[str] | None, chosen: Collection[str]) -> None:
    """Clear failures for a retry: of the named cells, or of all chosen cells."""
    if retry is None:
        return
    failed = {view.cell.id for view in folder.views() if view.state == "failed"}
    for name in retry:
        if folder.cell(name).id not in failed:
            raise ConfigError(f"{name} has not failed: there is nothing to retry")
        if name not in chosen:
            raise ConfigError(f"{name} cannot be retried: --cells does not select it")
    for name in retry or failed.intersection(chosen):
        folder.forgive(name)


@dataclass
class _Run:
    """One run of a campaign: the waiting and running cells, and the number of ended ones."""

    folder: CampaignFolder
    kind: type[Engine]
    options: EngineOptions
    told: Progress
    chosen: Sequence[str]
    """The cells to work on, in this order."""
    results: Path | None = None
    """The file that gets the results so far after every cell."""
    deadline: float = math.inf
    """Time limit on the monotonic clock."""
    waiting: dict[str, list[str]] = field(default_factory=dict)
    """The cells that each waiting cell needs."""
    running: dict[str, float] = field(default_factory=dict)
    """Start time of each running cell."""
    done: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    found: Known = field(default_factory=dict)
    """Results of cells that were already written."""
    forecast: Forecast = field(default_factory=Forecast)
    begun: dict[str, Cost] = field(default_factory=dict)
    """Costs so far of cells that an earlier run started; filled only with a deadline."""
    arms: dict[str, str] = field(default_factory=dict)

    def run(self) -> CampaignResult:
        """Run until no cell can be started, or a stop is requested."""
        views, campaign, plan = self.folder.views(), self.folder.campaign, self.folder.plan
        self.folder.mend_log()
        self.forecast = Forecast.of(views, self.folder.events())
        self.arms = {cell.id: cell.arm for cell in plan.cells}
        for view in views:
            if view.state in ("done", "failed"):
                (self.done if view.state == "done" else self.failed).add(view.cell.id)
        left = {view.cell.id: view.cell for view in views if view.state not in ("done", "failed")}
        self.waiting = {name: needs(campaign, plan, left[name]) for name in self.chosen if name in left}
        if math.isfinite(self.deadline):
            self.begun = {name: spent(self.folder.run_path(name)) for name in self.waiting}
        self.folder.log("run", cells=len(views), done=len(self.done), workers=self.options.workers)
        self._keep_results()
        self._say()
        stopped = False
        if self.waiting:
            with self.kind(self.folder, self.options, self.told) as engine:
                stopped = self._work(engine)
        self.folder.clear_stop()
        self.folder.log("stopped" if stopped else "ended", done=len(self.done), failed=len(self.failed))
        return CampaignResult(self.folder, self.folder.views(), stopped)

    def _work(self, engine: Engine) -> bool:
        """Submit cells and record their ends; True: a stop was requested, or the time is over."""
        while True:
            for cell_id in self._ready():
                self.waiting.pop(cell_id)
                self.running[cell_id] = time.monotonic()
                self.folder.log("begun", cell=cell_id)
                engine.submit(cell_id)
                self._say()
            if self.running:
                for ended in engine.wait(_POLL):
                    self._note(ended)
            elif any(map(self.folder.is_worked_on, self.waiting)):  # by a process left over from an earlier run
                time.sleep(_POLL)
            else:
                return self._lacks_time()
            if self.folder.asked_to_stop or time.monotonic() >= self.deadline:
                return True

    def _ready(self) -> list[str]:
        """Cells that can start now: a worker is free, there is enough time, and no other process works on them."""
        room = self.options.workers - len(self.running)
        fitting = (cell_id for cell_id in self._free() if self._is_done_in_time(cell_id))
        ready = (cell_id for cell_id in fitting if not self.folder.is_worked_on(cell_id))
        return [cell_id for _, cell_id in zip(range(room), ready, strict=False)]

    def _free(self) -> Iterator[str]:
        """Cells whose needs are all done."""
        return (cell_id for cell_id, needed in self.waiting.items() if self.done.issuperset(needed))

    def _is_done_in_time(self, cell_id: str) -> bool:
        """Whether a cell may be done before the deadline, if it is as fast as the fastest of its arm.

        The mean would be too strict: a process that waits for the end gains nothing, and the first cells, all started
        at once, are slow.
        """
        left = self.forecast.quickest(self.arms[cell_id]).less(self.begun.get(cell_id, Cost())).seconds
        return time.monotonic() + left < self.deadline

    def _lacks_time(self) -> bool:
        """Whether cells are left that cannot finish in time; their number is reported."""
        left = sum(not self._is_done_in_time(cell_id) for cell_id in self._free())
        if left:
            tell(self.told, text("campaign.no_time", count=left))
        return left > 0

    def _note(self, ended: Ended) -> None:
        """Record how a cell ended."""
        took = time.monotonic() - self.running.pop(ended.cell_id)
        forget(self.told, ended.cell_id)
        if ended.error is None:
            self.done.add(ended.cell_id)
            cost = spent(self.folder.run_path(ended.cell_id))
            cost = replace(cost, seconds=max(took, cost.seconds))  # less where an earlier run started it
            self.forecast.learn(self.arms[ended.cell_id], cost)
            self.folder.log("done", cell=ended.cell_id, seconds=round(cost.seconds, 3))
            self._keep_results()
        else:
            self.failed.add(ended.cell_id)
            written_down = self.folder.failure(ended.cell_id)  # None where its process could not write it
            failure = written_down or self.folder.fail(ended.cell_id, "process", str(ended.error))
            self.folder.log("failed", cell=ended.cell_id, stage=failure.stage)
            stage = failed_at(failure.stage)
            tell(self.told, text("campaign.failed", cell=failure.id, stage=stage, reason=failure.reason))
            _check_room(self.folder.path)  # or every other cell would fail on a full disk
        self._say()

    def _keep_results(self) -> None:
        """Write the results so far to the results file; an error is reported, and the cells continue."""
        if self.results is None or not self.done:
            return
        try:
            write_results(self.folder.path, self.results, self.found)
        except RunError as error:
            tell(self.told, str(error))

    def _say(self) -> None:
        """Report progress: finished of the chosen cells, running and failed cells, and the time left."""
        numbers = {"running": len(self.running), "failed": len(self.failed), **self._times()}
        stage = written("stage.campaign", name=self.folder.plan.name)
        self.told(stage, len(self.done.intersection(self.chosen)), len(self.chosen), numbers)

    def _times(self) -> dict[str, float]:
        """Seconds spent and left, from finished cells and the time that the running ones have taken."""
        now, workers = time.monotonic(), max(1, min(self.options.workers, len(self.waiting) + len(self.running)))
        taken = {name: now - began for name, began in self.running.items()}
        costs = {name: self.forecast.cell(self.arms[name]) for name in (*self.waiting, *self.running)}
        lefts = [
            math.nan if cost is None else max(_RUNNING * cost.seconds, cost.seconds - taken.get(name, 0.0))
            for name, cost in costs.items()
        ]
        spent_before = self.forecast.seconds / max(1, self.options.workers)
        return {LEFT: sum(lefts) / workers, SPENT: spent_before + sum(taken.values()) / workers}
