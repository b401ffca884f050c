"""Certificates in a report: leakage from below and from above on one axis, and a table of bounds in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from attncem.base.texts import has_text, joined, text
from attncem.records.audit import AuditResult, Row
from attncem.reporting import figures, wording
from attncem.reporting.hover import Spot
from attncem.reporting.runs.methods import Entry


@dataclass(frozen=True)
class Line:
    """One bound of one row; ``assumed`` are codes."""

    row: str
    title: str
    claim: str
    kind: str
    vacuous: bool
    assumed: Sequence[str]
    by: str


@dataclass(frozen=True)
class Leakage:
    """What is known of the leakage of one image, in nats: proven evidence, estimates of it, and upper bounds."""

    least: list[float]
    told: list[float]
    most: list[float]

    @property
    def low(self) -> float:
        """The most that is proven to leak."""
        return max(self.least, default=0.0)

    @property
    def high(self) -> float | None:
        """The least upper bound; None: there is none."""
        return min(self.most, default=None)


@dataclass(frozen=True)
class Block:
    """One audit: its sentence, its bounds, and the certificates that do not apply, with the reason."""

    entry: Entry
    sentence: str
    lines: Sequence[Line]
    absent: Sequence[Row]


def blocks(entries: Sequence[Entry]) -> list[Block]:
    """The audits that have certificates."""
    made = []
    for entry in entries:
        rows = [row for row in entry.audit.rows if row.kind == "certificate"]
        if rows:
            absent = [row for row in rows if not row.ok]
            made.append(Block(entry, describe(entry.audit), lines(entry.audit), absent))
    return made


def lines(audit: AuditResult) -> list[Line]:
    """Every bound of an audit, in the order of its rows."""
    return [
        Line(
            row.name,
            wording.bound_title(name),
            wording.describe_claim(bound),
            text(f"bound.kind.{bound.kind}"),
            bound.vacuous,
            bound.assumptions,
            bound.by,
        )
        for row in audit.rows
        if row.ok and row.kind == "certificate"
        for name, bound in row.bounds.items()
    ]


def assumption(code: str) -> str:
    """The sentence of an assumption, or the code itself where another version wrote it."""
    return text(f"assumption.{code}") if has_text(f"assumption.{code}") else code


def leakage(audit: AuditResult) -> Leakage:
    """Evidence and upper bounds of what the threat model's releases tell; estimates from above are left out."""
    sight = audit.plan.threat.releases_per_input, audit.plan.threat.jitter
    judged = [row for row in audit.rows if row.ok and row.sight == sight]
    known = [bound for row in judged for name, bound in row.bounds.items() if "@" not in name]
    found: dict[tuple[str, str], list[float]] = {}
    for bound in known:
        if bound.about == "leakage":
            found.setdefault((bound.direction, bound.kind), []).append(bound.claim)
    kinds = (("at_least", "bound"), ("at_least", "estimate"), ("at_most", "bound"))
    return Leakage(*(found.get(kind, []) for kind in kinds))


def describe(audit: AuditResult) -> str:
    """The span in plain sentences; that nothing bounds it, where nothing does."""
    found = leakage(audit)
    if found.high is None:
        said = [text("certificates.none")]
    else:
        said = [text("certificates.most", high=found.high, bits=found.high / math.log(2))]
    if found.least:
        said.append(text("certificates.least", low=found.low))
    if found.told:
        said.append(text("certificates.told", told=max(found.told)))
    return joined(said)


def axis(entries: Sequence[Entry]) -> figures.Drawing | None:
    """One line for each audit from what is proven to leak to what can; None where no audit knows either."""
    found = [(entry, leakage(entry.audit)) for entry in entries]
    shown = [(entry, known) for entry, known in found if known.least or known.told or known.most]
    return _spans(shown) if shown else None


def _spans(shown: Sequence[tuple[Entry, Leakage]]) -> figures.Drawing:
    """Triangles to the right for what leaks at least, to the left for what leaks at most, diamonds for estimates."""
    title, said = text("figure.leakage"), []
    spots: list[Spot] = []
    with figures.drawing("leakage", title, (8.4, 1.0 + 0.42 * len(shown))) as (axes, finish):
        for place, (entry, known) in enumerate(shown):
            color, high = figures.color_of(entry.color), known.high
            if high is not None:
                axes.plot([known.low, high], [place, place], color=color, linewidth=2.5)
            for values, marker in ((known.least, ">"), (known.told, "D"), (known.most, "<")):
                axes.plot(values, [place] * len(values), marker, color=color, markersize=7, fillstyle="none")
            span = {"low": known.low, "high": wording.MISSING if high is None else f"{high:.3g}"}
            said.append(text("figure.leakage.span", run=entry.label, **span))
            spots += [Spot(value, place, said[-1]) for value in (*known.least, *known.told, *known.most)]
        axes.set_yticks(range(len(shown)), [entry.label for entry, _ in shown])
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.set_xscale("symlog", linthresh=1.0)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlim(0.0, 1.3 * max(max((*known.least, *known.told, *known.most)) for _, known in shown) + 0.1)
        axes.set_xlabel(text("figure.leakage.x"))
    return figures.Drawing(title, finish("; ".join(said), spots))


def assumed(audits: Iterable[AuditResult]) -> dict[str, str]:
    """What the bounds of some audits assume, each once, by code."""
    codes = (
        code for audit in audits for row in audit.rows for bound in row.bounds.values() for code in bound.assumptions
    )
    return {code: assumption(code) for code in dict.fromkeys(codes)}
