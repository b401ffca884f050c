"""run_demo(): the packaged campaign `demo`: four split models, and one report that is renewed after each audit."""

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


@dataclass(frozen=True)
class Demo:
    """Results of the demo: run folders, their audits, the report."""

    runs: list[Path]
    audits: list[AuditResult]
    report: Path


def run_demo(
    out: str | Path | None = None,
    overrides: Sequence[str] = (),
    *,
    suite: str | Suite = "quick",
    workers: int | None = None,
    progress: Progress | None = None,
) -> Demo:
    """Train and audit the demo's models in parallel processes, one thread each.

    The report is written after the first audit and renewed after each other one.
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
    asked = CampaignAudit(suite=suite if isinstance(suite, str) else plain(suite))
    with shown(progress) as told:
        names, data = ", ".join(config.name for config in configs), configs[0].data.name
        called = suite if isinstance(suite, str) else suite.name
        tell(told, text("command.start.demo", names=names, data=data, suite=called, workers=count, folder=folder))
        audits = _work(configs, folder, asked, count, told)
    runs = [folder / config.name for config in configs]
    return Demo(runs, audits, folder / "report.html")


def _work(
    configs: Sequence[RunConfig], folder: Path, asked: CampaignAudit, workers: int, progress: Progress
) -> list[AuditResult]:
    """Train every model; audit each as soon as it is trained and a worker is free, and renew the report."""
    runs = {config.name: folder / config.name for config in configs}
    audits: dict[str, AuditResult] = {}
    with Workers(workers, progress, "the demo") as pool:
        pending = {
            pool.submit(train_run, config, runs[config.name], tells=True): ("train", config.name) for config in configs
        }
        while pending:
            progress(written("stage.demo"), len(audits), len(configs), {LEFT: math.nan})
            done, _ = wait(pending, return_when=FIRST_COMPLETED)
            before = len(audits)
            for future in done:
                (stage, name), result = pending.pop(future), future.result()
                if stage == "train":
                    pending[pool.submit(audit_run, result, asked, tells=True)] = ("audit", name)
                else:
                    audits[name] = result
            if len(audits) > before:
                _report([runs[name] for name in runs if name in audits], folder, progress, first=before == 0)
    return [audits[config.name] for config in configs]


def _report(runs: Sequence[Path], folder: Path, progress: Progress, *, first: bool) -> None:
    """Write the report of the runs that are audited, and say once where it is."""
    from attncem.reporting import report

    page = report(runs, folder / "report.html")
    if first:
        tell(progress, text("command.demo.first", path=page.resolve()))
