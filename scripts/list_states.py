#!/usr/bin/env python3
"""List the states of the audits in all committed result files, before and after the three states were introduced.

    python scripts/list_states.py        prints the table of docs/audit.md

Newer files keep the state. Those of older versions keep neither how many images were judged nor the gain of a doubling:
all of them judged 200 images or more; a row that had not converged counts only where it is the strongest, as before.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from attncem.campaigns.results import read_results
from attncem.config.options.suites import load_suite
from attncem.config.threats import THREATS
from attncem.judging.attacks import ATTACKS
from attncem.records.audit import AuditResult, Row, Verdict
from attncem.records.campaign_table import AskedAudit, CellAudit, CellResult
from attncem.records.judge import LEAST_OWNED, judge
from attncem.records.judgement import State
from attncem.records.score import Score

RESULTS = Path(__file__).resolve().parent.parent / "results"
STATES: tuple[State, ...] = ("reliable", "not_reliable", "not_enough")
_JUDGED = 200
"""A number of judged images that every committed audit reaches."""


def table() -> str:
    """A line for each result file: audits by state before, and now."""
    lines = [
        "| file | audits | before: converged, not | now: reliable, not reliable, not enough to tell |",
        "|---|--:|--:|--:|",
    ]
    for file in sorted(RESULTS.glob("*.json")):
        if '"cells": [' in file.read_text(encoding="utf-8"):
            lines.append(_line(file))
    return "\n".join(lines) + "\n"


def _line(file: Path) -> str:
    content = read_results(file)
    judged = [
        (audit, audit.judged or judge(_audit(cell, asked, audit)).state)
        for cell in content.cells
        for asked, audit in zip(content.audits, cell.audits, strict=False)
        if audit.strongest
    ]
    converged = sum(bool(_strongest(audit).get("reliable", True)) for audit, _ in judged)
    now = Counter(state for _, state in judged)
    states = ", ".join(str(now[state]) for state in STATES)
    return f"| `{file.stem}` | {len(judged)} | {converged}, {len(judged) - converged} | {states} |"


def _strongest(audit: CellAudit) -> dict[str, Any]:
    assert audit.attacks is not None and audit.strongest is not None
    return audit.attacks[audit.strongest]


def _audit(cell: CellResult, asked: AskedAudit, audit: CellAudit) -> AuditResult:
    """The audit as far as the file keeps it; the methods of its rows come from the suite."""
    assert audit.attacks is not None and audit.strongest is not None
    suite = load_suite("full" if asked.suite is None else asked.suite.partition(" ")[0]).suite
    methods = {**{name: row.name for name, row in load_suite("full").suite.rows.items()}}
    methods |= {name: row.name for name, row in suite.rows.items()}
    rows = [_row(name, methods.get(name, name), scores, audit.strongest) for name, scores in audit.attacks.items()]
    threat = THREATS[asked.threat or "train"]
    plan = SimpleNamespace(num_auxiliary=cell.training_images or LEAST_OWNED, threat=threat)
    return AuditResult(cast(Any, plan), rows, audit.strongest, [])


def _row(name: str, method: str, scores: dict[str, Any], strongest: str) -> Row:
    attack = ATTACKS.get(method)
    kind = "floor" if attack is not None and attack.sees != "release" else "attack"
    found = {
        measure: Score(values[0], values[1 % len(values)], values[2 % len(values)], values[0], values[0])
        for measure, values in scores.items()
        if isinstance(values, list)
    }
    verdict = Verdict(bool(scores.get("reliable", True)) or name != strongest)
    must_beat = [] if attack is None else list(attack.must_beat)
    return Row(
        name,
        method,
        cast(Any, kind),
        "ok",
        "",
        {},
        0,
        _releases(name),
        num_images=_JUDGED,
        scores=found,
        verdict=verdict,
        must_beat=must_beat,
    )


def _releases(name: str) -> int:
    """Releases by the row's name, such as `ridge x16`."""
    numbers = [word[1:] for word in name.split() if word.startswith("x") and word[1:].isdecimal()]
    return int(numbers[0]) if numbers else 1


if __name__ == "__main__":
    sys.stdout.write(table())
