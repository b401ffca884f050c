"""The numbers of the leak in a comparison of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from attncem.base.texts import text
from attncem.records.audit import AuditResult
from attncem.records.leaks import LEAKS, LIMIT
from attncem.records.run_comparison import ComparedRun, Quantity
from attncem.records.study import AuditKind
from attncem.records.study.runs import JudgedRun
from attncem.reporting.places import run_place
from attncem.reporting.runs import leaks
from attncem.reporting.table_formats import counts_said

LEAK = "leak."
"""How the keys of the leak's numbers begin."""


def kind_of(views: Mapping[str, JudgedRun], audits: Mapping[str, AuditResult]) -> AuditKind | None:
    """The kind of the compared audits; None where there are none."""
    pairs = ((kind, audit) for label in audits for kind, audit in views[label].audits.items())
    return next((kind for kind, audit in pairs if audit in audits.values()), None)


def leak_quantities(views: Mapping[str, JudgedRun], kind: AuditKind | None) -> list[Quantity]:
    """The numbers of the leak that all runs have which release anything, under the compared audits' adversary."""
    if kind is None:
        return []
    released = [run for run in views.values() if not run.on_device]
    names = [name for name in LEAKS if all(run.leak(name, kind) for run in released)]
    return [Quantity(f"{LEAK}{name}", _title(name, released, kind), name) for name in names]


def _title(name: str, runs: Sequence[JudgedRun], kind: AuditKind) -> str:
    """The title of a number, with its releases or candidates."""
    leaks_of_runs = [leak for run in runs if (leak := run.leak(name, kind)) is not None]
    counts = " ".join(counts_said(name, leaks_of_runs))
    title = text(f"measure.{name}")
    return text("leak.in_unit", title=title, unit=counts) if counts else title


def unmeasured(views: Mapping[str, JudgedRun], kind: AuditKind | None) -> tuple[list[str], str]:
    """Runs without a limit on the leak that an audit could give, and the command for the first of them."""
    if kind is None:
        return [], ""
    without = [run for run in views.values() if not run.on_device and run.leak(LIMIT, kind) is None]
    lacking = [run for run in without if leaks.may_have(run.alike(kind), LIMIT)]
    if not lacking:
        return [], ""
    command = leaks.command([lacking[0].audits[kind]], run_place(lacking[0].path), LEAKS[LIMIT].suite)
    return [run.label for run in lacking], command


def hedged(compared: ComparedRun, run: JudgedRun, kind: AuditKind | None) -> ComparedRun:
    """The run with the keys of those numbers of the leak that are vacuous, or at their ceiling."""
    leaks_by_key = {key: run.leak(key.removeprefix(LEAK), kind) for key in compared.numbers if key.startswith(LEAK)}
    vacuous = [key for key, leak in leaks_by_key.items() if leak is not None and leak.vacuous]
    at_ceiling = [key for key, leak in leaks_by_key.items() if leak is not None and leak.at_ceiling]
    return replace(compared, vacuous=vacuous, at_ceiling=at_ceiling)
