"""The tables of a campaign's report: plain rows, one function a table."""

from __future__ import annotations

import math
import statistics as plain
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from attncem.base.texts import text
from attncem.records.comparison import Comparison, SeedSummary
from attncem.records.statistics import seed_summary
from attncem.reporting import wording
from attncem.reporting.campaign.items import (
    SPREAD,
    arm_item,
    column,
    interval,
    mean_sd,
    number,
    row_item,
    said,
    spread_item,
    summary_more,
    word,
)
from attncem.reporting.campaign.load import ACCURACY, ERRORS, CampaignView, CellEntry, Group, shown
from attncem.reporting.campaign.numbers import (
    MEASURES,
    ArmRow,
    against,
    arm_rows,
    effects,
    front,
    heat,
    lost,
    of_scores,
    spread,
)
from attncem.reporting.table_formats import Item, Table

_SUMMARY = ("sd", "low", "high", "count")
_COSTS = ("client_parameters", "client_macs", "server_parameters", "server_macs", "bytes_per_query")
MANY_CLASSES = 12
"""With more classes than this the table shows the most exposed one of each arm alone."""


def headline(view: CampaignView, kind: str, name: str = "headline") -> Table:
    """Arms as rows: accuracy and the strongest attack's measures over seeds."""
    columns = [
        column("arm", words=True),
        column("seeds"),
        column(ACCURACY, more=SPREAD),
        column("attack", words=True),
        *(column(measure, more=SPREAD) for measure in ERRORS),
    ]
    useless = lost(view, kind)
    rows = [_headline_row(row, is_lost=row.group.label in useless) for row in arm_rows(view, kind)]
    return Table(name, text("arms.headline"), columns, rows)


def _headline_row(row: ArmRow, *, is_lost: bool) -> list[Item]:
    measured = {measure: spread_item(measure, row.spreads.get(measure)) for measure in MEASURES}
    note = text("arms.unreliable", count=row.unreliable) if row.unreliable else ""
    planned = len(row.group.cells)
    seeds = str(row.count) if row.count == planned else text("arms.of", count=row.count, planned=planned)
    return [
        replace(arm_item(row.group), small=text("arms.lost") if is_lost else ""),
        Item(row.count, seeds),
        measured[ACCURACY],
        row_item(row.attack, small=note),
        *(measured[name] for name in ERRORS),
    ]


def cells(view: CampaignView) -> Table:
    """Every cell with its numbers; one row for each kind of audit, where there are several."""
    several = len(view.kinds) > 1
    columns = [
        column("cell", words=True),
        column("arm", words=True),
        column("seed"),
        column("state", words=True),
        *([column("audit", words=True)] if several else []),
        column(ACCURACY, more=("low", "high")),
        column("attack", words=True),
        *(column(measure, more=("low", "high")) for measure in ERRORS),
        column("training"),
    ]
    rows = [
        _cell_row(group, entry, kind, several=several)
        for group in view.groups
        for entry in group.cells
        for kind in ([kind for kind in view.kinds if kind in entry.audits] or [""])
    ]
    return Table("cells", text("arms.cells"), columns, rows)


def _cell_row(group: Group, entry: CellEntry, kind: str, *, several: bool) -> list[Item]:
    cell, state, audit = entry.cell, entry.view.state, entry.audits.get(kind)
    tone = {"failed": "no", "done": "yes"}.get(state, "")
    return [
        Item(cell.id, cell.id, cell=cell.id),
        Item(group.label, group.label, color=group.color),
        Item(cell.seed, str(cell.seed)),
        Item(state, text(f"arms.state.{state}"), tone=tone),
        *([word(kind)] if several else []),
        _score_item(entry, kind, ACCURACY),
        row_item(audit.strongest if audit else ""),
        *(_score_item(entry, kind, measure) for measure in ERRORS),
        Item(entry.training_seconds, wording.seconds(entry.training_seconds)),
    ]


def _score_item(entry: CellEntry, kind: str, measure: str) -> Item:
    score = entry.score(kind, measure)
    if score is None:
        return Item(None, wording.MISSING)
    return Item(score.mean, said(measure, score.mean), more={"low": score.low, "high": score.high})


def attacks(view: CampaignView) -> Table:
    """Every attack and floor on every arm, over seeds."""
    columns = [
        *([column("audit", words=True)] if len(view.kinds) > 1 else []),
        column("attack", words=True),
        column("arm", words=True),
        column("seeds"),
        *(column(measure, more=SPREAD) for measure in ERRORS),
        column("reliable"),
        column("attack_seconds"),
    ]
    rows = [row for kind in view.kinds for row in _attack_rows(view, kind)]
    return Table("attacks", text("arms.attacks"), columns, rows)


def _attack_rows(view: CampaignView, kind: str) -> Iterable[list[Item]]:
    names = dict.fromkeys(row.name for _, _, audit in view.pairs(kind) for row in audit.attacks)
    for name in names:
        for group in view.groups:
            found = [row for entry in group.cells if (row := entry.row(kind, name))]
            if not found:
                continue
            scores = {key: of_scores([row.scores[key] for row in found if key in row.scores]) for key in ERRORS}
            reliable, seconds = sum(row.verdict.reliable for row in found), plain.fmean(row.seconds for row in found)
            floor = text("arms.floor") if found[0].kind == "floor" else ""
            yield [
                *([word(kind)] if len(view.kinds) > 1 else []),
                row_item(name, small=floor),
                Item(group.label, group.label, color=group.color),
                Item(len(found), str(len(found))),
                *(spread_item(key, scores[key]) for key in ERRORS),
                Item(reliable / len(found), text("arms.of", count=reliable, planned=len(found))),
                Item(seconds, wording.seconds(seconds)),
            ]


def comparisons(view: CampaignView, kind: str) -> Table:
    """Every arm against every reference arm; the rows are marked with the reference."""
    columns = [
        column("reference", words=True),
        column("arm", words=True),
        column("measure", words=True),
        column("difference", more=("low", "high", "count_arm", "count_reference")),
        column("p"),
        column("adjusted_p"),
        column("verdict", words=True),
    ]
    found = [(arm, item) for arm in view.arms for item in against(view, kind, arm).values()]
    colors = {group.label: group.color for group in view.groups}
    rows = [_test_row(item, colors) for _, item in found]
    return Table("tests", text("arms.tests"), columns, rows, [arm for arm, _ in found])


def _test_row(item: Comparison, colors: Mapping[str, int]) -> list[Item]:
    measure = item.measure
    more = {"low": item.low, "high": item.high, "count_arm": item.count_a, "count_reference": item.count_b}
    title = text("arms.column.accuracy") if measure == ACCURACY else text(f"measure.{measure}")
    return [
        Item(item.b, item.b, color=colors[item.b]),
        Item(item.a, item.a, color=colors[item.a]),
        Item(measure, title),
        Item(item.difference, said(measure, item.difference), interval(measure, item.low, item.high), more),
        number(item.p, 4),
        number(item.adjusted_p, 4),
        Item(item.verdict, text(f"arms.verdict.{item.verdict}")),
    ]


def costs(view: CampaignView, kind: str) -> Table:
    """What each arm's training and use cost, beside what it keeps private."""
    columns = [
        column("arm", words=True),
        column("training", more=_SUMMARY),
        column("ratio"),
        column("epochs"),
        column("memory"),
        *(column(name) for name in _COSTS),
        column(ACCURACY, more=SPREAD),
        column("mse", more=SPREAD),
    ]
    first = next((found for group in view.groups if (found := _training(group))), None)
    rows = [_cost_row(group, kind, first) for group in view.groups]
    return Table("costs", text("arms.costs"), columns, rows)


def _training(group: Group) -> SeedSummary | None:
    seconds = [entry.training_seconds for entry in group.cells if entry.training_seconds is not None]
    return seed_summary(seconds) if seconds else None


def _cost_row(group: Group, kind: str, first: SeedSummary | None) -> list[Item]:
    own = _training(group)
    ratio = own.mean / first.mean if own and first else None
    trained = next((entry for entry in group.cells if entry.manifest), None)
    manifest = trained.manifest if trained else {}
    memory = manifest.get("peak_memory_bytes")  # absent in runs of older versions
    spent = wording.MISSING if own is None else wording.seconds(own.mean)
    varied = "" if own is None or own.sd is None else f"± {wording.seconds(own.sd)}"
    return [
        arm_item(group),
        Item(own and own.mean, spent, varied, summary_more(own) if own else {}),
        Item(ratio, wording.MISSING if ratio is None else f"{ratio:.2f} ×"),
        word(trained.epochs if trained else None),
        Item(memory, wording.count(memory)),
        *(Item(manifest.get(name), wording.count(manifest.get(name))) for name in _COSTS),
        spread_item(ACCURACY, spread(group.cells, kind, ACCURACY)),
        spread_item("mse", spread(group.cells, kind, "mse")),
    ]


def sensitivity(view: CampaignView, kind: str) -> Table:
    """Accuracy and errors at every value of every key of the grids, by arm."""
    columns = [
        column("key", words=True),
        column("value"),
        column("arm", words=True),
        *(column(measure, more=_SUMMARY) for measure in MEASURES),
    ]
    rows = [row for key in view.keys for arm in view.arms for row in _effect_rows(view, kind, key, arm)]
    return Table("sensitivity", text("arms.sensitivity"), columns, rows)


def _effect_rows(view: CampaignView, kind: str, key: str, arm: str) -> Iterable[list[Item]]:
    color = view.arms.index(arm)
    by_value: dict[str, dict[str, SeedSummary]] = {}
    values: dict[str, Any] = {}
    for measure in MEASURES:
        for effect in effects(view, kind, arm, key, measure):
            values[repr(effect.value)] = effect.value
            by_value.setdefault(repr(effect.value), {})[measure] = effect.summary
    for name, found in by_value.items():
        yield [word(key), word(shown(values[name])), Item(arm, arm, color=color), *_summaries(found)]


def _summaries(found: Mapping[str, SeedSummary]) -> list[Item]:
    items = []
    for measure in MEASURES:
        own = found.get(measure)
        missing = Item(None, wording.MISSING)
        items.append(missing if own is None else Item(own.mean, mean_sd(measure, own), more=summary_more(own)))
    return items


def heats(view: CampaignView, kind: str) -> list[dict[str, Any]]:
    """Heat maps: for each pair of keys, each arm and two measures, the values as rows with a shade from 0 to 1."""
    found = []
    for pair in combinations(view.keys, 2):
        for measure in (ACCURACY, "mse"):
            maps = [(arm, heat(view, kind, arm, pair, measure)) for arm in view.arms]
            known = [value for _, own in maps for value in own.values()]
            shades = _shades(known)
            for arm, own in maps:
                if len(own) > 1:
                    found.append({"keys": pair, "arm": arm, "color": view.arms.index(arm), "measure": measure}
                                 | _grid(view, pair, own, measure, shades))  # fmt: skip
    return found


def _shades(known: Sequence[float]) -> tuple[float, float]:
    low, high = min(known, default=0.0), max(known, default=1.0)
    return low, high - low if high - low > 1e-12 else 1.0


def _grid(
    view: CampaignView,
    pair: tuple[str, str],
    own: Mapping[tuple[str, str], float],
    measure: str,
    shades: tuple[float, float],
) -> dict[str, Any]:
    sides = [{repr(group.point[key]): group.point[key] for group in view.groups if key in group.point} for key in pair]
    down, across = ([(name, shown(value)) for name, value in side.items()] for side in sides)
    used = {name for place in own for name in place}
    down, across = ([item for item in side if item[0] in used] for side in (down, across))
    rows = []
    for first, title in down:
        values = [own.get((first, second)) for second, _ in across]
        items = [
            (None, wording.MISSING) if v is None else ((v - shades[0]) / shades[1], said(measure, v)) for v in values
        ]
        rows.append((title, items))
    return {"across": [title for _, title in across], "rows": rows}


def classes(view: CampaignView, kind: str) -> Table:
    """What the strongest attack recovers of every class, by arm: means over seeds, the most exposed one marked."""
    columns = [
        column("arm", words=True),
        column("class", words=True),
        column("class_mse", more=("sd",)),
        column("class_p05"),
        column(ACCURACY),
    ]
    rows = [row for group in view.groups for row in _class_rows(group, kind)]
    return Table("classes", text("arms.classes"), columns, rows)


def _class_rows(group: Group, kind: str) -> Iterable[list[Item]]:
    audits = [entry.audits[kind] for entry in group.cells if kind in entry.audits and entry.audits[kind].strongest]
    risks = [audit.risk for audit in audits if audit.risk]
    count = max((len(risk.per_class) for risk in risks), default=0)
    means = [_mean([risk.per_class[label] for risk in risks if label < len(risk.per_class)]) for label in range(count)]
    exposed = min((mean for mean in means if mean is not None), default=None)
    for label, mean in enumerate(means):
        ends = _mean([risk.per_class_p05[label] for risk in risks if label < len(risk.per_class_p05)])
        own = [audit.accuracy.per_class for audit in audits if audit.accuracy]
        right = _mean([part[label] for part in own if label < len(part)])
        name = wording.class_name(audits[0].subject.class_names, label)
        if mean is not None:
            yield [
                Item(group.label, group.label, color=group.color),
                word(name),
                number(mean, tone="exposed" if mean == exposed else ""),
                number(ends),
                Item(right, wording.percent(right, unit="")),
            ]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return plain.fmean(known) if known else None


def standings(view: CampaignView, kind: str) -> Table:
    """Where each arm stands on the front, for every error."""
    columns = [
        column("arm", words=True),
        column("measure", words=True),
        column("standing", words=True),
        column("share"),
    ]
    colors, useless = {group.label: group.color for group in view.groups}, lost(view, kind)
    rows = [
        [
            Item(label, label, text("arms.lost") if label in useless else "", color=colors[label]),
            Item(measure, text(f"measure.{measure}")),
            Item(point.standing, text(f"arms.standing.{point.standing}")),
            Item(point.share, wording.percent(point.share, 0)),
        ]
        for measure in ERRORS
        for label, point in front(view, kind, measure).items()
    ]
    return Table("front", text("arms.front"), columns, rows)


def lacking(view: CampaignView) -> Table:
    """Cells that are not done, with the reason."""
    columns = [
        column("cell", words=True),
        column("state", words=True),
        column("reason", words=True),
    ]
    rows = [
        [
            Item(entry.cell.id, entry.cell.id, cell=entry.cell.id),
            Item(entry.view.state, text(f"arms.state.{entry.view.state}")),
            word(entry.view.reason),
        ]
        for entry in view.cells
        if entry.view.state != "done"
    ]
    return Table("lacking", text("arms.lacking"), columns, rows)
