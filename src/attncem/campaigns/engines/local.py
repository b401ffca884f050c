"""Cells in processes on this machine."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any

from attncem.base.progress import Progress, silent
from attncem.base.working import Workers
from attncem.campaigns.cell import work
from attncem.campaigns.engines.base import Ended, Engine, EngineOptions
from attncem.records.campaign_folder import CampaignFolder


def work_after_others(folder: Path, cell_id: str, progress: Progress) -> None:
    """Run a cell in a process that ran others before, usually with the same data."""
    from attncem.data.readers import keep_last_read

    keep_last_read()
    work(folder, cell_id, progress)


class LocalEngine(Engine):
    """A fixed number of processes on this machine, each with one cell at a time."""

    def __init__(self, folder: CampaignFolder, options: EngineOptions, progress: Progress = silent) -> None:
        super().__init__(folder, options, progress)
        self._workers = Workers(options.workers, progress, "the campaign")
        self._pending: dict[Future[Any], str] = {}

    def submit(self, cell_id: str) -> None:
        """Queue a cell; it runs as soon as a process is free."""
        self._pending[self._workers.submit(work_after_others, self.folder.path, cell_id, tells=True)] = cell_id

    def wait(self, seconds: float) -> list[Ended]:
        """The cells that have ended since the last call."""
        done, _ = wait(self._pending, timeout=seconds, return_when=FIRST_COMPLETED)
        return [Ended(self._pending.pop(future), _said(future.exception())) for future in done]

    def stop(self) -> None:
        """End the processes, even in the middle of their work."""
        self._workers.end() if self._pending else self._workers.finish()


def _said(error: BaseException | None) -> str | None:
    return None if error is None else str(error) or type(error).__name__
