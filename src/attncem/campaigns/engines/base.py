"""The interface of an engine, which runs the cells of a campaign, and the base of engines that poll a scheduler."""

from __future__ import annotations

import importlib
import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from types import ModuleType
from typing import Generic, Self, TypeVar

from attncem.base.progress import Progress, silent
from attncem.base.types import ConfigError
from attncem.records.campaign_folder import CampaignFolder

JobT = TypeVar("JobT")
_PAUSE = 0.5
"""Seconds between two polls of the scheduler."""


@dataclass(frozen=True)
class EngineOptions:
    """The number of parallel cells, and the options of a cluster."""

    workers: int = 1
    partition: str | None = None
    gpus: int = 0
    minutes: int | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ConfigError(f"workers={self.workers}: at least 1 is needed")


@dataclass(frozen=True)
class Ended:
    """A cell that an engine has ended; ``error`` says why it did not finish."""

    cell_id: str
    error: str | None = None


class Engine(ABC):
    """Runs submitted cells, several at once. A context manager: leaving it ends everything it started."""

    def __init__(self, folder: CampaignFolder, options: EngineOptions, progress: Progress = silent) -> None:
        self.folder, self.options, self.progress = folder, options, progress

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.stop()

    @abstractmethod
    def submit(self, cell_id: str) -> None:
        """Queue a cell; it runs (`campaigns.cell.work`) as soon as a worker is free."""

    @abstractmethod
    def wait(self, seconds: float) -> list[Ended]:
        """The cells that have ended since the last call; waits at most `seconds` for the first."""

    @abstractmethod
    def stop(self) -> None:
        """End all running work at once; may be called twice."""


def needed(module: str, extra: str) -> ModuleType:
    """A library of an extra; ConfigError says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f'engine={extra} needs {module} ({error}): install it with pip install "attncem[{extra}]"'
        ) from error


class PolledEngine(Engine, Generic[JobT]):
    """At most `workers` jobs at a time, one for each cell. Only the campaign's folder says how a cell ended."""

    def __init__(self, folder: CampaignFolder, options: EngineOptions, progress: Progress = silent) -> None:
        super().__init__(folder, options, progress)
        self._waiting: deque[str] = deque()
        self._jobs: dict[str, JobT] = {}

    @abstractmethod
    def _start(self, cell_id: str) -> JobT:
        """Submit a cell to the scheduler, or find its earlier job."""

    @abstractmethod
    def _has_ended(self, job: JobT) -> bool:
        """Whether a job has ended, with success or not."""

    @abstractmethod
    def _cancel(self, job: JobT) -> None:
        """Cancel a job; a job that has already ended is not an error."""

    @abstractmethod
    def _about(self, job: JobT) -> str:
        """The job and the path of its log, for the error of a job that ended without a result."""

    def submit(self, cell_id: str) -> None:
        """Queue a cell; it runs as soon as a worker is free."""
        self._waiting.append(cell_id)
        self._fill()

    def wait(self, seconds: float) -> list[Ended]:
        """The cells that have ended since the last call."""
        until = time.monotonic() + seconds
        while True:
            self._fill()
            over = [cell_id for cell_id, job in self._jobs.items() if self._has_ended(job)]
            if over or time.monotonic() >= until or not self._jobs:
                return [self._ended(cell_id, self._jobs.pop(cell_id)) for cell_id in over]
            time.sleep(min(_PAUSE, max(0.0, until - time.monotonic())))

    def stop(self) -> None:
        """End all jobs; a running cell resumes from its last checkpoint next time."""
        self._waiting.clear()
        while self._jobs:
            _, job = self._jobs.popitem()
            self._cancel(job)

    def _fill(self) -> None:
        while self._waiting and len(self._jobs) < self.options.workers:
            cell_id = self._waiting.popleft()
            self._jobs[cell_id] = self._start(cell_id)

    def _ended(self, cell_id: str, job: JobT) -> Ended:
        view = self.folder.view(self.folder.cell(cell_id))
        if view.state == "done":
            return Ended(cell_id)
        return Ended(cell_id, view.reason or f"{self._about(job)} ended without a result: killed, or out of memory?")
