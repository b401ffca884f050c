"""Asking again: what several releases of one image tell, as a table, a sentence and the points of a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attncem.base.texts import joined, text
from attncem.base.texts.titles import row_title
from attncem.records.audit import AuditResult, Row
from attncem.records.averaging import Averaging
from attncem.reporting import wording
from attncem.reporting.runs.methods import Entry


@dataclass(frozen=True)
class Answer:
    """One row of the table; ``averaging`` is None for the row that the others are compared with."""

    row: Row
    averaging: Averaging | None = None


@dataclass(frozen=True)
class Series:
    """One attack that asks again: ``still`` with images that stay the same, ``moved`` with pixels that move."""

    base: str
    still: list[Row]
    moved: list[Row]


@dataclass(frozen=True)
class Block:
    """One audit."""

    entry: Entry
    sentence: str
    answers: list[Answer]


def blocks(entries: Sequence[Entry]) -> list[Block]:
    """The audits in which something asks again."""
    return [Block(entry, describe(entry.audit), answers(entry.audit)) for entry in entries if entry.audit.averaging]


def answers(audit: AuditResult) -> list[Answer]:
    """Every attack that asks again, below what it finds when it asks as often as the threat model says."""
    made = []
    for base in _bases(audit):
        made.append(Answer(audit.row(base)))
        made += [Answer(audit.row(item.row), item) for item in audit.averaging if item.base == base]
    return made


def series(audit: AuditResult) -> list[Series]:
    """The same as points over the number of releases."""
    jitter, made = audit.plan.threat.jitter, []
    for base in _bases(audit):
        rows = [audit.row(item.row) for item in audit.averaging if item.base == base]
        still = sorted([audit.row(base), *(row for row in rows if row.jitter == jitter)], key=lambda row: row.releases)
        made.append(Series(base, still, [row for row in rows if row.jitter != jitter]))
    return made


def _bases(audit: AuditResult) -> list[str]:
    return list(dict.fromkeys(item.base for item in audit.averaging))


def describe(audit: AuditResult) -> str:
    """Whether asking again helps, of the same image and of one that moves; empty where nothing asks again."""
    jitter = audit.plan.threat.jitter
    still = [item for item in audit.averaging if item.jitter == jitter]
    moved = [item for item in audit.averaging if item.jitter != jitter]
    said = [_of_still(still)] if still else []
    return joined([*said, *([_of_moved(moved)] if moved else [])])


def _of_still(still: Sequence[Averaging]) -> str:
    best = max(still, key=lambda item: item.gain)
    if best.helps:
        return text("report.asking.helps", releases=best.releases, gain=taken_off(best), base=row_title(best.base))
    most = max(still, key=lambda item: item.releases)
    return text("report.asking.flat", releases=most.releases, gain=taken_off(most), base=row_title(most.base))


def _of_moved(moved: Sequence[Averaging]) -> str:
    best = max(moved, key=lambda item: item.gain)
    values = {"releases": best.releases, "jitter": best.jitter, "gain": taken_off(best), "base": row_title(best.base)}
    return text("report.asking.moved", **values) if best.helps else text("report.asking.moved_flat", **values)


def taken_off(item: Averaging) -> str:
    """The part of the error that is taken off, with its interval; negative: it is larger."""
    mean, low, high = (wording.percent(value, unit="") for value in (item.gain, item.low, item.high))
    return text("report.asking.gain", mean=mean, low=low, high=high)
