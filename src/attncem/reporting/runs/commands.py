"""The commands that reproduce a page: the training and the audits of each run, and the report."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attncem.base.texts import text
from attncem.config.loading.load import packaged_folder, packaged_names
from attncem.config.options.suites import Suite
from attncem.config.threats import THREATS
from attncem.records.audit import AuditPlan, AuditResult
from attncem.records.study.runs import JudgedRun


def run_commands(run: JudgedRun) -> list[str]:
    """Commands that repeat a run and its audits in a new folder next to the old one.

    Empty for audits without their run.
    """
    if run.config is None:
        return []
    again = f"{run.path.name}-again"
    trained = _line(
        "train", "--config", f"{run.path.name}/config.yaml", "--out", again, *_plugins(run.manifest.get("plugins", ()))
    )
    return [trained, *(_audit(audit, run, again) for audit in run.results)]


def own_names(runs: Sequence[JudgedRun]) -> str:
    """A note on the user's own suites and threat models, of which audits store only the name; empty without any."""
    plans = [audit.plan for run in runs if run.config is not None for audit in run.results]
    named = dict.fromkeys(name for plan in plans for name in (plan.suite, _threat(plan)[0]))
    packaged = {*packaged_names(packaged_folder(Suite)), *THREATS}
    users = [name for name in named if name not in packaged]
    return text("report.commands.own", names=", ".join(users)) if users else ""


def report_command(paths: Sequence[Path], out: Path, *, csv: bool) -> str:
    """The command that writes the page from these folders."""
    return _line("report", *map(str, paths), "--out", str(out), *(["--csv"] if csv else []))


def _audit(audit: AuditResult, run: JudgedRun, again: str) -> str:
    plan = audit.plan
    threat, releases = _threat(plan)
    words = ["audit", again, "--suite", plan.suite, "--threat", threat]
    words += ["--releases", releases] if releases else []
    words += ["--reference", plan.reference.split()[0]] if plan.reference else []
    words += ["--seed", str(plan.seed)] if plan.seed != run.settings.seed else []
    return _line(*words, *plan.changed, *_plugins([use.to_dict() for use in plan.plugins]))


def _plugins(recorded: Sequence[Mapping[str, Any]]) -> list[str]:
    """The plugin files by name, as arguments."""
    return [word for file in dict.fromkeys(str(use["file"]) for use in recorded) for word in ("--plugin", file)]


def _threat(plan: AuditPlan) -> tuple[str, str]:
    """The threat model's name, and the number of releases if it was raised; otherwise empty."""
    name, _, releases = plan.threat.name.rpartition("-x")
    return (name, releases) if name and releases.isdecimal() else (plan.threat.name, "")


def _line(*words: str) -> str:
    return shlex.join(["attncem", *words])
