"""What a leak costs: the error of the strongest attack over the attacker's images, or over the answered queries.

The two axes are never mixed: a curve changes one of them, with everything else equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from attncem.base.texts import text
from attncem.base.texts.titles import row_title, threat_title
from attncem.config.threats import ThreatModel
from attncem.records.score import Score
from attncem.records.study.keys import AuditKey
from attncem.reporting import answers
from attncem.reporting.figures import Drawing, Spot, color_of, drawing, marker_of
from attncem.reporting.runs.methods import Entry
from attncem.reporting.table_formats import Column, Item, Table, word

Axis = Literal["queries", "images"]
AXES: tuple[Axis, ...] = ("queries", "images")


@dataclass(frozen=True)
class Curve:
    """Audits of one run that differ only in one number of the adversary, the smallest number first."""

    axis: Axis
    entries: Sequence[Entry]

    @property
    def label(self) -> str:
        """The name of the run."""
        return self.entries[0].run.label

    @property
    def sentence(self) -> str:
        """The errors at both ends."""
        least, most = self.entries[0], self.entries[-1]
        ends = {"few": shown(count(least, self.axis)), "many": shown(count(most, self.axis))}
        threat = least.audit.plan.threat
        base = "outside" if threat.pictures and threat.base == "train" else threat.base
        ends["adversary"] = threat_title(f"{base}+{threat.pictures.name}" if threat.pictures else base)
        errors = {"first": _mse(least).mean, "last": _mse(most).mean}
        if self.axis == "queries":
            return text("report.costs.queries", **ends, **errors)
        return text("report.costs.images", **ends, **errors)


def curves(entries: Sequence[Entry]) -> list[Curve]:
    """The curves of all runs with at least two points."""
    return [curve for axis in AXES for curve in _along(axis, entries)]


def _along(axis: Axis, entries: Sequence[Entry]) -> Iterator[Curve]:
    able = [entry for entry in entries if entry.audit.strongest and not _is_without(entry.audit.plan.threat, axis)]
    ordered = sorted(able, key=lambda entry: _place(entry, axis))
    for _, group in groupby(ordered, key=lambda entry: _place(entry, axis)):
        points = list(group)
        by_count = {count(entry, axis): entry for entry in points}
        if len(by_count) > 1 and not _are_mixed(points):
            yield Curve(axis, [by_count[value] for value in sorted(by_count)])


def _is_without(threat: ThreatModel, axis: Axis) -> bool:
    """Whether the axis means nothing to an adversary: who knows the client needs no answers."""
    return threat.knows_encoder if axis == "queries" else threat.auxiliary == "none"


def _are_mixed(points: Sequence[Entry]) -> bool:
    """Whether the pictures are from different folders of one name: the same number of them has different hashes."""
    hashes: dict[int | None, set[str]] = {}
    for threat in (point.audit.plan.threat for point in points):
        if threat.pictures is not None:
            hashes.setdefault(threat.images, set()).add(threat.pictures.sha256)
    return any(len(different) > 1 for different in hashes.values())


def _place(entry: Entry, axis: Axis) -> tuple[str, ...]:
    """What the points of a curve have in common."""
    audit, threat = entry.audit, entry.audit.plan.threat
    same = replace(threat, name="", pictures=None, images=None if axis == "images" else threat.images)
    if axis == "queries":
        same = replace(same, queries=None, may_query=True)
    pictures = "" if threat.pictures is None else threat.pictures.name if axis == "images" else str(threat.pictures)
    rows = sorted(row.name for row in audit.rows)
    key = AuditKey.of(audit.plan)._replace(threat="")
    suite = audit.plan.suite, audit.plan.suite_version, audit.plan.changed
    return entry.run.id, str(suite), str(rows), str(key), pictures, str(same)


def count(entry: Entry, axis: Axis) -> float:
    """The number on the axis; infinite for any number of queries."""
    threat = entry.audit.plan.threat
    if axis == "images":
        return entry.audit.plan.num_auxiliary
    if not threat.may_query:
        return 0
    return math.inf if threat.queries is None else threat.queries


def shown(value: float) -> str:
    """The number on the axis as text."""
    return text("report.costs.any") if math.isinf(value) else f"{value:,.0f}"


def _mse(entry: Entry) -> Score:
    return entry.audit.strongest_attack.mse


def cost_table(curve: Curve, place: int) -> Table:
    """The points of a curve, each with its strongest attack and its state."""
    columns = [
        Column(curve.axis, text(f"report.costs.column.{curve.axis}")),
        Column("attack", text("report.column.attack"), words=True),
        Column("mse", text("measure.mse"), text("report.private.higher"), more=("low", "high")),
        Column("state", text("report.column.state"), words=True),
    ]
    rows = []
    for entry in curve.entries:
        score, value = _mse(entry), count(entry, curve.axis)
        ends = f"[{score.low:.4f}, {score.high:.4f}]"
        rows.append(
            [
                Item(None if math.isinf(value) else value, shown(value)),
                word(row_title(str(entry.audit.strongest))),
                Item(score.mean, f"{score.mean:.4f}", ends, {"low": score.low, "high": score.high}),
                word(answers.state_word(entry.audit.state)),
            ]
        )
    return Table(f"costs-{place}", text("report.costs.region", run=curve.label), columns, rows)


def figures(drawn: Sequence[Curve]) -> list[Drawing]:
    """For each axis one figure with a line for each run."""
    return [_figure(axis, some) for axis in AXES if (some := [curve for curve in drawn if curve.axis == axis])]


def _figure(axis: Axis, some: Sequence[Curve]) -> Drawing:
    ticks = sorted({count(entry, axis) for curve in some for entry in curve.entries})
    title, spots = text(f"report.costs.column.{axis}"), []
    with drawing(f"costs-{axis}", text("report.costs.figure", axis=title), (4.4, 2.5)) as (axes, finish):
        for curve in some:
            x = [ticks.index(count(entry, axis)) for entry in curve.entries]
            scores = [_mse(entry) for entry in curve.entries]
            ends = [[it.mean - it.low for it in scores], [it.high - it.mean for it in scores]]
            color = curve.entries[0].color
            axes.errorbar(
                x, [it.mean for it in scores], ends, color=color_of(color), linewidth=1.4, marker=marker_of(color),
                markersize=3.5, capsize=2,
            )  # fmt: skip
            for place, score in zip(x, scores, strict=True):
                values = {"run": curve.label, "count": shown(ticks[place]), "mse": score.mean}
                spots.append(Spot(place, score.mean, text("report.costs.point", **values)))
        axes.set_xticks(range(len(ticks)), [shown(value) for value in ticks])
        axes.set_xlabel(title)
        axes.set_ylim(bottom=0.0)
    return Drawing(title, finish("; ".join(spot.said for spot in spots), spots))
