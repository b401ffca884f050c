"""Committed results by campaign, and the configuration behind every arm."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from attncem.base.types import RunError
from attncem.campaigns.choosing import error_of
from attncem.campaigns.expansion import expand
from attncem.campaigns.results import read_results
from attncem.config.options.campaigns import load_campaign
from attncem.config.options.run import RunConfig
from attncem.records.campaign_folder import PlannedCell
from attncem.records.campaign_table import CampaignTable, CellAudit
from attncem.records.study import ACCURACY, Arm
from attncem.records.study.results import study_of_results

T = TypeVar("T")


@dataclass(frozen=True)
class Setting(Arm[CellAudit]):
    """An arm of a packaged campaign at one point of its grid."""

    campaign: str = ""

    @property
    def config(self) -> RunConfig:
        """Its configuration, from the packaged campaign."""
        return _configs(self.campaign)[self.name, repr(self.point)]

    @property
    def weight(self) -> float:
        """The penalty weight λ."""
        return self.config.training.penalty_weight

    @property
    def error(self) -> float:
        """The mean error that the selection rule compares."""
        return error_of({name: self.mean(name) for name in ("mse", "structure")})

    @property
    def rows(self) -> list[str]:
        """The attacks and floors that every seed has."""
        seeds = [audit.attacks or {} for audit in self.audits()]
        return [row for row in seeds[0] if all(row in attacks for attacks in seeds)]


@dataclass(frozen=True)
class Source:
    """A folder of result files at one moment; the file of a campaign is NAME.json with underscores."""

    folder: Path
    made: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What is computed from the files once, by its name."""

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What a function makes, made at the first call."""
        if name not in self.made:
            self.made[name] = make()
        made: T = self.made[name]
        return made

    def table(self, campaign: str) -> CampaignTable | None:
        """The results of a campaign; None if not measured yet."""
        file = self.folder / f"{stem(campaign)}.json"
        return _read(file, file.read_bytes()) if file.is_file() else None

    def arms(self, campaign: str, *, balanced: bool = False) -> list[Setting]:
        """The arms of a campaign at their points; empty if not measured yet."""
        table = self.table(campaign)
        return settings(table, balanced=balanced) if table else []

    def curves(self, campaign: str, like: RunConfig, *, balanced: bool = False) -> list[list[Setting]]:
        """Every setting of a campaign with these data, network and channel that was measured at two or more weights.

        Weights with a collapsed run are left out.
        """
        if not any(_place(config) == _place(like) for config in _configs(campaign).values()):
            return []
        curves: dict[str, list[Setting]] = {}
        for arm in self.arms(campaign, balanced=balanced):
            if not arm.collapsed and _place(arm.config) == _place(like):
                curves.setdefault(_but_for_the_weight(arm.config), []).append(arm)
        return [curve for curve in curves.values() if len({arm.weight for arm in curve}) > 1]


@lru_cache(maxsize=64)
def _read(file: Path, content: bytes) -> CampaignTable:
    """The results of a file with this content."""
    return read_results(file)


def settings(table: CampaignTable, *, balanced: bool = False) -> list[Setting]:
    """The arms of a result file that release something; RunError if a run has no attack or no accuracy."""
    released = [arm for arm in study_of_results(table, balanced=balanced).arms if not arm.on_device]
    for cell in (cell for arm in released for cell in arm.cells):
        for measure, needed in (("mse", "attack with a result"), (ACCURACY, "accuracy")):
            if cell.score(measure) is None:
                raise RunError(f"{cell.id} has no {needed}")
    return [Setting(**vars(arm), campaign=table.campaign) for arm in released]


def stem(campaign: str) -> str:
    """The name of a campaign's result file without its suffix."""
    return campaign.replace("-", "_")


def arms_by_cell(campaign: str) -> dict[str, str]:
    """The arm of every cell of a packaged campaign, by the cell's name."""
    return {one.cell.id: one.cell.arm for one in planned_cells(campaign)}


@cache
def _configs(campaign: str) -> dict[tuple[str, str], RunConfig]:
    return {(one.cell.arm, repr(one.cell.point)): one.config for one in planned_cells(campaign)}


@cache
def planned_cells(campaign: str) -> list[PlannedCell]:
    """The cells of a packaged campaign, in its order."""
    return expand(load_campaign(campaign))


def _place(config: RunConfig) -> tuple[object, ...]:
    """Data, network and channel, for which one slope holds."""
    return config.data, config.model.name, config.channel


def _but_for_the_weight(config: RunConfig) -> str:
    """All options of a setting except the weight, as text."""
    data = config.model_dump(mode="json", exclude={"name", "seed"})
    del data["training"]["penalty_weight"]
    return json.dumps(data, sort_keys=True)
