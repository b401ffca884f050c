"""What an engine is: where the cells of a campaign are worked on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from attncem.base.progress import Progress, silent
from attncem.base.types import ConfigError
from attncem.records.campaign_folder import CampaignFolder


@dataclass(frozen=True)
class EngineOptions:
    """How many cells are worked on at once, and what a cluster needs to know."""

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
    """A cell that an engine has done with; ``error`` says why it did not come to its end."""

    cell_id: str
    error: str | None = None


class Engine(ABC):
    """Works on the cells it is given, several at once. A context manager: leaving it ends what it started."""

    def __init__(self, folder: CampaignFolder, options: EngineOptions, progress: Progress = silent) -> None:
        self.folder, self.options, self.progress = folder, options, progress

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @abstractmethod
    def submit(self, cell_id: str) -> None:
        """Have a cell worked on as soon as there is room (`campaigns.cell.work`)."""

    @abstractmethod
    def wait(self, seconds: float) -> list[Ended]:
        """The cells that have ended since; waits at most so long for the first."""

    @abstractmethod
    def stop(self) -> None:
        """End whatever is at work, at once; may be called twice."""
