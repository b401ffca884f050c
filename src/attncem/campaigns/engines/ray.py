"""Tasks of a Ray cluster (extra `ray`), one per cell. They end with the campaign's process; a restart resumes."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attncem.base.plugins import Plugin, load_same, named_plugins
from attncem.base.progress import Progress, silent
from attncem.base.types import ConfigError
from attncem.campaigns.cell import work
from attncem.campaigns.engines.base import EngineOptions, PolledEngine, needed
from attncem.records.campaign_folder import CampaignFolder

_REACHABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray reads this variable on import; 0 keeps all its ports on the loopback interface, which is its default on platforms
without clusters. Otherwise even a single-machine instance listens on every interface."""


def work_on(folder: str, cell_id: str, plugins: Sequence[Plugin] = ()) -> None:
    """The function of a task, with the plugins of the campaign's process."""
    load_same(plugins)
    work(Path(folder), cell_id, silent)


class RayEngine(PolledEngine[Any]):
    """Tasks of a Ray cluster at an address, or of a local instance that ends with the engine."""

    def __init__(self, folder: CampaignFolder, options: EngineOptions, progress: Progress = silent) -> None:
        super().__init__(folder, options, progress)
        if options.address is None:
            os.environ.setdefault(_REACHABLE, "0")
        self._ray = needed("ray", "ray")
        self._path = str(folder.path.resolve())
        self._own = not self._ray.is_initialized()
        if self._own:
            self._connect(options)
        asks = {"num_cpus": 1, "num_gpus": options.gpus, "max_retries": 0}  # the campaign does the retries
        self._task = self._ray.remote(**asks)(work_on)

    def _connect(self, options: EngineOptions) -> None:
        quiet = {"log_to_driver": False, "configure_logging": False, "logging_level": logging.ERROR}
        here = {"num_cpus": options.workers, "include_dashboard": False}
        try:
            self._ray.init(address=options.address or "local", **quiet, **({} if options.address else here))
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ConfigError(f"engine=ray, address={options.address}: {error}") from error

    def _start(self, cell_id: str) -> Any:
        return self._task.remote(self._path, cell_id, named_plugins())

    def _has_ended(self, job: Any) -> bool:
        done, _ = self._ray.wait([job], timeout=0)
        return bool(done)

    def _cancel(self, job: Any) -> None:
        self._ray.cancel(job, force=True)

    def _about(self, job: Any) -> str:
        try:
            self._ray.get(job, timeout=0)
        except Exception as error:
            return f"its task ({type(error).__name__}: {str(error).strip().splitlines()[-1]})"
        return "its task"

    def stop(self) -> None:
        """End all tasks, and the instance if the engine started it."""
        super().stop()
        if self._own and self._ray.is_initialized():
            self._ray.shutdown()
