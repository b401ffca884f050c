"""The command that repeats an audit."""

from __future__ import annotations

import shlex
from pathlib import Path

from attncem.base.texts import Sentence, written
from attncem.records.audit import AuditPlan


def audit_options(plan: AuditPlan) -> list[str]:
    """The options and overrides of `attncem audit` that ask for this audit; a user's own suite has only its name."""
    threat, releases = threat_of(plan)
    options = ["--suite", plan.suite, "--threat", threat]
    options += ["--releases", releases] if releases else []
    options += ["--on", plan.evaluation] if plan.evaluation != "test" else []
    options += ["--reference", plan.reference.split()[0]] if plan.reference else []
    options += ["--seed", str(plan.seed)] if plan.seed != plan.subject.seed else []
    files = dict.fromkeys(use.file for use in plan.plugins)
    return [*options, *plan.changed, *(word for file in files for word in ("--plugin", file))]


def threat_of(plan: AuditPlan) -> tuple[str, str]:
    """The threat model's name, and the number of releases if it was raised; otherwise empty."""
    name, _, releases = plan.threat.name.rpartition("-x")
    return (name, releases) if name and releases.isdecimal() else (plan.threat.name, "")


def repeat_command(plan: AuditPlan, folder: Path) -> str:
    """The command that repeats what is missing or damaged in an audit's folder; without a run, words that say so."""
    place = folder.resolve().parent
    if plan.subject.foreign or place.name != "audits":
        return written("audit.same_command")
    weights = ["--weights", plan.subject.weights]
    return shlex.join(["attncem", "audit", place.parent.name, *weights, *audit_options(plan)])


def damaged(file: str, plan: AuditPlan, folder: Path) -> Sentence:
    """Why a row is damaged, and how to repeat it."""
    return written("audit.damaged", file=file, command=repeat_command(plan, folder))
