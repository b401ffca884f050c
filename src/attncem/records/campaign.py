"""Records in a campaign's folder: its plan, the state of each cell, and why a cell failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from attncem.base.plugins import PluginUse
from attncem.base.record import Record

State = Literal["planned", "running", "interrupted", "trained", "done", "failed"]
"""States of a cell: not started, running, interrupted, trained with audits missing, complete, failed until a retry."""


class Cell(Record):
    """One run of a campaign: an arm at one point of the grid with one seed. ``id`` is the name of its run folder.

    ``budget``: it is a candidate of the client alone, with at most this many multiply-accumulates.
    """

    id: str
    arm: str
    seed: int
    point: dict[str, Any] = field(default_factory=dict)
    budget: int | None = None


class CampaignPlan(Record):
    """The plan of a campaign: campaign.json. ``sha256`` is that of its campaign.yaml."""

    name: str
    meaning: str
    sha256: str
    cells: list[Cell]
    made: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    plugins: list[PluginUse] = field(default_factory=list)

    def cell(self, cell_id: str) -> Cell | None:
        """The cell of this name."""
        return next((cell for cell in self.cells if cell.id == cell_id), None)

    def first_of(self, cell: Cell) -> Cell:
        """The cell of the first seed at the same arm and point."""
        return next(other for other in self.cells if (other.arm, other.point) == (cell.arm, cell.point))

    def partner(self, cell: Cell, arm: str) -> Cell | None:
        """The cell of another arm that matches this one; None where no cell or more than one matches.

        It has the same seed and the same values of all keys that both points have.
        """
        found = [
            other
            for other in self.cells
            if other.arm == arm
            and other.seed == cell.seed
            and all(other.point[key] == value for key, value in cell.point.items() if key in other.point)
        ]
        return found[0] if len(found) == 1 else None


class Failure(Record):
    """Why a cell failed: the stage (train, audit, portray, process), a sentence and all details."""

    id: str
    stage: str
    reason: str
    details: str = ""
    attempts: int = 1
    when: str = ""


class EqualTime(Record):
    """How the epochs of a cell were scaled, once, to the training time of another arm.

    ``factor`` is ``epochs`` over the requested epochs; both times are wall-clock seconds.
    """

    to: str
    seconds: float
    seconds_an_epoch: float
    factor: float
    epochs: int


class Finished(Record):
    """The complete parts of a cell: cells/ID.json. ``audits`` are folders in RUN/audits by the key of the request.

    ``failures`` is the number of earlier failures.
    """

    audits: dict[str, str] = field(default_factory=dict)
    equal_time: EqualTime | None = None
    failures: int = 0


class Event(Record):
    """Fields that every line of log.jsonl may have; ``seconds`` is the time of a cell that is done."""

    event: str = ""
    cell: str | None = None
    time: float = 0.0
    seconds: float | None = None


class ArchiveMember(Record):
    """A file in an archive of a campaign."""

    name: str
    bytes: int
    sha256: str


class ArchiveList(Record):
    """Every file in an archive of a campaign: its archive.json."""

    members: list[ArchiveMember]
