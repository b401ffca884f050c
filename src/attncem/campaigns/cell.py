"""work(): do everything that one cell of a campaign still lacks, in the calling process.

With `equal_time_to` the epochs of a cell are scaled once, so that it trains as long as another arm's run did.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from attncem.base.progress import Progress, silent, tell
from attncem.base.texts import text
from attncem.base.types import RunError
from attncem.campaigns.alone import choose_alone
from attncem.config.loading.load import load_config
from attncem.config.options.campaigns import CampaignAudit
from attncem.config.options.run import RunConfig
from attncem.records.audit import AuditResult
from attncem.records.campaign import Cell, EqualTime
from attncem.records.campaign_folder import CampaignFolder
from attncem.records.checkpoints import checkpoint_names
from attncem.records.runs import RunDirectory

_TRIAL = 3
"""Epochs of a trial; the first one, which includes loading and compilation, is not counted."""


def work(folder: Path, cell_id: str, progress: Progress) -> None:
    """Train or resume a cell's run, then make its missing audits and portrait.

    Finished parts are never repeated. An error is recorded as the cell's failure and raised.
    """
    campaign = CampaignFolder.open(folder)
    cell = campaign.cell(cell_id)
    stages: dict[str, Callable[[], object]] = {
        "train": lambda: _train(campaign, cell, progress),
        "audit": lambda: _audit(campaign, cell, progress),
        "portray": lambda: _portray(campaign, cell),
    }
    with campaign.held_cell(cell_id):
        for stage, do in stages.items():
            try:
                do()
            except Exception as error:
                campaign.fail(cell_id, stage, error)
                raise
        campaign.forgive(cell_id)


def train_run(config: RunConfig, run: Path, progress: Progress) -> Path:
    """Train a run in this folder, or resume the existing one; a finished run is left unchanged."""
    from attncem.training.train import train

    if (run / "manifest.json").exists():
        return train(resume=run, progress=progress).path
    return train(config, out=run, progress=progress).path


def audit_run(run: Path, asked: CampaignAudit, progress: Progress, *, reference: Path | None = None) -> AuditResult:
    """Make an audit of a run, or its missing rows."""
    from attncem.judging.auditing import audit

    return audit(
        run,
        asked.suite,
        asked.set,
        threat=asked.threat,
        releases=asked.releases,
        attacker_data=asked.attacker_data,
        attacker_images=asked.attacker_images,
        queries=asked.queries,
        sees_answers=asked.sees_answers,
        on=asked.on,
        weights=asked.weights,
        only=asked.only,
        skip=asked.skip,
        reference=reference,
        progress=progress,
    )


def _train(campaign: CampaignFolder, cell: Cell, progress: Progress) -> None:
    run = campaign.run_path(cell.id)
    config = campaign.config(cell.id)
    if not (run / "manifest.json").exists():
        config = _with_equal_time(campaign, cell, config, progress)
    train_run(config, run, progress)


def _audit(campaign: CampaignFolder, cell: Cell, progress: Progress) -> None:
    """Make every missing audit; a failed one does not stop the others. The client alone is chosen instead."""
    if cell.budget is not None:
        choose_alone(campaign, cell)
        return
    missing, problems = campaign.missing_audits(cell.id), list[str]()
    run = campaign.run_path(cell.id)
    if missing and not checkpoint_names(run / "checkpoints"):
        raise RunError(f"{run} has no weights: only its results were imported; audit it where it was trained")
    for asked in campaign.campaign.audits:
        if asked.key in missing:
            result = audit_run(run, asked, progress, reference=_reference(campaign, cell, asked))
            failed = [f"{row.name}: {row.reason}" for row in result.rows if row.outcome == "failed"]
            problems += failed
            if not failed:
                finished = campaign.finished(cell.id)
                named = {**finished.audits, asked.key: Path(result.folder).name}
                campaign.write_finished(cell.id, replace(finished, audits=named))
    if problems:
        raise RunError("; ".join(problems))


def _reference(campaign: CampaignFolder, cell: Cell, asked: CampaignAudit) -> Path | None:
    """The run that probes take as undefended; None for the reference itself."""
    if asked.reference is None or asked.reference == cell.arm:
        return None
    partner = campaign.plan.partner(cell, asked.reference)
    if partner is None:
        raise RunError(f"reference={asked.reference}: no single run of this arm matches {cell.id}")
    return campaign.run_path(partner.id)


def _portray(campaign: CampaignFolder, cell: Cell) -> None:
    from attncem.reporting.explain.portraits import portray

    if campaign.lacks_portrait(cell):
        portray(campaign.run_path(cell.id))


# equal training time


def _with_equal_time(campaign: CampaignFolder, cell: Cell, config: RunConfig, progress: Progress) -> RunConfig:
    """The configuration with its epochs scaled to the training time of the arm in `equal_time_to`, if it is set.

    The factor is measured for the first seed and kept, so that all seeds of an arm and point train for the same epochs.
    """
    arm = campaign.campaign.equal_time_to
    if arm is None or arm == cell.arm or cell.budget is not None:
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
    """Seconds per epoch, measured in a short trial whose run is not kept."""
    from attncem.training.train import train

    with tempfile.TemporaryDirectory(prefix="attncem-trial-") as folder:
        run = train(trial(config), out=Path(folder) / "trial", progress=silent)
        return float(median(line["seconds"] for line in run.records("timing.jsonl")[1:]))


def trial(config: RunConfig) -> RunConfig:
    """A short version of a run, with every penalty active from its first step."""
    changes: dict[str, Any] = {"training.epochs": _TRIAL, "training.warmup_epochs": 0, "model.pruning": None}
    changes |= {f"penalties.{place}.warmup_epochs": 0 for place in range(len(config.penalties))}
    return load_config(config, changes).config
