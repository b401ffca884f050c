"""run_demo(): the packaged campaign `demo`: split models, what their client could do alone, and one report.

The report is renewed whenever a model is audited.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass
from pathlib import Path

from attncem.base.courses import LEFT
from attncem.base.progress import Progress, shown, tell
from attncem.base.texts import text, written
from attncem.base.types import ConfigError, RunError
from attncem.base.working import Workers
from attncem.campaigns.cell import audit_run, train_run
from attncem.config.loading.flat import plain
from attncem.config.loading.load import load_config
from attncem.config.options.campaigns import CampaignAudit, load_campaign
from attncem.config.options.run import RunConfig
from attncem.config.options.suites import Suite
from attncem.records.audit import AuditResult
from attncem.records.runs import free_path

SUITES = ("quick", "certificates")
"""Suites of the demo: the attacks, and what no attack can exceed."""


@dataclass(frozen=True)
class Demo:
    """Results of the demo: run folders, their audits, the report, and the run of the client alone, if any."""

    runs: list[Path]
    audits: list[AuditResult]
    report: Path
    alone: Path | None = None


def run_demo(
    out: str | Path | None = None,
    overrides: Sequence[str] = (),
    *,
    suites: Sequence[str | Suite] = SUITES,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Demo:
    """Train and audit the demo's models in parallel processes, one thread each, and train their client alone.

    The report is written after the first model is audited and renewed after each other one.
    """
    folder = Path(out) if out is not None else free_path("runs", "demo")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder} already exists and was not changed; choose another --out")
    if workers is not None and workers < 1:
        raise ConfigError(f"workers={workers}: at least 1 process is needed")
    arms = load_campaign("demo").arms.values()
    configs = [load_config(arm.config or "demo-none", overrides).config for arm in arms]
    if len({config.name for config in configs}) < len(configs):
        raise ConfigError("name cannot be set for the demo: its runs need names of their own")
    count = workers or min(len(configs), os.cpu_count() or 1)
    asked = [CampaignAudit(suite=suite if isinstance(suite, str) else plain(suite)) for suite in suites]
    with shown(progress) as told:
        names, data = ", ".join(config.name for config in configs), configs[0].data.name
        called = " + ".join(suite if isinstance(suite, str) else suite.name for suite in suites)
        tell(told, text("command.start.demo", names=names, data=data, suite=called, workers=count, folder=folder))
        return _work(configs, folder, asked, count, told)


def _work(
    configs: Sequence[RunConfig], folder: Path, asked: Sequence[CampaignAudit], workers: int, progress: Progress
) -> Demo:
    """Train every model and the client alone; audit each model as soon as a worker is free, and renew the report."""
    runs = {config.name: folder / config.name for config in configs}
    audits: dict[str, list[AuditResult]] = {}
    alone: list[Path] = []
    with Workers(workers, progress, "the demo") as pool:
        pending = {
            pool.submit(train_run, config, runs[config.name], tells=True): ("train", config.name) for config in configs
        }
        pending[pool.submit(train_alone, configs[0], folder, tells=True)] = ("alone", "")
        while pending:
            progress(written("stage.demo"), len(audits), len(configs), {LEFT: math.nan})
            done, _ = wait(pending, return_when=FIRST_COMPLETED)
            first, renewed = not audits, False
            for future in done:
                (stage, name), result = pending.pop(future), future.result()
                if stage == "train":
                    pending[pool.submit(audit_by, result, asked, tells=True)] = ("audit", name)
                elif stage == "alone":
                    alone, renewed = result, True
                else:
                    audits[name], renewed = result, True
            if audits and renewed:
                _report([*(runs[name] for name in runs if name in audits), *alone], folder, progress, first=first)
    made = [audit for name in runs for audit in audits[name]]
    return Demo([*runs.values()], made, folder / "report.html", alone[0] if alone else None)


def train_alone(config: RunConfig, folder: Path, progress: Progress) -> list[Path]:
    """Train what the client of this configuration could do alone; nothing, with a note, where no network fits it."""
    from attncem.training.train import train

    try:
        return [train(config, out=folder, on_device=True, progress=progress).path]
    except ConfigError as error:  # the configuration itself is valid: its budget is too small
        tell(progress, text("command.note", said=error))
        return []


def audit_by(run: Path, asked: Sequence[CampaignAudit], progress: Progress) -> list[AuditResult]:
    """Audit a run by every suite."""
    return [audit_run(run, each, progress) for each in asked]


def _report(runs: Sequence[Path], folder: Path, progress: Progress, *, first: bool) -> None:
    """Write the report of the runs that are audited, and say once where it is."""
    from attncem.reporting import report

    page = report(runs, folder / "report.html")
    if first:
        tell(progress, text("command.demo.first", path=page.resolve()))
