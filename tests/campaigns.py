"""What tests of campaigns share: a campaign of tiny runs, and an engine that works in this process."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attncem.base.progress import Progress, silent
from attncem.campaigns.cell import train_run, work
from attncem.campaigns.engines import Ended, Engine, EngineOptions
from attncem.config.options.run import RunConfig
from attncem.records.campaign_folder import CampaignFolder

SUITE = {
    "name": "tiny",
    "version": 1,
    "meaning": "two floors",
    "rows": {"grey": {"name": "grey"}, "mean image": {"name": "mean_image"}},
}
TINY = {
    "device": "cpu",
    "model.width": 4,
    "data.held_out_fraction": 0.87,
    "training.batch_size": 32,
    "training.epochs": 2,
    "training.log_every": 5,
}


def campaign(**changes: Any) -> dict[str, Any]:
    """A campaign of two arms, one seed, runs of two epochs and audits of two rows."""
    arms = {"none": {}, "kmeans": {"config": "demo-kmeans"}}
    return {"name": "tiny", "set": TINY, "arms": arms, "portraits": False, "audits": [{"suite": SUITE}], **changes}


class InProcess(Engine):
    """Works on one cell at a time, here."""

    worked: list[str]

    def __init__(self, folder: CampaignFolder, options: EngineOptions, progress: Progress = silent) -> None:
        super().__init__(folder, options, progress)
        self._waiting: list[str] = []

    def submit(self, cell_id: str) -> None:
        self._waiting.append(cell_id)

    def wait(self, seconds: float) -> list[Ended]:
        cell_id = self._waiting.pop(0)
        type(self).worked.append(cell_id)
        try:
            work(self.folder.path, cell_id, self.progress)
        except Exception as error:
            return [Ended(cell_id, str(error))]
        return [Ended(cell_id)]

    def stop(self) -> None:
        self._waiting.clear()


class TrainedOnce:
    """`train_run` for tests of what a campaign does with its cells: a run of equal options is a copy of the first.

    A run that was begun is resumed, and one that fails is tried, as ever.
    """

    def __init__(self, kept: Path) -> None:
        self.kept = kept
        self.runs: dict[str, Path] = {}

    def __call__(self, config: RunConfig, run: Path, progress: Progress) -> Path:
        key = config.model_dump_json()
        if key in self.runs and not run.exists():
            return Path(shutil.copytree(self.runs[key], run))
        begun = run.exists()
        made = train_run(config, run, progress)
        if not begun:
            self.runs[key] = Path(shutil.copytree(made, self.kept / str(len(self.runs))))
        return made


def numbers(folder: Path) -> dict[str, Any]:
    """Everything that a campaign found but for times: what must not depend on how it came about."""
    found: dict[str, Any] = {}
    for view in CampaignFolder.open(folder).views():
        metrics = (view.path / "metrics.jsonl").read_bytes()
        rows = [
            {"audit": audit.plan.id, **without_times(row.to_dict())} for audit in view.audits() for row in audit.rows
        ]
        found[view.cell.id] = (view.state, metrics, rows)
    return found


def without_times(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "seconds"}


def stamps(folder: Path) -> dict[str, int]:
    """When each file of the runs was written: what was finished is not touched again."""
    files = [file for file in (folder / "runs").rglob("*") if file.is_file() and file.name != ".lock"]
    return {str(file.relative_to(folder)): file.stat().st_mtime_ns for file in files}
