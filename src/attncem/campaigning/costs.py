"""What cells cost: measured on those that are done, and from them foretold for the others."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from attncem.campaign_folder import CellView
from attncem.ledger import ledgers
from attncem.runs import RunDirectory
from attncem.types import AttncemError


@dataclass(frozen=True)
class Cost:
    """Seconds of work in one process, and bytes on the disk."""

    seconds: float = 0.0
    bytes: int = 0

    def less(self, other: Cost) -> Cost:
        """What is left of it where the other was spent; never below nothing."""
        return Cost(max(0.0, self.seconds - other.seconds), max(0, self.bytes - other.bytes))


def spent(run: Path) -> Cost:
    """What a run has cost so far: its epochs and the rows of its audits, and what it takes on the disk."""
    seconds = 0.0
    try:
        if (run / "manifest.json").exists():
            seconds += sum(line["seconds"] for line in RunDirectory.open(run).records("timing.jsonl"))
            seconds += sum(row.seconds for ledger in ledgers(run / "audits") for row in ledger.rows())
    except AttncemError:  # a damaged file is told where the run is used
        return Cost(0.0, size_of(run))
    return Cost(seconds, size_of(run))


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder."""
    sizes = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                sizes += os.lstat(os.path.join(root, name)).st_size  # noqa: PTH118 - many files
            except FileNotFoundError:  # a running campaign replaces files
                continue
    return sizes


class Forecast:
    """What is still to come of a campaign, from its cells that are done: of the same arm, else of all."""

    def __init__(self) -> None:
        self._done: dict[str, list[Cost]] = {}

    @classmethod
    def of(cls, views: Sequence[CellView]) -> Forecast:
        """From the cells of a folder."""
        made = cls()
        for view in views:
            if view.state == "done":
                made.learn(view.cell.arm, spent(view.path))
        return made

    def learn(self, arm: str, cost: Cost) -> None:
        """A cell of this arm is done, and cost so much."""
        self._done.setdefault(arm, []).append(cost)

    @property
    def basis(self) -> int:
        """How many cells it knows of."""
        return sum(map(len, self._done.values()))

    def cell(self, arm: str) -> Cost | None:
        """What a cell of this arm costs; None until one is done."""
        known = self._done.get(arm) or [cost for costs in self._done.values() for cost in costs]
        if not known:
            return None
        return Cost(fmean(cost.seconds for cost in known), round(fmean(cost.bytes for cost in known)))

    def left(self, views: Sequence[CellView]) -> Cost | None:
        """What the cells will cost that are neither done nor given up; None until one is done."""
        open_cells = [view for view in views if view.state not in ("done", "failed")]
        if open_cells and not self.basis:
            return None
        lefts = [(self.cell(view.cell.arm) or Cost()).less(spent(view.path)) for view in open_cells]
        return Cost(sum(left.seconds for left in lefts), sum(left.bytes for left in lefts))
