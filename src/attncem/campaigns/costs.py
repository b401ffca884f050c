"""Costs of cells: measured on finished cells, and predicted from them for the others."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from attncem.base.types import AttncemError
from attncem.config.options.run import RunConfig
from attncem.records.campaign_folder import CellView
from attncem.records.ledger import ledgers
from attncem.records.runs import RunDirectory

_CHECKPOINTS = 3
"""Largest number of checkpoints of a run: the two newest, and the best."""


@dataclass(frozen=True)
class Cost:
    """Seconds of work in one process, and bytes on the disk."""

    seconds: float = 0.0
    bytes: int = 0

    def less(self, other: Cost) -> Cost:
        """The rest after the other cost is subtracted; never below 0."""
        return Cost(max(0.0, self.seconds - other.seconds), max(0, self.bytes - other.bytes))


def spent(run: Path) -> Cost:
    """The cost of a run so far: the time of its epochs and audit rows, and its size on the disk."""
    seconds = 0.0
    try:
        if (run / "manifest.json").exists():
            seconds += sum(line["seconds"] for line in RunDirectory.open(run).records("timing.jsonl"))
            seconds += sum(row.seconds for ledger in ledgers(run / "audits") for row in ledger.rows())
    except AttncemError:  # a damaged file is reported where the run is used
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


def checkpoint_bytes(configs: Iterable[RunConfig]) -> int | None:
    """Total size of the runs' checkpoints, from the sizes of their networks; None where one is unknown.

    A run keeps at most three, each with the weights and as many numbers of the optimiser.
    """
    known: dict[tuple[str, str], int] = {}
    total = 0
    for config in configs:
        key = (config.model.model_dump_json(), config.data.model_dump_json())
        try:
            total += known[key] if key in known else known.setdefault(key, _CHECKPOINTS * 2 * _weight_bytes(config))
        except (AttncemError, KeyError):  # the error is reported when the run starts; a plugin may not be loaded
            return None
    return total


def _weight_bytes(config: RunConfig) -> int:
    import torch

    from attncem.data.readers import dataset_spec
    from attncem.models.networks import only_ours
    from attncem.training.build import build_model

    ours = only_ours(config.model)  # networks of other libraries may need real weights to be split
    with torch.device("meta" if ours else "cpu"):
        model = build_model(config, dataset_spec(config.data))
    return sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())


class Forecast:
    """Predicted costs of a campaign, from its finished cells: those of the same arm, otherwise all."""

    def __init__(self) -> None:
        self._done: dict[str, list[Cost]] = {}

    @classmethod
    def of(cls, views: Sequence[CellView], events: Iterable[Mapping[str, Any]] = ()) -> Forecast:
        """A forecast from the cells of a folder and its log, which may hold the total time of a cell."""
        done = (line for line in events if line.get("event") == "done")
        took = {line.get("cell"): float(line.get("seconds") or 0.0) for line in done}
        made = cls()
        for view in views:
            if view.state == "done":
                cost = spent(view.path)
                made.learn(view.cell.arm, replace(cost, seconds=max(cost.seconds, took.get(view.cell.id, 0.0))))
        return made

    def learn(self, arm: str, cost: Cost) -> None:
        """Add the cost of a finished cell of this arm."""
        self._done.setdefault(arm, []).append(cost)

    @property
    def basis(self) -> int:
        """Number of cells behind the forecast."""
        return sum(map(len, self._done.values()))

    @property
    def seconds(self) -> float:
        """Total time of these cells, in one process."""
        return sum(cost.seconds for costs in self._done.values() for cost in costs)

    def cell(self, arm: str) -> Cost | None:
        """Mean cost of a cell of this arm; None until one is done."""
        known = self._known(arm)
        if not known:
            return None
        return Cost(fmean(cost.seconds for cost in known), round(fmean(cost.bytes for cost in known)))

    def quickest(self, arm: str) -> Cost:
        """Cost of the fastest cell of this arm; zero until one is done."""
        return min(self._known(arm), key=lambda cost: cost.seconds, default=Cost())

    def _known(self, arm: str) -> list[Cost]:
        return self._done.get(arm) or [cost for costs in self._done.values() for cost in costs]

    def left(self, views: Sequence[CellView]) -> Cost | None:
        """The remaining cost of cells that are neither done nor failed; None until one is done."""
        open_cells = [view for view in views if view.state not in ("done", "failed")]
        if open_cells and not self.basis:
            return None
        lefts = [(self.cell(view.cell.arm) or Cost()).less(spent(view.path)) for view in open_cells]
        return Cost(sum(left.seconds for left in lefts), sum(left.bytes for left in lefts))
