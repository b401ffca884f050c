"""Equal training time: the epochs of a cell are scaled once, so that it trains as long as another arm's run did."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from attncem.base.progress import Progress, silent, tell
from attncem.base.texts import text
from attncem.base.types import RunError
from attncem.config.loading.load import load_config
from attncem.config.options.run import RunConfig
from attncem.records.campaign import Cell, EqualTime
from attncem.records.campaign_folder import CampaignFolder
from attncem.records.runs import RunDirectory

_TRIAL = 3
"""Epochs of a trial; the first, in which everything is loaded and compiled, is not counted."""


def with_equal_time(campaign: CampaignFolder, cell: Cell, config: RunConfig, progress: Progress) -> RunConfig:
    """The configuration with its epochs scaled to the time of the campaign's `equal_time_to`, where it names an arm.

    The factor is measured for the first seed and kept, so that all seeds of an arm and point train as many epochs.
    """
    arm = campaign.campaign.equal_time_to
    if arm is None or arm == cell.arm:
        return config
    finished, first = campaign.finished(cell.id), campaign.plan.first_of(cell)
    scaled = finished.equal_time or campaign.finished(first.id).equal_time
    if scaled is None:
        scaled = _scale(campaign, cell, config, arm)
        tell(progress, text("campaign.scaled", cell=cell.id, arm=arm, factor=scaled.factor, epochs=scaled.epochs))
    if finished.equal_time is None:
        campaign.write_finished(cell.id, replace(finished, equal_time=scaled))
    return load_config(config, {"training.epochs": scaled.epochs}).config


def _scale(campaign: CampaignFolder, cell: Cell, config: RunConfig, arm: str) -> EqualTime:
    partner = campaign.plan.partner(cell, arm)
    if partner is None:
        raise RunError(f"equal_time_to={arm}: no single run of this arm matches {cell.id}")
    run = RunDirectory.open(campaign.run_path(partner.id))
    if not run.is_finished:
        raise RunError(f"equal_time_to={arm}: {partner.id} is not trained yet")
    seconds = float(run.manifest["training_seconds"])
    each = seconds_an_epoch(config)
    epochs = max(1, round(seconds / each))
    return EqualTime(arm, seconds, each, epochs / config.training.epochs, epochs)


def seconds_an_epoch(config: RunConfig) -> float:
    """Measured in a short trial, whose run is not kept."""
    from attncem.training.train import train

    with tempfile.TemporaryDirectory(prefix="attncem-trial-") as folder:
        run = train(trial(config), out=Path(folder) / "trial", progress=silent)
        return float(median(line["seconds"] for line in run.records("timing.jsonl")[1:]))


def trial(config: RunConfig) -> RunConfig:
    """A short form of a run, with every penalty at work from its first step."""
    changes: dict[str, Any] = {"training.epochs": _TRIAL, "training.warmup_epochs": 0, "model.pruning": None}
    changes |= {f"penalties.{place}.warmup_epochs": 0 for place in range(len(config.penalties))}
    return load_config(config, changes).config
