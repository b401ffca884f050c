"""Jobs of a Slurm cluster through submitit (extra `slurm`), one for each cell.

FOLDER/slurm/ holds submitit's files and the logs of the jobs, FOLDER/slurm/cells/ID.json the job of a cell: when the
campaign's process dies its jobs continue, and the next process finds them there instead of starting others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attncem.base.plugins import Plugin, load_same, named_plugins
from attncem.base.progress import Progress, silent
from attncem.base.types import ConfigError
from attncem.campaigns.cell import work
from attncem.campaigns.engines.base import EngineOptions, PolledEngine, needed
from attncem.records.campaign_folder import CampaignFolder
from attncem.records.files import explain_os_error, read_json, write_json

JOBS = "slurm"
_MINUTES = 240
"""Default time limit of a job in minutes; a job that exceeds it is queued again and resumes."""
_ADVICE = "finished work is kept: fix this and run the same command again"


class CellJob:
    """The function of a job. At its time limit, or when it is preempted, submitit queues it again."""

    def __init__(self, plugins: Sequence[Plugin] = ()) -> None:
        self.plugins = plugins

    def __call__(self, folder: str, cell_id: str) -> None:
        """Run or resume a cell, with the plugins of the campaign's process."""
        load_same(self.plugins)
        work(Path(folder), cell_id, silent)

    def checkpoint(self, folder: str, cell_id: str) -> Any:
        """The same job again: finished work is on disk."""
        submitit = needed("submitit", "slurm")
        return submitit.helpers.DelayedSubmission(self, folder, cell_id)


@dataclass(frozen=True)
class _Job:
    """A job of a cell; None: a process started earlier holds the cell, and the engine waits for it."""

    cell_id: str
    job: Any = None


class SlurmEngine(PolledEngine[_Job]):
    """Jobs of a Slurm cluster, at most `workers` of them queued or running."""

    cluster = "slurm"
    """submitit's name of the executor; `local` starts processes on this machine, for tests."""

    def __init__(self, folder: CampaignFolder, options: EngineOptions, progress: Progress = silent) -> None:
        super().__init__(folder, options, progress)
        self._submitit = needed("submitit", "slurm")
        self._root = folder.path.resolve() / JOBS
        with explain_os_error(self._root, _ADVICE):
            (self._root / "cells").mkdir(parents=True, exist_ok=True)
        self._executor = self._made(options)

    def _made(self, options: EngineOptions) -> Any:
        try:
            executor = self._submitit.AutoExecutor(folder=self._root, cluster=self.cluster)
        except RuntimeError as error:
            raise ConfigError(f"engine=slurm: {error} Start it where sbatch and srun are") from error
        given = {"name": "attncem", "timeout_min": options.minutes or _MINUTES, "cpus_per_task": 2}
        given |= {"gpus_per_node": options.gpus} if options.gpus else {}
        given |= {"slurm_partition": options.partition} if options.partition else {}
        executor.update_parameters(**given)
        return executor

    def _start(self, cell_id: str) -> _Job:
        before = self._before(cell_id)
        if before is not None:
            return before
        with explain_os_error(self._root, _ADVICE):
            job = self._executor.submit(CellJob(named_plugins()), str(self.folder.path.resolve()), cell_id)
            write_json(self._file(cell_id), {"job": job.job_id, "cluster": self.cluster})
        return _Job(cell_id, job)

    def _before(self, cell_id: str) -> _Job | None:
        """The cell's job from an earlier process of the campaign, if it is still queued or running."""
        file = self._file(cell_id)
        if self.cluster == "slurm" and file.exists():
            job = self._submitit.SlurmJob(self._root, str(read_json(file).get("job")))
            if not job.done(force_check=True):
                return _Job(cell_id, job)
        return _Job(cell_id) if self._is_held(cell_id) else None

    def _has_ended(self, job: _Job) -> bool:
        return bool(job.job.done()) if job.job is not None else not self._is_held(job.cell_id)

    def _is_held(self, cell_id: str) -> bool:
        return self.folder.view(self.folder.cell(cell_id)).state == "running"

    def _cancel(self, job: _Job) -> None:
        if job.job is not None:
            job.job.cancel(check=False)
            if self.cluster == "local":  # no scheduler reaps the process
                job.job._process.wait()

    def _about(self, job: _Job) -> str:
        return "its process" if job.job is None else f"job {job.job.job_id} (log: {job.job.paths.stderr})"

    def _file(self, cell_id: str) -> Path:
        return self._root / "cells" / f"{cell_id}.json"
