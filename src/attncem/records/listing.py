"""Lists of runs: the runs in a folder, each described in one line. Never imports torch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from attncem.base.types import RunError
from attncem.records.audit import AuditResult
from attncem.records.checkpoints import read_facts
from attncem.records.fingerprints import fingerprint, release_of
from attncem.records.ledger import count_audits, ledgers
from attncem.records.on_device import read_choice
from attncem.records.run_files import DECISION, LEFT_BEHIND
from attncem.records.runs import RunDirectory
from attncem.records.study.keys import AuditKey, newest
from attncem.records.study.suites import join_suites

_DEEPEST = 4
"""Largest depth of runs below a folder: `./campaigns/NAME/runs/CELL` is included."""
_PARTS = ("config.yaml", "checkpoints")
"""A run has one of these next to its manifest, even when damaged; other programs have manifests too."""
DAMAGED = (RunError, OSError, LookupError, TypeError, ValueError)
"""Exceptions from reading the files of a run."""
UNKNOWN = "?"
ON_DEVICE = "on device"
"""In the place of the surrogate of a run that releases nothing."""


class RunLine(NamedTuple):
    """A run as a line of a table. Empty: not available yet; "?": unknown.

    ``accuracy`` is that of the newest audit of the run's best weights on test images, and ``mse`` the error of the
    strongest attack of all its suites; without such an audit it is the last validation accuracy, and ``audited`` is
    false.
    """

    run: str
    status: str
    surrogate: str = ""
    weight: str = ""
    epoch: str = ""
    accuracy: str = ""
    mse: str = ""
    audits: str = ""
    audited: bool = False


# locations


def list_runs(folder: str | Path) -> list[RunDirectory]:
    """The runs in a folder and its sub-folders, by path; the folder itself where it is a run.

    The search skips the inside of runs, hidden folders, and places that links lead to twice.
    """
    root = Path(folder)
    return [RunDirectory(path) for path in _search(root, _DEEPEST, set())] if root.is_dir() else []


def _search(folder: Path, levels: int, seen: set[Path]) -> Iterator[Path]:
    place = folder.resolve()
    if place in seen:
        return
    seen.add(place)
    if _may_be_run(folder):
        yield folder
    elif levels:
        for below in _folders(folder, required=levels == _DEEPEST):
            yield from _search(below, levels - 1, seen)


def _may_be_run(path: Path) -> bool:
    try:
        return (path / "manifest.json").is_file() and any((path / name).exists() for name in _PARTS)
    except OSError:  # a folder of another user
        return True


def _folders(folder: Path, *, required: bool) -> list[Path]:
    """The folders directly inside one; an unreadable folder counts as empty, unless it is `required`."""
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(entry) for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except OSError:
        if required:
            raise
        return []


# descriptions


def describe_runs(folder: str | Path) -> list[RunLine]:
    """One line for each run, with its path relative to the folder. Nothing is written."""
    return [_line(run, name_in(folder, run)) for run in list_runs(folder)]


def name_in(folder: str | Path, run: RunDirectory) -> str:
    """The name of a run in the list of a folder: its path relative to the folder."""
    return run.path.resolve().name if run.path == Path(folder) else str(run.path.relative_to(folder))


def _line(run: RunDirectory, name: str) -> RunLine:
    try:
        return _describe(run, name)
    except DAMAGED as error:
        unreadable = PermissionError in (type(error), type(error.__cause__))
        return RunLine(name, "unreadable" if unreadable else "damaged")


def _describe(run: RunDirectory, name: str) -> RunLine:
    manifest, config = run.manifest, run.config
    status = _status(run, str(manifest["status"]))
    last = next((r for r in reversed(run.records()) if r.get("kind") == "validation"), None)
    lost = status != "running" and bool(run.log_problems())
    epoch = last["epoch"] if last else 0
    line = RunLine(
        name,
        status,
        ON_DEVICE if config.on_device else config.surrogate.name,
        "" if config.on_device else f"{config.training.penalty_weight:g}",
        f"{UNKNOWN if lost else epoch}/{config.training.epochs}",
        UNKNOWN if lost else f"{100 * last['accuracy']:.1f}" if last else "",
        audits="" if config.on_device else count_audits(run.path / "audits"),
    )
    if config.on_device:
        choice = read_choice(run)
        known = None if choice is None else choice.accuracy
        return line if known is None else line._replace(accuracy=f"{100 * known.mean:.1f}", audited=True)
    return line if line.audits == "0" else _with_audit(line, run)


def _status(run: RunDirectory, said: str) -> str:
    """The manifest's status; a run marked as running that no process holds was killed."""
    return {True: said, False: "interrupted", None: "unknown"}[run.held] if said == "running" else said


def _with_audit(line: RunLine, run: RunDirectory) -> RunLine:
    """The line with the results of the newest audit; an unreadable audit leaves the other columns as they are."""
    try:
        audit = newest_audit(run)
    except DAMAGED:
        return line._replace(mse=UNKNOWN)
    if audit is None:
        return line
    mse = f"{audit.strongest_attack.mse.mean:.4f}" if audit.strongest else ""
    if audit.accuracy is None:
        return line._replace(mse=mse)
    return line._replace(mse=mse, accuracy=f"{100 * audit.accuracy.mean:.1f}", audited=True)


def newest_audit(run: RunDirectory) -> AuditResult | None:
    """The newest audit on test images of the run's current weights, joined with its other suites."""
    mark = client_mark(run)
    found = [
        ledger
        for ledger in ledgers(run.path / "audits")
        if ledger.plan.evaluation == "test" and ledger.plan.subject.fingerprint == mark
    ]
    if not found:
        return None
    key = AuditKey.of(found[-1].plan)
    alike = newest((ledger for ledger in found if AuditKey.of(ledger.plan) == key), lambda ledger: ledger.plan)
    return join_suites([ledger.result() for ledger in alike.values()])


def client_mark(run: RunDirectory) -> str | None:
    """The fingerprint of a run's best client, which identifies its audits; None where it has none yet."""
    there = bool(run.checkpoints())
    encoder = run.encoder_sha256("best") if there else run.manifest.get(LEFT_BEHIND)
    release = decision_of(run) if there else run.manifest.get(DECISION)
    config = run.config
    return fingerprint(encoder, config.channel_options, config.front_end_options, release) if encoder else None


def decision_of(run: RunDirectory) -> dict[str, Any]:
    """What decides whether a run's best client sends an image; empty: it sends every image."""
    return release_of(read_facts(run.path / "checkpoints" / run.checkpoint_name("best")))
