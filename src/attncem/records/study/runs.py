"""Run folders as cells: the run's files, its audits, and the audits that are left out.

A folder of one or several audits can come without a run, for example for a foreign encoder.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import replace
from pathlib import Path

from attncem.base.texts import text
from attncem.base.types import RunError
from attncem.config.loading.yaml_text import dump_yaml
from attncem.config.threats import THREATS
from attncem.records.audit import AuditPlan, AuditResult
from attncem.records.ledger import PLAN, Ledger, joined, ledgers, old_audits
from attncem.records.listing import client_mark, list_runs
from attncem.records.on_device import left_behind, read_choice
from attncem.records.runs import RunDirectory
from attncem.records.study.arms import Cell, RunFacts
from attncem.records.study.keys import AuditKind, newest

JudgedRun = Cell[AuditResult]
SHORT = 12
"""Letters of a fingerprint in texts for people."""
_OLD_NAME = re.compile(rf"(?P<suite>.+?)-(?P<threat>{'|'.join(THREATS)})(?P<on>-validation)?(-\d+)?")


def load_runs(paths: Sequence[Path]) -> list[JudgedRun]:
    """Read the run folders and give each a unique label."""
    if not paths:
        raise RunError("a report needs at least one run folder")
    cells = [cell for path in paths for cell in _cells(path)]
    counts = Counter(cell.label for cell in cells)
    cells = [_labelled(cell, f"{cell.label} ({cell.path.name})") if counts[cell.label] > 1 else cell for cell in cells]
    seen: Counter[str] = Counter()
    unique = []
    for cell in cells:
        label = cell.label
        seen[label] += 1
        unique.append(_labelled(cell, f"{label} #{seen[label]}") if seen[label] > 1 else cell)
    return unique


def _labelled(cell: JudgedRun, label: str) -> JudgedRun:
    return replace(cell, id=label, run=replace(cell.run, label=label))


def _cells(path: Path) -> list[JudgedRun]:
    """The run in a folder, the runs in it and its sub-folders, or one cell for each subject of the audits in it.

    Of the candidates for the client alone only the chosen one is taken.
    """
    if (path / "manifest.json").exists():
        return [load_run(path)]
    if runs := list_runs(path):
        losers = left_behind(runs)
        return [load_run(run.path) for run in runs if run.path not in losers]
    audits = [Ledger.open(path)] if (path / PLAN).is_file() else ledgers(path)
    if not audits:
        return [load_run(path)]  # raises an error that names the missing file
    subjects: dict[str, list[Ledger]] = {}
    for ledger in audits:
        subjects.setdefault(ledger.plan.subject.fingerprint, []).append(ledger)
    return [_audits_alone(path.resolve(), group) for group in subjects.values()]


def _audits_alone(path: Path, group: Sequence[Ledger]) -> JudgedRun:
    """Audits of one client without its run."""
    subject = group[-1].plan.subject
    facts = {"encoder": subject.encoder or subject.architecture, "channel": subject.channel, "data": subject.dataset}
    run = RunFacts(path, subject.run, config_text=dump_yaml(facts))
    return Cell(subject.run, subject.seed, _joined(group), run)


def _joined(group: Sequence[Ledger]) -> dict[AuditKind, AuditResult]:
    kept = newest(group, lambda ledger: ledger.plan)
    return {kind: joined(ledger.path) for kind, ledger in kept.items()}


def load_run(path: Path) -> JudgedRun:
    """Read one run folder; RunError names the missing or damaged file."""
    directory = RunDirectory.open(path.resolve())
    manifest, config = directory.manifest, directory.config
    audits, left_out = _audits(directory, config.name)
    label = str(manifest.get("name") or config.name)
    text_of_config, metrics = directory.config_yaml, directory.records()
    run = RunFacts(directory.path, label, manifest, config, text_of_config, metrics, left_out)
    choice = read_choice(directory) if config.on_device else None
    return Cell(label, config.seed, audits, run, on_device=config.on_device, alone=choice.scores if choice else {})


def _audits(directory: RunDirectory, name: str) -> tuple[dict[AuditKind, AuditResult], list[str]]:
    """The newest audits on test images with these weights, and the names of those left out."""
    root, mark = directory.path / "audits", client_mark(directory)
    tested = [ledger for ledger in ledgers(root) if ledger.plan.evaluation == "test"]
    others = [ledger for ledger in tested if ledger.plan.subject.fingerprint != mark]
    audits = _joined([ledger for ledger in tested if ledger not in others])
    made = {(kind.suite, kind.threat.name) for kind in audits}
    old = [words for file in old_audits(root) if (words := _old(file, directory.path.name, made))]
    return audits, [*(_other(ledger.plan, ledger.path.name, name) for ledger in others), *old]


def _other(plan: AuditPlan, name: str, run: str) -> str:
    """Why an audit of another client is left out."""
    subject = plan.subject
    weights, mark = subject.weights or text("report.left_out.foreign"), subject.fingerprint[:SHORT]
    if subject.run == run:
        return text("report.left_out.weights", audit=name, weights=weights, fingerprint=mark)
    return text("report.left_out.run", audit=name, run=subject.run, weights=weights, fingerprint=mark)


def _old(file: Path, run: str, made: Set[tuple[str, str]]) -> str:
    """How to repeat an audit of attncem 0.1, from its file name; empty where it was repeated or is not a result."""
    named = _OLD_NAME.fullmatch(file.stem)
    if named and (named["on"] or (named["suite"], named["threat"]) in made):
        return ""
    options = f" --suite {named['suite']} --threat {named['threat']}" if named else ""
    return text("report.left_out.old", file=file.name, run=run, options=options)
