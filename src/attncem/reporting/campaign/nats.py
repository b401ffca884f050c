"""The leak in nats on a campaign's report: the ranking with what contradicts it, and accuracy over the limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from attncem.base.texts import text
from attncem.records.leaks import LEAKS, LIMIT
from attncem.records.study import ACCURACY, AuditKind
from attncem.records.study.leaking import nats_disagree, ranked, vacuous
from attncem.reporting import table_formats as made
from attncem.reporting.campaign.columns import (
    arm_item,
    arm_notes,
    field,
    leak_field,
    leak_missing,
    over_seeds,
    spread_field,
    unlike,
)
from attncem.reporting.campaign.load import ERRORS, Judged, JudgedArm, lost, point_words
from attncem.reporting.campaign.plots import PAPER, Ink, Plot, inline, name_point
from attncem.reporting.figures import Drawing, marker_of
from attncem.reporting.runs.leaks import may_have
from attncem.reporting.runs.trade_off import NARROW, WIDE
from attncem.reporting.sending import facts_in
from attncem.reporting.table_formats import Item, Table, said, word

SHOWN = 6
"""Largest number of contradictions that the page lists; a line counts the others."""
_ROOM = 1.15
"""Room on either side of a logarithmic axis, as a factor."""


def ranking(study: Judged, kind: AuditKind) -> Table:
    """Arms ranked by the limit on their leak, beside what attacks and probes were seen to do."""
    names = study.leaks(kind)
    useless = lost(study, kind)
    notes = arm_notes(study, kind, useless)
    fields: list[made.Field[JudgedArm]] = [
        field("arm", lambda arm: arm_item(arm, small=notes[arm.label], cell=arm.cells[0].id)),
        field("seeds", lambda arm: word(len(arm.leaks(LIMIT, kind)))),
        spread_field(ACCURACY, over_seeds(kind)),
        *(leak_field(measure, kind) for measure in names if LEAKS[measure].unit),
        *(spread_field(measure, over_seeds(kind)) for measure in ERRORS[:2]),
        *(leak_field(measure, kind) for measure in names if not LEAKS[measure].unit),
    ]
    rows = ranked(study.arms, kind)
    table = made.table("nats", text("arms.nats"), list(map(_unbroken, fields)), rows)
    return made.with_best(table, list(useless), unlike(study, kind))


def _unbroken(breaking: made.Field[JudgedArm]) -> made.Field[JudgedArm]:
    """The column with a mean and its deviation on one line: this table breaks lines, because it has many columns."""
    column, entry = breaking

    def unbroken(arm: JudgedArm) -> Item:
        item = entry(arm)
        return replace(item, shown=item.shown.replace(" ± ", "\u00a0±\u00a0"))

    return column, unbroken


def warnings(study: Judged, kind: AuditKind) -> list[str]:
    """The contradictions of a ranking by the limit, and how many more there are."""
    sentences = [item.text for item in nats_disagree(study.arms, kind)]
    more = len(sentences) - SHOWN
    return sentences if more <= 0 else [*sentences[:SHOWN], text("arms.nats.more", count=more)]


def unmeasured(study: Judged, kind: AuditKind) -> str:
    """How many arms lack the limit, with the command for the first that can have it; empty where all have it."""
    lacking = [arm for arm in study.arms if arm.audits(kind) and not arm.leaks(LIMIT, kind)]
    if not lacking:
        return ""
    first = next((arm for arm in lacking if _may_have(arm, kind)), lacking[0])
    return text("arms.nats.unmeasured", count=len(lacking), said=leak_missing(first, LIMIT, kind))


def _may_have(arm: JudgedArm, kind: AuditKind) -> bool:
    """Whether an audit of any seed could give a limit."""
    return any(may_have(cell.alike(kind), LIMIT) for cell in arm.cells if cell.audit(kind))


def smallest(study: Judged, kind: AuditKind) -> str:
    """The arm with the smallest limit among those that kept their utility; empty where no limit says anything."""
    useless = lost(study, kind)
    arms = [arm for arm in ranked(study.arms, kind) if arm.label not in useless and not vacuous(arm, kind)]
    if not arms or not arms[0].values(ACCURACY, kind):
        return ""
    arm = arms[0]
    beside = {name: arm.leaks(name, kind) for name in study.leaks(kind) if name != LIMIT}
    values = {"arm": arm.label, "beside": made.described(beside) or text("arms.nats.nothing_beside")}
    values |= {"limit": said(LIMIT, arm.mean(LIMIT, kind)), "accuracy": said(ACCURACY, arm.mean(ACCURACY, kind))}
    is_sent = bool(facts_in(arm.audits(kind)))
    return text("arms.nats.smallest.sent", **values) if is_sent else text("arms.nats.smallest", **values)


# accuracy over the limit


def figures(study: Judged, kind: AuditKind | None, size: tuple[float, float] = WIDE) -> list[Plot]:
    """Accuracy over the limit on a logarithmic axis: cells, the means of arms, and the front of the means."""
    points = (
        [] if kind is None else [(arm, *_place(arm, kind)) for arm in ranked(study.arms, kind) if _seeds(arm, kind)]
    )
    points = [point for point in points if not vacuous(point[0], kind)]
    if kind is None or not points:
        return []
    places, words = [(limit, accuracy) for _, limit, accuracy in points], point_words(study)

    def draw(axes: Any, ink: Ink) -> str:
        for arm, limit, accuracy in points:
            color, marker = ink.of(arm.color), marker_of(arm.color)
            axes.plot(*zip(*_seeds(arm, kind), strict=True), marker, color=color, alpha=0.35, markersize=3.5)
            axes.plot(limit, accuracy, marker, color=color, markersize=7)
            name_point(axes, limit, accuracy, words[arm.label], color)
        front = undominated(places)
        if len(front) > 1:
            axes.plot(*zip(*front, strict=True), color=ink.muted, linewidth=1, linestyle="--", zorder=0)
        _axes(axes, [place for arm, _, _ in points for place in _seeds(arm, kind)])
        if ink is PAPER:  # the page has one legend for all sizes
            _legend(axes, study.names, ink)
        numbers = [(arm.label, said(LIMIT, limit), f"{accuracy:.1f}") for arm, limit, accuracy in points]
        return "; ".join(text("arms.nats.point", arm=arm, limit=x, accuracy=y) for arm, x, y in numbers)

    return [Plot("accuracy-leak-limit", text("arms.nats.plot"), draw, size)]


def _legend(axes: Any, names: Sequence[str], ink: Ink) -> None:
    for number, name in enumerate(names):
        style = {"color": ink.of(number), "marker": marker_of(number), "linestyle": "", "markersize": 5}
        axes.plot([], [], label=name, **style)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _axes(axes: Any, places: Sequence[tuple[float, float]]) -> None:
    limits = [limit for limit, _ in places]
    axes.set_xscale("log")
    axes.set_xlim(min(limits) / _ROOM, max(limits) * _ROOM)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}" if max(limits) < 10 * min(limits) else "")
    axes.set_xlabel(text("arms.nats.x"))
    axes.set_ylabel(text("arms.plot.accuracy"))


def _seeds(arm: JudgedArm, kind: AuditKind | None) -> list[tuple[float, float]]:
    """The limit and the accuracy in percent of every cell that has both."""
    both = [(cell.leak(LIMIT, kind), cell.score(ACCURACY, kind)) for cell in arm.cells]
    return [(leak.mean, 100 * score.mean) for leak, score in both if leak is not None and leak.mean > 0 and score]


def drawings(study: Judged, kind: AuditKind) -> list[Drawing]:
    """The figure for the page, for wide and for narrow screens; none where no arm has a limit."""
    shown = [(plot, end) for size, end in ((WIDE, ""), (NARROW, "-narrow")) for plot in figures(study, kind, size)]
    return [inline(replace(plot, name=f"{plot.name}{end}")) for plot, end in shown]


def _place(arm: JudgedArm, kind: AuditKind) -> tuple[float, float]:
    """The mean over these cells."""
    seeds = _seeds(arm, kind)
    return tuple(sum(values) / len(values) for values in zip(*seeds, strict=True)) if seeds else (0.0, 0.0)


def undominated(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The places that no other beats with a smaller limit and a higher accuracy, by rising limit."""
    front: list[tuple[float, float]] = []
    for limit, accuracy in sorted(set(places), key=lambda place: (place[0], -place[1])):
        if not front or accuracy > front[-1][1]:
            front.append((limit, accuracy))
    return front
