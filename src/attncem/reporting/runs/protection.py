"""What of an image the strongest attack does not get: colour and brightness, or shape. Bars, and one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from attncem.base.texts import joined, text
from attncem.base.texts.titles import row_title
from attncem.records.audit import AuditResult, Remaining
from attncem.records.metrics import METRICS
from attncem.reporting import wording
from attncem.reporting.runs.health import is_useless
from attncem.reporting.runs.methods import Entry

Level = Literal["open", "part", "kept"]

OPEN = 0.25
"""Where less than this share of the blind guess's error is left, most was recovered."""
KEPT = 0.75
"""From this share on it counts as largely protected; between the two it was recovered in part."""
BARS = ("band_mean", "band_low", "band_high", "structure", "edges")
"""The measures that are shown, in this order."""
SHAPE = ("structure", "edges")
"""Shape counts as recovered as far as either of these says."""
COLOUR = ("band_mean",)


@dataclass(frozen=True)
class Bar:
    """One measure: the share of the blind guess's error that is left, and how wide it is drawn, in percent."""

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
    """The audits that have any of these measures; those of older versions have none."""
    made = [Block(entry, describe(entry.audit, best), bars(entry.audit)) for entry in entries]
    return [block for block in made if block.bars]


def bars(audit: AuditResult) -> list[Bar]:
    """The measures that both the strongest attack and a floor have."""
    left = audit.remaining
    return [_bar(name, left[name]) for name in BARS if name in left]


def _bar(name: str, left: Remaining) -> Bar:
    value, blind = (wording.decimal(number, METRICS[name].decimals) for number in (left.value, left.blind))
    beside = text("report.protected.beside", value=value, blind=blind, floor=row_title(left.floor))
    return Bar(name, left.share, round(100 * min(left.share, 1.0), 1), level(left.share), beside)


def level(share: float) -> Level:
    """How well something is hidden when this share of the blind guess's error is left."""
    if share < OPEN:
        return "open"
    return "part" if share < KEPT else "kept"


def describe(audit: AuditResult, best: Mapping[str, float]) -> str:
    """Whether shape, and colour and brightness, are hidden; of a model that lost its use no praise."""
    left = audit.remaining
    shape = [left[name].share for name in SHAPE if name in left]
    colour = [left[name].share for name in COLOUR if name in left]
    if not shape or not colour:
        return ""
    if is_useless(audit, best.get(audit.subject.dataset)):
        return text("report.protects.useless")
    if audit.strongest_attack.kind == "floor":
        return text("report.protects.floor")
    said = text(f"report.protects.{_levels(min(shape), min(colour))}")
    return said if audit.strongest_attack.verdict.reliable else joined([said, text("report.verdict.doubt")])


def _levels(shape: float, colour: float) -> str:
    return f"{level(shape)}_{level(colour)}"


def summary(audit: AuditResult, label: str, best: Mapping[str, float]) -> str:
    """The structure's error and the sentence in one line for a terminal; empty where they are not known."""
    left, said = audit.remaining.get("structure"), describe(audit, best)
    if left is None or not said:
        return ""
    structure = wording.decimal(left.value, METRICS["structure"].decimals)
    share = wording.percent(left.share, 0)
    return text("terminal.protects", run=label, structure=structure, share=share, said=said)
