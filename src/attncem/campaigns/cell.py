"""work(): everything that one cell of a campaign still lacks, in the process that calls it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from attncem.base.progress import Progress
from attncem.base.types import RunError
from attncem.campaigns.equal_time import with_equal_time
from attncem.config.options.campaigns import CampaignAudit
from attncem.config.options.run import RunConfig
from attncem.records.audit import AuditResult
from attncem.records.campaign import Cell
from attncem.records.campaign_folder import CampaignFolder
from attncem.records.checkpoints import checkpoint_names


def work(folder: Path, cell_id: str, progress: Progress) -> None:
    """Train a cell's run or go on with it, make the audits and the portrait that it lacks.

    Nothing that is finished is made again. What goes wrong is written down as the cell's failure and raised.
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
    """Train a run in this folder, or go on with the one that is there; a finished one is left as it is."""
    from attncem.training.train import train

    if (run / "manifest.json").exists():
        return train(resume=run, progress=progress).path
    return train(config, out=run, progress=progress).path


def audit_run(run: Path, asked: CampaignAudit, progress: Progress, *, reference: Path | None = None) -> AuditResult:
    """Make an audit of a run, or what it lacks of its rows."""
    from attncem.judging.auditing import audit

    return audit(
        run,
        asked.suite,
        asked.set,
        threat=asked.threat,
        releases=asked.releases,
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
        config = with_equal_time(campaign, cell, config, progress)
    train_run(config, run, progress)


def _audit(campaign: CampaignFolder, cell: Cell, progress: Progress) -> None:
    """Every audit that is missing; one that fails does not keep the others from being made."""
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
    """The run that probes take as undefended; the reference itself has none."""
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
