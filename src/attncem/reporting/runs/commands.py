"""The commands that reproduce a page: the training and the audits of each run, and the report."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attncem.base.shown_paths import shown_path
from attncem.base.texts import text
from attncem.config.loading.load import packaged_folder, packaged_names
from attncem.config.options.suites import Suite
from attncem.config.threats import THREATS
from attncem.records.repeating import audit_options
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
    return [trained, *(_line("audit", again, *audit_options(audit.plan)) for audit in run.results)]


def own_names(runs: Sequence[JudgedRun]) -> str:
    """A note on the user's own suites and threat models, of which audits store only the name; empty without any."""
    plans = [audit.plan for run in runs if run.config is not None for audit in run.results]
    named = dict.fromkeys(name for plan in plans for name in (plan.suite, plan.threat.base))
    packaged = {*packaged_names(packaged_folder(Suite)), *THREATS}
    users = [name for name in named if name not in packaged]
    return text("report.commands.own", names=", ".join(users)) if users else ""


def report_command(paths: Sequence[Path], out: Path, *, csv: bool) -> str:
    """The command that writes the page from these folders."""
    return _line("report", *map(shown_path, paths), "--out", shown_path(out), *(["--csv"] if csv else []))


def _plugins(recorded: Sequence[Mapping[str, Any]]) -> list[str]:
    """The plugin files by name, as arguments."""
    return [word for file in dict.fromkeys(str(use["file"]) for use in recorded) for word in ("--plugin", file)]


def _line(*words: str) -> str:
    return shlex.join(["attncem", *words])
