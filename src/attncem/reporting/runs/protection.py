"""The parts of an image that the strongest attack misses: colour and brightness, or shape. Bars, and one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from attncem.base.texts import text
from attncem.base.texts.titles import row_title
from attncem.records.audit import AuditResult
from attncem.records.judgement import State
from attncem.records.metrics import METRICS
from attncem.reporting import wording
from attncem.reporting.runs.health import is_useless
from attncem.reporting.runs.methods import Entry

Level = Literal["open", "part", "kept", "unknown"]

OPEN = 0.25
"""Below this remaining share of the blind guess's error, most was recovered."""
KEPT = 0.75
"""From this share on, it counts as largely protected; between the two it was recovered in part."""
BARS = ("band_mean", "band_low", "band_high", "structure", "edges")
"""The shown measures, in this order."""
SHAPE = ("structure", "edges")
"""Shape counts as recovered if either measure says so, to the degree of the stronger one."""
COLOUR = ("band_mean",)


@dataclass(frozen=True)
class Bar:
    """One measure: the remaining share of the blind guess's error, and the width of its bar in percent."""

    name: str
    share: float
    width: float
    level: Level
    beside: str


@dataclass(frozen=True)
class Block:
    """One audit: its sentence, empty where too little is known, and its bars."""

    entry: Entry
    sentence: str
    bars: Sequence[Bar]


def blocks(entries: Sequence[Entry], best: Mapping[str, float]) -> list[Block]:
    """The audits that have any of these measures; audits of older versions have none."""
    return [Block(entry, describe(entry.audit, best), shown) for entry in entries if (shown := bars(entry.audit))]


def bars(audit: AuditResult) -> list[Bar]:
    """The measures that both the strongest attack and a floor have."""
    shown = []
    for name in (name for name in BARS if name in audit.remaining):
        left = audit.remaining[name]
        value, blind = (wording.decimal(number, METRICS[name].decimals) for number in (left.value, left.blind))
        beside = text("report.protected.beside", value=value, blind=blind, floor=row_title(left.floor))
        width = round(100 * min(left.share, 1.0), 1)
        shown.append(Bar(name, left.share, width, level(left.share, audit.state), beside))
    return shown


def level(share: float, state: State) -> Level:
    """The level of protection for this remaining share of the blind guess's error.

    Nothing counts as protected in an audit that is not reliable, or not enough to tell.
    """
    if share < OPEN:
        return "open"
    if share < KEPT:
        return "part"
    return "kept" if state == "reliable" else "unknown"


def describe(audit: AuditResult, best: Mapping[str, float]) -> str:
    """Whether shape, and colour and brightness, are hidden; no such claim for a model that lost its utility."""
    left = audit.remaining
    shape = [left[name].share for name in SHAPE if name in left]
    colour = [left[name].share for name in COLOUR if name in left]
    if not shape or not colour:
        return ""
    if is_useless(audit, best.get(audit.subject.dataset)):
        return text("report.protects.useless")
    if audit.strongest_attack.kind == "floor":
        return text("report.protects.floor")
    levels = "_".join(level(min(shares), audit.state) for shares in (shape, colour))
    return text(f"report.protects.{levels}")


def summary(audit: AuditResult, label: str, best: Mapping[str, float]) -> str:
    """The structure's error and the sentence in one line for a terminal; empty where they are unknown."""
    left, sentence = audit.remaining.get("structure"), describe(audit, best)
    if left is None or not sentence:
        return ""
    structure = wording.decimal(left.value, METRICS["structure"].decimals)
    share = wording.percent(left.share, 0)
    return text("terminal.protects", run=label, structure=structure, share=share, said=sentence)
