"""Repeated releases: the gain from several releases of one image, as a table, a sentence and the points of a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from attncem.base.texts import joined, text
from attncem.base.texts.titles import row_title
from attncem.records.audit import AuditResult, Row
from attncem.records.averaging import Averaging
from attncem.reporting import wording
from attncem.reporting.runs.methods import Entry


@dataclass(frozen=True)
class Answer:
    """One row of the table; ``averaging`` is None for the row that is the baseline of the others."""

    row: Row
    averaging: Averaging | None = None


@dataclass(frozen=True)
class Series:
    """One attack on repeated releases: ``still`` with unchanged images, ``moved`` with jittered pixels."""

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
    """The audits with repeated releases."""
    return [Block(entry, describe(entry.audit), answers(entry.audit)) for entry in entries if entry.audit.averaging]


def answers(audit: AuditResult) -> list[Answer]:
    """Every attack on repeated releases, each below its row with the threat model's number of releases."""
    rows = []
    for base in _bases(audit):
        rows.append(Answer(audit.row(base)))
        rows += [Answer(audit.row(item.row), item) for item in audit.averaging if item.base == base]
    return rows


def series(audit: AuditResult) -> list[Series]:
    """The same rows as points over the number of releases."""
    jitter, made = audit.plan.threat.jitter, []
    for base in _bases(audit):
        rows = [audit.row(item.row) for item in audit.averaging if item.base == base]
        still = sorted([audit.row(base), *(row for row in rows if row.jitter == jitter)], key=lambda row: row.releases)
        made.append(Series(base, still, [row for row in rows if row.jitter != jitter]))
    return made


def _bases(audit: AuditResult) -> list[str]:
    return list(dict.fromkeys(item.base for item in audit.averaging))


def describe(audit: AuditResult) -> str:
    """Whether repeated releases help, of the same image and of a jittered one; empty where no attack uses them."""
    jitter = audit.plan.threat.jitter
    still = [item for item in audit.averaging if item.jitter == jitter]
    moved = [item for item in audit.averaging if item.jitter != jitter]
    sentences = []
    if still:
        best, most = max(still, key=lambda item: item.gain), max(still, key=lambda item: item.releases)
        helps, flat = text("report.asking.helps", **_values(best)), text("report.asking.flat", **_values(most))
        sentences.append(helps if best.helps else flat)
    if moved:
        best = max(moved, key=lambda item: item.gain)
        helps, flat = text("report.asking.moved", **_values(best)), text("report.asking.moved_flat", **_values(best))
        sentences.append(helps if best.helps else flat)
    return joined(sentences)


def _values(item: Averaging) -> dict[str, Any]:
    return {"releases": item.releases, "jitter": item.jitter, "gain": taken_off(item), "base": row_title(item.base)}


def taken_off(item: Averaging) -> str:
    """The removed part of the error, with its interval; negative if the error grew."""
    mean, low, high = (wording.percent(value, unit="") for value in (item.gain, item.low, item.high))
    return text("report.asking.gain", mean=mean, low=low, high=high)
