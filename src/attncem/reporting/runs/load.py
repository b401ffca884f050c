"""Run folders → what a report shows: the run's own files, its audits, and which audits are left out.

An audit's folder, or a folder of audits, is shown without a run: so is that of a foreign encoder.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from attncem.base.texts import text
from attncem.base.types import RunError
from attncem.config.loading.yaml_text import dump_yaml
from attncem.config.options.run import RunConfig
from attncem.config.threats import THREATS
from attncem.records.audit import AuditPlan, AuditResult
from attncem.records.ledger import PLAN, Ledger, joined, ledgers, old_audits
from attncem.records.listing import client_mark, list_runs
from attncem.records.runs import RunDirectory

Record = Mapping[str, Any]

SHORT = 12
"""Letters of a fingerprint that are shown."""
_OLD_NAME = re.compile(rf"(?P<suite>.+?)-(?P<threat>{'|'.join(THREATS)})(?P<on>-validation)?(-\d+)?")


@dataclass(frozen=True)
class RunView:
    """One run folder as the report sees it. ``left_out`` names audits that are not shown, each with the reason.

    ``config`` is None, and there is no manifest, where audits are shown alone.
    """

    path: Path
    label: str
    config: RunConfig | None
    config_text: str
    manifest: Record
    metrics: Sequence[Record] = ()
    audits: Sequence[AuditResult] = ()
    left_out: list[str] = field(default_factory=list)

    @property
    def settings(self) -> RunConfig:
        """The run's configuration; RunError where audits are shown alone."""
        if self.config is None:
            raise RunError(f"{self.path} holds audits without their run: only runs can be compared")
        return self.config

    @property
    def defence(self) -> str:
        """What defends, in a few words, as the configuration has it, or else the audit."""
        return self.audits[0].subject.surrogate if self.config is None else self.config.defence

    @property
    def train(self) -> list[Record]:
        """The records of training steps, in order."""
        return [record for record in self.metrics if record.get("kind") == "train"]

    @property
    def validation(self) -> list[Record]:
        """The records of validation epochs, in order."""
        return [record for record in self.metrics if record.get("kind") == "validation"]


@dataclass(frozen=True)
class Entry:
    """One audit with the run it belongs to; ``color`` is the place of the run, or of its method, in the palette.

    ``label`` tells it from all other audits, ``name`` from those of the same suite and threat model.
    """

    run: RunView
    audit: AuditResult
    label: str
    color: int
    name: str = ""


def load_runs(paths: Sequence[Path]) -> list[RunView]:
    """Read the run folders and give each a label of its own."""
    if not paths:
        raise RunError("a report needs at least one run folder")
    runs = [run for path in paths for run in _views(path)]
    counts = Counter(run.label for run in runs)
    runs = [replace(run, label=f"{run.label} ({run.path.name})") if counts[run.label] > 1 else run for run in runs]
    seen: Counter[str] = Counter()
    unique = []
    for run in runs:
        seen[run.label] += 1
        unique.append(replace(run, label=f"{run.label} #{seen[run.label]}") if seen[run.label] > 1 else run)
    return unique


def _views(path: Path) -> list[RunView]:
    """The run in a folder, the runs in it and its sub-folders, or what the audits in it are about, each by itself."""
    if (path / "manifest.json").exists():
        return [load_run(path)]
    if runs := list_runs(path):
        return [load_run(run.path) for run in runs]
    found = [Ledger.open(path)] if (path / PLAN).is_file() else ledgers(path)
    if not found:
        return [load_run(path)]  # which says what is missing
    subjects: dict[str, list[Ledger]] = {}
    for ledger in found:
        subjects.setdefault(ledger.plan.subject.fingerprint, []).append(ledger)
    return [_audits_alone(path.resolve(), group) for group in subjects.values()]


def _audits_alone(path: Path, group: Sequence[Ledger]) -> RunView:
    """Audits of one client without its run: the newest of each kind."""
    newest: dict[tuple[object, ...], AuditResult] = {}
    for ledger in group:
        newest[_kind(ledger.plan), ledger.plan.evaluation] = joined(ledger.path)
    subject = group[-1].plan.subject
    known = {"encoder": subject.encoder or subject.architecture, "channel": subject.channel, "data": subject.dataset}
    return RunView(path, subject.run, None, dump_yaml(known), {}, audits=list(newest.values()))


def _kind(plan: AuditPlan) -> tuple[object, ...]:
    """What audits must share for the newer one to replace the older."""
    return plan.suite, plan.threat.name, plan.seed, tuple(plan.changed)


def load_run(path: Path) -> RunView:
    """Read one run folder; RunError names what is missing or damaged."""
    directory = RunDirectory.open(path.resolve())
    config_text, manifest = directory.config_yaml, directory.manifest
    config = directory.config
    metrics = directory.records()
    audits, left_out = _audits(directory, config)
    label = str(manifest.get("name") or config.name)
    return RunView(directory.path, label, config, config_text, manifest, metrics, audits, left_out)


# audits


def _audits(directory: RunDirectory, config: RunConfig) -> tuple[list[AuditResult], list[str]]:
    """The newest audit of each kind on test images and these weights, and what is left out, by name."""
    root, mark = directory.path / "audits", client_mark(directory)
    newest: dict[tuple[object, ...], AuditResult] = {}
    left_out = []
    for ledger in ledgers(root):
        plan = ledger.plan
        if plan.evaluation != "test":
            continue
        if plan.subject.fingerprint != mark:
            left_out.append(_other(plan, ledger.path.name, config.name))
            continue
        key = _kind(plan)
        if key not in newest or plan.suite_version >= newest[key].plan.suite_version:
            newest[key] = joined(ledger.path)
    anew = {(plan.suite, plan.threat.name) for plan in (audit.plan for audit in newest.values())}
    old = [said for file in old_audits(root) if (said := _old(file, directory.path.name, anew))]
    return list(newest.values()), [*left_out, *old]


def _other(plan: AuditPlan, name: str, run: str) -> str:
    """Why an audit of another client is left out."""
    subject = plan.subject
    weights, mark = subject.weights or text("report.left_out.foreign"), subject.fingerprint[:SHORT]
    if subject.run == run:
        return text("report.left_out.weights", audit=name, weights=weights, fingerprint=mark)
    return text("report.left_out.run", audit=name, run=subject.run, weights=weights, fingerprint=mark)


def _old(file: Path, run: str, anew: Set[tuple[str, str]]) -> str:
    """How an audit of attncem 0.1 is made anew, by the words of its name; empty where it was, or is no result."""
    named = _OLD_NAME.fullmatch(file.stem)
    if named and (named["on"] or (named["suite"], named["threat"]) in anew):
        return ""
    options = f" --suite {named['suite']} --threat {named['threat']}" if named else ""
    return text("report.left_out.old", file=file.name, run=run, options=options)


def entries(runs: Sequence[RunView], colors: Mapping[str, int] | None = None) -> list[Entry]:
    """All audits of all runs, in order, each with a label of its own; ``colors``: by the runs' labels."""
    found = []
    for place, run in enumerate(runs):
        color = place if colors is None else colors[run.label]
        for audit, longer, shorter in zip(run.audits, *name_audits(run.audits), strict=True):
            label = f"{run.label} · {longer}" if longer else run.label
            found.append(Entry(run, audit, label, color, f"{run.label} · {shorter}" if shorter else run.label))
    return found


def name_audits(audits: Sequence[AuditResult]) -> tuple[list[str], list[str]]:
    """What tells each audit from the others, with suite and threat model and without; empty for an only one."""
    plans = [audit.plan for audit in audits]
    seeds = len({plan.seed for plan in plans}) > 1
    changes = len({tuple(plan.changed) for plan in plans}) > 1
    marks = [
        [*([text("report.seed", seed=plan.seed)] if seeds else []), *(plan.changed if changes else [])]
        for plan in plans
    ]
    if len(plans) == 1:
        return [""], [""]
    longer = [" · ".join([plan.suite, plan.threat.name, *mark]) for plan, mark in zip(plans, marks, strict=True)]
    return longer, [" · ".join(mark) for mark in marks]
