"""The headline table for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attncem.base.texts import text
from attncem.base.texts.titles import row_title
from attncem.records.audit import AuditResult
from attncem.records.metrics import METRICS
from attncem.records.study.suites import joined_suites, with_other_suites
from attncem.reporting import answers, on_device, sending, wording
from attncem.reporting.places import place_of
from attncem.reporting.runs import leaks, protection, units
from attncem.reporting.runs import repeated_releases as asking
from attncem.reporting.runs.health import best_accuracy
from attncem.reporting.runs.methods import name_audits
from attncem.reporting.runs.tables import HEADLINE, other_numbers, summary_table

_NAME_WIDTH = 17
"""Width of the longest floor's name; longer names wrap in a narrow terminal."""


def print_summary(audits: Sequence[AuditResult], console: Console, *, brief: bool = False) -> None:
    """Print one row per audit, then the floors, then sentences about each audit; suites of one run are joined.

    ``brief``: without the numbers of single probes and certificates.
    """
    audits = joined_suites(audits)
    labels, best = _labels(audits), best_accuracy(audits)
    console.print(_table(summary_table(audits, labels), len(audits)))
    for audit, label in zip(audits, labels, strict=True):
        for line in filter(
            None, (protection.summary(audit, label, best), *_lines(audit, label, brief=brief), *_alone(audit, label))
        ):
            console.print(line, markup=False, highlight=False)


def _lines(audit: AuditResult, label: str, *, brief: bool) -> Iterator[str]:
    """State, answers, the error in familiar units, the gain from repeated releases, and unless brief the probes."""
    if said := sending.describe([audit]):
        yield text("terminal.sending", run=label, said=said)
    yield text("terminal.state", run=label, said=answers.describe(audit.judgement))
    for answer in answers.lines(audit):
        yield text("terminal.answer", run=label, said=answer)
    if audit.strongest:
        mse = audit.strongest_attack.mse.mean
        if said := units.describe(audit.plan.units, mse):
            yield text("terminal.units", run=label, mse=wording.decimal(mse), said=said)
    if said := asking.describe(audit):
        yield text("terminal.asking", run=label, said=said)
    yield text("leak.terminal", run=label, said=leaks.describe([audit], place_of(audit, local=True)))
    for row in () if brief else audit.rows:
        if numbers := other_numbers(row):
            yield text("terminal.judged", run=label, row=row_title(row.name), said="; ".join(numbers))


def _alone(audit: AuditResult, label: str) -> Iterator[str]:
    """What the client alone could do, and a warning where the server is not worth it; nothing without a run."""
    alone = on_device.of_audits([audit], local=True)
    if alone is not None:
        yield text("terminal.alone", run=label, said=alone.sentence)
        for item in alone.findings:
            yield text("command.warning", run=label, said=item.text)


def others_said(audit: AuditResult) -> str:
    """The strongest attack of the run's other suites under the same conditions, if it is stronger; otherwise empty."""
    whole = with_other_suites(audit)
    if not whole.strongest or whole.folder_of(whole.strongest) == audit.folder:
        return ""
    suites = ", ".join(f"{plan.suite} v{plan.suite_version}" for plan in whole.plans)
    row = whole.strongest_attack
    values = {"attack": row_title(row.name), "mse": wording.decimal(row.mse.mean), "suites": suites}
    return text("terminal.others", run=audit.subject.run, **values)


def _table(rows: Sequence[dict[str, Any]], num_runs: int) -> Table:
    """Numbers keep their width; names and attacks wrap, so that the table fits in 80 columns."""
    title = text("terminal.summary", directions=", ".join(_direction(name) for name in HEADLINE))
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(text("terminal.run"), overflow="fold", min_width=_NAME_WIDTH)
    table.add_column(text("terminal.accuracy"), justify="right", no_wrap=True)
    table.add_column(text("terminal.attack"), overflow="fold")
    for heading in (*map(_heading, HEADLINE), text("terminal.training")):
        table.add_column(heading, justify="right", no_wrap=True)
    for number, row in enumerate(rows):
        if number == num_runs:
            table.add_section()
        table.add_row(*map(Text, _cells(row)), style="dim" if row["kind"] == "floor" else "")
    return table


def _labels(audits: Sequence[AuditResult]) -> list[str]:
    """The runs' names, with the suite, threat model, seed or options where audits differ in them."""
    told = {(audit.plan.suite, audit.plan.suite_version, audit.plan.threat.name) for audit in audits}
    longer, shorter = name_audits(audits)
    marks = longer if len(told) > 1 else shorter
    return [
        f"{audit.subject.run} ({mark})" if mark else audit.subject.run
        for audit, mark in zip(audits, marks, strict=True)
    ]


def _direction(name: str) -> str:
    return text(f"terminal.{METRICS[name].private}", measure=text(f"measure.{name}"))


def _heading(name: str) -> str:
    return "\n".join(filter(None, (text(f"measure.{name}"), METRICS[name].unit)))


def _cells(row: dict[str, Any]) -> list[str]:
    numbers = [wording.decimal(row[name], METRICS[name].decimals) for name in HEADLINE]
    if row["kind"] == "floor":
        return [text("terminal.floor", name=row["shown"]), "", "", *numbers, ""]
    accuracy, seconds = wording.percent(row["accuracy"], unit=""), wording.decimal(row["training_seconds"], 1)
    return [row["run"], accuracy, _attack(row), *numbers, seconds]


def _attack(row: dict[str, Any]) -> str:
    if row["attack"] is None:
        failed = row["failed"]
        return text("terminal.no_result_failed", count=failed) if failed else text("terminal.no_result")
    attack = row_title(row["attack"])
    state = row["state"]
    return attack if state == "reliable" else text("terminal.in_state", attack=attack, state=answers.state_word(state))
