"""Arms whose clients send only some images: a table of shares, accuracies and leaks, and accuracy over the share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from attncem.base.texts import text
from attncem.records.leaks import LIMIT, NOT_SENT, OVER_ALL, SHARE
from attncem.records.selective import Selective
from attncem.records.statistics import seed_summary
from attncem.records.study import ACCURACY, AuditKind, Spread, spread_of
from attncem.reporting import sending, wording
from attncem.reporting import table_formats as made
from attncem.reporting.campaign.columns import arm_item, field, leak_field, over_seeds, spread_field
from attncem.reporting.campaign.load import Judged, JudgedArm
from attncem.reporting.campaign.plots import PAPER, Ink, Plot, inline
from attncem.reporting.figures import Drawing, marker_of
from attncem.reporting.runs.trade_off import NARROW, WIDE
from attncem.reporting.table_formats import SUMMARY, Item, Table, said, spread_item, word

Read = Callable[[Selective], Any]


def facts_of(arm: JudgedArm, kind: AuditKind | None) -> list[Selective]:
    """What the clients of an arm's seeds send; empty where they send every image."""
    return sending.facts_in(arm.audits(kind))


def sending_arms(study: Judged, kind: AuditKind | None) -> list[JudgedArm]:
    """The arms whose clients send only some images."""
    return [] if kind is None else [arm for arm in study.arms if facts_of(arm, kind)]


def share_table(study: Judged, kind: AuditKind) -> Table:
    """What each of these arms sends: the share, the accuracies on all images, and the leak of an image that is sent."""
    leaks = [name for name in (LIMIT, NOT_SENT, OVER_ALL) if name in study.leaks(kind)]
    fields: list[made.Field[JudgedArm]] = [
        field("arm", lambda arm: arm_item(arm, cell=arm.cells[0].id)),
        field("seeds", lambda arm: word(len(facts_of(arm, kind)))),
        leak_field(SHARE, kind),
        spread_field(ACCURACY, over_seeds(kind)),
        _accuracy("head_alone", lambda it: it.alone, kind),
        _accuracy("all_sent", lambda it: it.all_sent, kind),
        field("sending_adds", lambda arm: _adds(facts_of(arm, kind)), SUMMARY),
        *(leak_field(name, kind) for name in leaks),
    ]
    return made.table("sending", text("arms.sending"), fields, sending_arms(study, kind))


def _accuracy(key: str, read: Read, kind: AuditKind) -> made.Field[JudgedArm]:
    """One of the other accuracies over the seeds."""
    return field(key, lambda arm: spread_item(ACCURACY, _spread(facts_of(arm, kind), read)), made.SPREAD)


def _spread(facts: Sequence[Selective], read: Read) -> Spread | None:
    return spread_of([read(it) for it in facts])


def _adds(facts: Sequence[Selective]) -> Item:
    """What client and server together add to the client's head alone, in points, over the seeds."""
    if not facts:
        return Item(None, wording.MISSING)
    summary = seed_summary([it.together.mean - it.alone.mean for it in facts])
    sd = "" if summary.sd is None else f" ± {100 * summary.sd:.1f}"
    return Item(summary.mean, f"{100 * summary.mean:+z.1f}{sd}", more=made.summary_more(summary))


# the figure


def figures(study: Judged, kind: AuditKind | None, size: tuple[float, float] = WIDE) -> list[Plot]:
    """Accuracy over the share sent, a line for each arm; empty where every arm sends every image."""
    arms = [(arm, facts_of(arm, kind)) for arm in sending_arms(study, kind)]
    if not arms:
        return []

    def draw(axes: Any, ink: Ink) -> str:
        sentences = [_draw(axes, ink, arm, facts) for arm, facts in arms]
        axes.set_xlim(-2, 102)
        axes.set_xlabel(text("sending.figure.x"))
        axes.set_ylabel(text("arms.plot.accuracy"))
        if ink is PAPER:  # the page has one legend for all sizes
            axes.legend(frameon=False, fontsize=8)
        return "; ".join(sentences)

    return [Plot("accuracy-share-sent", text("arms.sending.plot"), draw, size)]


def _draw(axes: Any, ink: Ink, arm: JudgedArm, facts: Sequence[Selective]) -> str:
    """The mean curve of an arm, with the mean of what its thresholds send; its numbers in words."""
    numbers = {
        "share": fmean(it.share for it in facts),
        "accuracy": fmean(it.together.mean for it in facts),
        "alone": fmean(it.alone.mean for it in facts),
        "all_sent": fmean(it.all_sent.mean for it in facts),
    }
    color, marker = ink.of(arm.color), marker_of(arm.color)
    axes.plot(*_curve(facts), color=color, linewidth=1.4)
    axes.plot(100 * numbers["share"], 100 * numbers["accuracy"], marker, color=color, markersize=7, label=arm.label)
    shown = {name: said(SHARE if name == "share" else ACCURACY, value) for name, value in numbers.items()}
    return text("arms.sending.point", arm=arm.label, **shown)


def _curve(facts: Sequence[Selective]) -> tuple[list[float], list[float]]:
    """Shares and mean accuracies in percent, at the shares that every seed has."""
    seeds = [{it.share: it.accuracy for it in one.curve} for one in facts]
    shares = sorted(set.intersection(*(set(seed) for seed in seeds)))
    return [100 * share for share in shares], [100 * fmean(seed[share] for seed in seeds) for share in shares]


def drawings(study: Judged, kind: AuditKind) -> list[Drawing]:
    """The figure for the page, for wide and for narrow screens."""
    shown = [(plot, end) for size, end in ((WIDE, ""), (NARROW, "-narrow")) for plot in figures(study, kind, size)]
    return [inline(replace(plot, name=f"{plot.name}{end}")) for plot, end in shown]
