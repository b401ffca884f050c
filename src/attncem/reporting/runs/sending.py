"""The report's section about clients that send only some images: accuracy over the share sent, shares by class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from attncem.base.texts import text
from attncem.records.leaks import LIMIT, NOT_SENT, OVER_ALL, SHARE
from attncem.records.selective import Selective
from attncem.records.statistics import seed_summary
from attncem.records.study import ACCURACY
from attncem.reporting import sending, wording
from attncem.reporting.figures import Drawing, Spot, color_of, drawing, marker_of
from attncem.reporting.runs.leaks import leaks_in
from attncem.reporting.runs.methods import Method
from attncem.reporting.runs.trade_off import NARROW, WIDE
from attncem.reporting.table_formats import (
    SUMMARY,
    Column,
    Item,
    Table,
    leak_item,
    leak_more,
    mean_sd,
    summary_more,
    word,
)


@dataclass(frozen=True)
class Block:
    """One model that sends only some images: its sentence, and the facts of its seeds."""

    method: Method
    sentence: str
    facts: Sequence[Selective]


def blocks(methods: Sequence[Method]) -> list[Block]:
    """The models that send only some images."""
    made = [(method, sending.facts_in(method.audits)) for method in methods]
    return [Block(method, sending.describe(method.audits), facts) for method, facts in made if facts]


# tables


def name_item(method: Method) -> Item:
    """A model's name, and a note where its numbers are only for images that are sent."""
    return Item(method.name, method.name, sending.mark(method.audits), color=method.color)


COLUMNS = (
    *("model", "class", "share_sent", "threshold", "judged", "together", "alone", "all_sent", "alone_on_sent"),
    *(LIMIT, NOT_SENT, OVER_ALL),
)
"""Columns whose titles are in the catalogue, under `sending.column.NAME`."""
ENDS = ("nothing", "everything", "chosen")
"""Points of a curve in words, under `sending.figure.NAME`."""
_NUMBERS: dict[str, tuple[str, Callable[[Selective], float | None]]] = {
    "share_sent": (SHARE, lambda it: it.share),
    "together": (ACCURACY, lambda it: it.together.mean),
    "alone": (ACCURACY, lambda it: it.alone.mean),
    "all_sent": (ACCURACY, lambda it: it.all_sent.mean),
    "alone_on_sent": (ACCURACY, lambda it: it.alone_on_sent),
}
"""Columns of shares: their format, and their reader."""


def share_table(made: Sequence[Block]) -> Table:
    """One row per model: what it sends, and the accuracies on all images."""
    keys = ("share_sent", "threshold", "judged", *(name for name in _NUMBERS if name != "share_sent"))
    nats = [name for name in (LIMIT, NOT_SENT, OVER_ALL) if any(leaks_in(block.method.audits, name) for block in made)]
    columns = [_column("model", words=True), *(_column(key, more=SUMMARY if key in _NUMBERS else ()) for key in keys)]
    columns += [_column(name, more=leak_more(name)) for name in nats]
    rows = [
        [
            _model(block),
            *(_item(key, block.facts) for key in keys),
            *(leak_item(name, leaks_in(block.method.audits, name)) for name in nats),
        ]
        for block in made
    ]
    return Table("sending", text("sending.region"), columns, rows)


def _column(key: str, **other: Any) -> Column:
    return Column(key, text(f"sending.column.{key}"), **other)


def _model(block: Block) -> Item:
    return Item(block.method.label, block.method.label, color=block.method.color)


def _item(key: str, facts: Sequence[Selective]) -> Item:
    """One number over the seeds; a threshold and a count are those of every seed."""
    if key == "threshold":
        return word(", ".join(map(sending.threshold, facts)))
    if key == "judged":
        return word(", ".join(f"{it.num_sent:,} / {it.num_images:,}" for it in facts))
    measure, read = _NUMBERS[key]
    values = [value for it in facts if (value := read(it)) is not None]
    if not values:
        return Item(None, wording.MISSING)
    summary = seed_summary(values)
    return Item(summary.mean, mean_sd(measure, summary), more=summary_more(summary))


def class_tables(made: Sequence[Block]) -> list[Table]:
    """The share of each class that is sent, one table per data set; empty for images without labels."""
    by_names: dict[tuple[str, ...], list[Block]] = {}
    for block in made:
        subject = block.method.entries[0].audit.subject
        names = subject.class_names or [str(label) for label in range(subject.num_classes)]
        by_names.setdefault((subject.dataset, *names), []).append(block)
    return [_class_table(names[1:], group, place) for place, (names, group) in enumerate(by_names.items()) if names[1:]]


def _class_table(names: Sequence[str], group: Sequence[Block], place: int) -> Table:
    columns = [_column("class", words=True)]
    columns += [Column(it.method.label, text("sending.column.share_sent"), group=_model(it)) for it in group]
    rows = [
        [word(name), *(_class_item([it.shares for it in block.facts], label) for block in group)]
        for label, name in enumerate(names)
    ]
    return Table(f"sending-classes-{place}", text("sending.classes"), columns, rows)


def _class_item(shares: Sequence[Sequence[float | None]], label: int) -> Item:
    values = [share for seed in shares if label < len(seed) and (share := seed[label]) is not None]
    if not values:
        return Item(None, wording.MISSING)
    return Item(fmean(values), mean_sd(SHARE, seed_summary(values)))


# the figure


def drawings(made: Sequence[Block]) -> list[Drawing]:
    """Accuracy over the share sent, for wide and for narrow screens; empty without such models."""
    if not made:
        return []
    return [_drawing(made, key, size) for key, size in (("sending", WIDE), ("sending-narrow", NARROW))]


def _drawing(made: Sequence[Block], key: str, size: tuple[float, float]) -> Drawing:
    title, spots = text("sending.figure"), list[Spot]()
    with drawing(key, title, size) as (axes, finish):
        for block in made:
            spots += _draw(axes, block)
        axes.set_xlim(-2, 102)
        axes.set_xlabel(text("sending.figure.x"))
        axes.set_ylabel(text("sending.figure.y"))
    return Drawing(title, finish("; ".join(spot.said for spot in spots), spots), text("sending.figure.note"))


def _draw(axes: Any, block: Block) -> list[Spot]:
    """The curve of each seed, its two ends, and the point that its threshold chose."""
    color, marker, label = color_of(block.method.color), marker_of(block.method.color), block.method.label
    spots = []
    for facts in block.facts:
        chosen = (facts.share, facts.together.mean)
        curve = sorted({*((it.share, it.accuracy) for it in facts.curve), chosen})
        axes.plot(*zip(*((100 * x, 100 * y) for x, y in curve), strict=True), color=color, linewidth=1.4)
        places = ((0.0, facts.alone.mean), (1.0, facts.all_sent.mean), chosen)
        for end, (x, y) in zip(ENDS, places, strict=True):
            size, fill = (9, "full") if end == "chosen" else (5, "none")
            axes.plot(100 * x, 100 * y, marker, color=color, markersize=size, fillstyle=fill)
            values = {"run": label, "share": wording.percent(x), "accuracy": wording.percent(y)}
            spots.append(Spot(100 * x, 100 * y, text(f"sending.figure.{end}", **values)))
        place = 100 * chosen[0], 100 * chosen[1]
        axes.annotate(label, place, (7, 7), textcoords="offset points", color=color, fontweight="bold")
    return spots
