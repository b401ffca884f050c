"""The command that repeats an audit."""

from __future__ import annotations

import shlex
from pathlib import Path

from attncem.base.texts import Sentence, written
from attncem.config.threats import ThreatModel
from attncem.records.audit import AuditPlan


def audit_options(plan: AuditPlan) -> list[str]:
    """The options and overrides of `attncem audit` that ask for this audit; a user's own suite has only its name."""
    options = ["--suite", plan.suite, "--threat", plan.threat.base, *_adversary(plan.threat)]
    options += ["--on", plan.evaluation] if plan.evaluation != "test" else []
    options += ["--reference", plan.reference.split()[0]] if plan.reference else []
    options += ["--seed", str(plan.seed)] if plan.seed != plan.subject.seed else []
    files = dict.fromkeys(use.file for use in plan.plugins)
    return [*options, *plan.changed, *(word for file in files for word in ("--plugin", file))]


def _adversary(threat: ThreatModel) -> list[str]:
    """The options that change a packaged adversary; pictures from elsewhere have the name of their folder only."""
    options = ["--attacker-data", threat.pictures.name] if threat.pictures else []
    options += [] if threat.images is None else ["--attacker-images", str(threat.images)]
    options += [] if threat.queries is None else ["--queries", str(threat.queries)]
    options += ["--sees-answers"] if threat.sees_answers else []
    return options + (["--releases", str(threat.releases_per_input)] if threat.is_raised else [])


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
