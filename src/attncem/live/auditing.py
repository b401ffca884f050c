"""Which audit a page shows, and which of its attacks at each stop, the strongest first."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attncem.base.types import RunError
from attncem.deploy.describing import audits_of
from attncem.judging.attacks import ATTACKS
from attncem.judging.attacks.base import Attack
from attncem.judging.opening import OpenRun
from attncem.records.audit import AuditResult, Row
from attncem.records.ledger import Ledger, read_audit
from attncem.records.remaining import remaining
from attncem.records.repeating import audit_options
from attncem.records.study.suites import joined_suites

_ROWS = {1: "decoder small", 16: "decoder global x16", 256: "decoder global x256"}
"""A row of the suite `standard` that audits each stop."""


@dataclass(frozen=True)
class Candidate:
    """An audited attack whose learned state was kept, and the audit's folder."""

    row: Row
    ledger: Ledger
    name: str
    """The name of the row in that folder, which may differ in the join."""


def audit_of(opened: OpenRun, folders: Sequence[str | Path] = ()) -> AuditResult | None:
    """The audit of this model that a page shows, on its test images; None: there is none.

    ``folders`` are audits to choose from; RunError where one is of another model.
    """
    audits = joined_suites(_read(opened, folder) for folder in folders) if folders else audits_of(opened)
    usable = [it for it in audits if it.strongest and it.plan.evaluation == "test" and _is_plain(it)]
    if folders and not usable:
        raise RunError(
            "--audit: a page shows audits on the test images, without --jitter and --attacker-data, with an attack "
            "that has a result"
        )
    return min(usable, key=lambda it: (it.plan.threat.name != "train", -len(it.attacks)), default=None)


def _read(opened: OpenRun, folder: str | Path) -> AuditResult:
    audit = read_audit(Path(folder))
    if audit.subject.fingerprint != opened.fingerprint:
        raise RunError(f"--audit {folder}: it judged another model, or another checkpoint, than {opened.name}")
    return audit


def _is_plain(audit: AuditResult) -> bool:
    """Whether the page can repeat what the adversary sees: unchanged pixels, and images of the run's data."""
    return audit.plan.threat.jitter == 0 and audit.plan.threat.pictures is None


def candidates(audit: AuditResult, releases: int) -> list[Candidate]:
    """The attacks with this many releases whose state was kept, the strongest first."""
    kept = []
    for row in _ranked(audit, releases):
        folder, name = _place(audit, row.name)
        ledger = Ledger.open(Path(folder))
        if ledger.state_file(name) is not None:
            kept.append(Candidate(row, ledger, name))
    return kept


def _place(audit: AuditResult, row: str) -> tuple[str, str]:
    """The folder of the audit that made a row, and the row's name there."""
    part = next((part for part in audit.parts if row in part.rows), None)
    return (audit.folder, row) if part is None else (part.folder, part.rows[row])


def strongest_row(audit: AuditResult, releases: int) -> Row | None:
    """The strongest audited attack with this many releases; None where no attack has a result."""
    return next(iter(_ranked(audit, releases)), None)


def strongest_network(audit: AuditResult, releases: int) -> Row | None:
    """The strongest one that is a network, whether its state was kept or not; None: no page can run any of them."""
    return next((row for row in _ranked(audit, releases) if _is_network(row)), None)


def _is_network(row: Row) -> bool:
    kind = ATTACKS.get(row.method)
    return kind is not None and kind.network is not Attack.network


def _ranked(audit: AuditResult, releases: int) -> list[Row]:
    """The attacks with this many releases, the strongest first."""
    rows = [row for row in audit.attacks if row.kind == "attack" and row.sight == (releases, 0)]
    return sorted(rows, key=lambda row: row.mse.mean)


def floor_of(audit: AuditResult, row: Row) -> Row | None:
    """The best blind guess of the audit; None where it has none."""
    floors = {it.name: it.mse.mean for it in audit.attacks if it.kind == "floor"}
    best = remaining("mse", row.mse.mean, floors)
    return None if best is None else audit.row(best.floor)


def again_command(run: str, audit: AuditResult, row: str) -> str:
    """The command that repeats the audit of a row in a new folder, whole: it replaces the old one on every page."""
    plan = next((part.plan for part in audit.parts if row in part.rows), audit.plan)
    return shlex.join(["attncem", "audit", run, *audit_options(plan), "--fresh"])


def audit_command(run: str, releases: int) -> str:
    """The command that audits a stop."""
    return shlex.join(["attncem", "audit", run, "--suite", "standard", "--only", _ROWS[releases]])
