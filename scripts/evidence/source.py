"""Committed results by the campaign that made them, and the configuration behind every arm."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from attncem.campaigns.claims import Arm, Curve, arms_of
from attncem.campaigns.expansion import expand
from attncem.campaigns.results import read_results
from attncem.config.options.campaigns import load_campaign
from attncem.config.options.run import RunConfig
from attncem.records.campaign_folder import PlannedCell
from attncem.records.campaign_table import CampaignTable


@dataclass(frozen=True)
class Source:
    """A folder of result files; a campaign's is NAME.json with underscores."""

    folder: Path

    def table(self, campaign: str) -> CampaignTable | None:
        """The results of a campaign; None if not measured yet."""
        file = self.folder / f"{stem(campaign)}.json"
        return read_results(file) if file.is_file() else None

    def curves(self, campaign: str, like: RunConfig, *, balanced: bool = False) -> list[Curve]:
        """Every setting of a campaign with these data, network and channel that was measured at two weights or more.

        Weights at which a run collapsed are left out.
        """
        there = any(_place(config) == _place(like) for config in _configs(campaign).values())
        table = self.table(campaign) if there else None
        settings: dict[str, list[tuple[float, Arm]]] = {}
        for arm in [] if table is None else arms_of(table, balanced=balanced):
            config = config_of(campaign, arm)
            if not arm.collapsed and _place(config) == _place(like):
                settings.setdefault(_but_for_the_weight(config), []).append((weight_of(campaign, arm), arm))
        return [curve for curve in settings.values() if len({weight for weight, _ in curve}) > 1]


def stem(campaign: str) -> str:
    """The name of a campaign's result file without its suffix."""
    return campaign.replace("-", "_")


def link(campaign: str) -> str:
    """A link from docs/ to a campaign's result file."""
    return f"[`results/{stem(campaign)}.json`](../results/{stem(campaign)}.json)"


def not_measured(campaign: str) -> str:
    """The line shown while a campaign has no results."""
    return f"not measured yet: `attncem campaign run {campaign}`"


def config_of(campaign: str, arm: Arm) -> RunConfig:
    """The configuration of an arm at its point, from the packaged campaign."""
    return _configs(campaign)[arm.name, repr(arm.point)]


def weight_of(campaign: str, arm: Arm) -> float:
    """The penalty weight λ of an arm at its point."""
    return config_of(campaign, arm).training.penalty_weight


def arms_by_cell(campaign: str) -> dict[str, str]:
    """The arm of every cell of a packaged campaign, by the cell's name."""
    return {one.cell.id: one.cell.arm for one in _cells(campaign)}


@cache
def _configs(campaign: str) -> dict[tuple[str, str], RunConfig]:
    return {(one.cell.arm, repr(one.cell.point)): one.config for one in _cells(campaign)}


@cache
def _cells(campaign: str) -> list[PlannedCell]:
    return expand(load_campaign(campaign))


def _place(config: RunConfig) -> tuple[object, ...]:
    """Data, network and channel: a slope holds for these."""
    return config.data, config.model.name, config.channel


def _but_for_the_weight(config: RunConfig) -> str:
    """All options of a setting but the weight, as text."""
    data = config.model_dump(mode="json", exclude={"name", "seed"})
    del data["training"]["penalty_weight"]
    return json.dumps(data, sort_keys=True)
