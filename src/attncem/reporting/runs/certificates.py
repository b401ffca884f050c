"""Certificates in a report: lower and upper bounds of leakage on one axis, and a table of bounds in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from attncem.base.texts import has_text, joined, text
from attncem.base.texts.titles import row_title
from attncem.records.audit import AuditResult, Row
from attncem.records.bounds import Bound
from attncem.records.leaks import BEYOND, LIMIT, OVER_ALL, leak_of
from attncem.reporting import figures, wording
from attncem.reporting.runs.methods import Entry
from attncem.reporting.table_formats import Column, Table, row_item, word

OF_BOUND = ("row", "of", "claim", "kind", "assumed")
"""Columns of a bound; under `certificates.column.NAME`."""


@dataclass(frozen=True)
class Line:
    """One bound of one row; ``assumed`` are codes of assumptions."""

    row: str
    title: str
    claim: str
    kind: str
    vacuous: bool
    assumed: Sequence[str]
    by: str
    ceiling: float | None
    at_ceiling: bool


@dataclass(frozen=True)
class Leakage:
    """The leakage of one image, in nats: proven evidence, estimates of it, and upper bounds.

    ``high`` and ``beyond`` are the limits on it and on its part beyond the label; ``ceiling`` is that of the largest
    evidence, if it is there.
    """

    least: list[float]
    estimates: list[float]
    most: list[float]
    high: float | None = None
    beyond: float | None = None
    ceiling: float | None = None

    @property
    def numbers(self) -> list[float]:
        """All numbers."""
        return [*self.least, *self.estimates, *self.most]

    @property
    def low(self) -> float:
        """The largest proven leakage."""
        return max(self.least, default=0.0)


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
            bound.ceiling,
            bound.at_ceiling,
        )
        for row in audit.rows
        if row.ok and row.kind == "certificate"
        for name, bound in row.bounds.items()
    ]


def assumption(code: str) -> str:
    """The sentence of an assumption, or the code itself if another version wrote it."""
    return text(f"assumption.{code}") if has_text(f"assumption.{code}") else code


def leakage(audit: AuditResult) -> Leakage:
    """Evidence and upper bounds for the threat model's releases; estimates from above are left out."""
    sight = audit.plan.threat.releases_per_input, audit.plan.threat.jitter
    rows = [row for row in audit.rows if row.ok and row.sight == sight]
    claims: dict[tuple[str, str, str], list[Bound]] = {}
    for name, bound in (item for row in rows for item in row.bounds.items()):
        about = BEYOND if name == BEYOND else bound.about
        if "@" not in name and about in ("leakage", BEYOND) and name != "entropy_plugin":
            claims.setdefault((about, bound.direction, bound.kind), []).append(bound)
    kinds = (("at_least", "bound"), ("at_least", "estimate"), ("at_most", "bound"))
    least, estimates, most = (claims.get(("leakage", *kind), []) for kind in kinds)
    high, beyond = (None if leak is None else leak.mean for leak in (leak_of(audit, LIMIT), leak_of(audit, BEYOND)))
    strongest = max(least, key=lambda bound: bound.claim, default=None)
    ceiling = strongest.ceiling if strongest is not None and strongest.at_ceiling else None
    return Leakage(_claims(least), _claims(estimates), _claims(most), high, beyond, ceiling)


def _claims(bounds: Iterable[Bound]) -> list[float]:
    return [bound.claim for bound in bounds]


def describe(audit: AuditResult) -> str:
    """The range of the leakage in plain sentences; says so where there is no bound."""
    span = leakage(audit)
    sentences = [text("certificates.none")]
    if span.high is not None:
        values = {"high": span.high, "bits": span.high / math.log(2)}
        sent = audit.plan.selective is not None
        sentences = [text("certificates.most.sent", **values) if sent else text("certificates.most", **values)]
        least = leak_of(audit, LIMIT)
        sentences += [text("certificates.most.vacuous")] if least is not None and least.vacuous else []
    if span.beyond is not None:
        sentences.append(text("certificates.beyond", high=span.beyond))
    if span.least and span.ceiling is not None:
        sentences.append(text("certificates.least.ceiling", low=span.low, ceiling=span.ceiling))
    elif span.least:
        sentences.append(text("certificates.least", low=span.low))
    if span.estimates:
        sentences.append(text("certificates.told", told=max(span.estimates)))
    return joined([*sentences, *_of_bits(audit), *_beside_sent(audit)])


def _beside_sent(audit: AuditResult) -> list[str]:
    """Beside the leak of an image that is sent: the mean over all images, and that of the others if they were sent."""
    mean = leak_of(audit, OVER_ALL)
    sentences = [] if mean is None else [text("certificates.over_all", high=mean.mean)]
    bounds = (bound for row in audit.rows if row.ok for bound in row.bounds.values())
    rest = next((bound.claim for bound in bounds if bound.about == "not_sent"), None)
    return sentences if rest is None else [*sentences, text("certificates.not_sent", high=rest)]


def nats_of_any_number(bounds: Iterable[Bound]) -> float | None:
    """The smallest certain leakage, in nats, of any number of queries; None where no bits limit it."""
    certain = (one.claim for one in bounds if one.any_number and one.limit is None and not one.vacuous)
    return min(certain, default=None)


def _of_bits(audit: AuditResult) -> list[str]:
    """What the bits of a release can hold, however often it is asked for."""
    nats = nats_of_any_number(bound for row in audit.rows if row.ok for bound in row.bounds.values())
    return [] if nats is None else [text("certificates.bits", bytes=audit.subject.bytes_per_query, nats=nats)]


def axis(entries: Sequence[Entry]) -> figures.Drawing | None:
    """One line per audit from proven to possible leakage; None where no audit has either.

    Triangles to the right are lower bounds, triangles to the left upper bounds, diamonds estimates.
    """
    spans = [(entry, span) for entry in entries if (span := leakage(entry.audit)).numbers]
    if not spans:
        return None
    title, sentences = text("figure.leakage"), []
    spots: list[figures.Spot] = []
    with figures.drawing("leakage", title, (8.4, 1.0 + 0.42 * len(spans))) as (axes, finish):
        for place, (entry, span) in enumerate(spans):
            color, high = figures.color_of(entry.color), span.high
            if high is not None:
                axes.plot([span.low, high], [place, place], color=color, linewidth=2.5)
            for values, marker in ((span.least, ">"), (span.estimates, "D"), (span.most, "<")):
                axes.plot(values, [place] * len(values), marker, color=color, markersize=7, fillstyle="none")
            ends = {"low": span.low, "high": wording.MISSING if high is None else f"{high:.3g}"}
            sentences.append(text("figure.leakage.span", run=entry.label, **ends))
            spots += [figures.Spot(value, place, sentences[-1]) for value in span.numbers]
        axes.set_yticks(range(len(spans)), [entry.label for entry, _ in spans])
        axes.set_ylim(len(spans) - 0.5, -0.5)
        axes.set_xscale("symlog", linthresh=1.0)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlim(0.0, 1.3 * max(max(span.numbers) for _, span in spans) + 0.1)
        axes.set_xlabel(text("figure.leakage.x"))
    return figures.Drawing(title, finish("; ".join(sentences), spots))


def assumed(audits: Iterable[AuditResult]) -> dict[str, str]:
    """The assumptions of the audits' bounds, each once, by code."""
    codes = (
        code for audit in audits for row in audit.rows for bound in row.bounds.values() for code in bound.assumptions
    )
    return {code: assumption(code) for code in dict.fromkeys(codes)}


def certificate_table(block: Block, place: int) -> Table:
    """Every bound in words."""
    more = {"claim": ("ceiling", "at_ceiling")}
    columns = [Column(key, text(f"certificates.column.{key}"), words=True, more=more.get(key, ())) for key in OF_BOUND]
    rows = [
        [
            row_item(line.row),
            word(line.title, small=row_title(line.by)),
            word(line.claim, more={"ceiling": line.ceiling, "at_ceiling": line.at_ceiling}),
            word(line.kind, notes=[text("certificates.vacuous")] if line.vacuous else []),
            word(", ".join(line.assumed)),
        ]
        for line in block.lines
    ]
    return Table(f"certificates-{place}", text("certificates.region", run=block.entry.label), columns, rows)
