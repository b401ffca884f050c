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
from attncem.records.study import ACCURACY, AuditKind, spread_of
from attncem.records.study.campaign import short_value
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
from attncem.reporting.campaign.load import ERRORS, MEASURES, Judged, JudgedArm, JudgedCell
from attncem.reporting.campaign.numbers import ArmRow, arm_rows, lost
from attncem.reporting.table_formats import Item, Table

_SUMMARY = ("sd", "low", "high", "count")
_COSTS = ("client_parameters", "client_macs", "server_parameters", "server_macs", "bytes_per_query")
NO_AUDIT: list[AuditKind | None] = [None]
MANY_CLASSES = 12
"""With more classes than this the table shows the most exposed one of each arm alone."""


def headline(study: Judged, kind: AuditKind, name: str = "headline") -> Table:
    """Arms as rows: accuracy and the strongest attack's measures over seeds."""
    columns = [
        column("arm", words=True),
        column("seeds"),
        column(ACCURACY, more=SPREAD),
        column("attack", words=True),
        *(column(measure, more=SPREAD) for measure in ERRORS),
    ]
    useless = lost(study, kind)
    rows = [_headline_row(row, is_lost=row.arm.label in useless) for row in arm_rows(study, kind)]
    return Table(name, text("arms.headline"), columns, rows)


def _headline_row(row: ArmRow, *, is_lost: bool) -> list[Item]:
    measured = {measure: spread_item(measure, row.spreads.get(measure)) for measure in MEASURES}
    note = text("arms.unreliable", count=row.unreliable) if row.unreliable else ""
    planned = len(row.arm.cells)
    seeds = str(row.count) if row.count == planned else text("arms.of", count=row.count, planned=planned)
    return [
        replace(arm_item(row.arm), small=text("arms.lost") if is_lost else ""),
        Item(row.count, seeds),
        measured[ACCURACY],
        row_item(row.attack, small=note),
        *(measured[name] for name in ERRORS),
    ]


def cells(study: Judged) -> Table:
    """Every cell with its numbers; one row for each kind of audit, where there are several."""
    several = len(study.kinds) > 1
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
        _cell_row(arm, cell, kind, several=several)
        for arm in study.arms
        for cell in arm.cells
        for kind in [kind for kind in study.kinds if kind in cell.audits] or NO_AUDIT
    ]
    return Table("cells", text("arms.cells"), columns, rows)


def _cell_row(arm: JudgedArm, cell: JudgedCell, kind: AuditKind | None, *, several: bool) -> list[Item]:
    state, audit = cell.state, cell.audits.get(kind) if kind else None
    tone = {"failed": "no", "done": "yes"}.get(state, "")
    return [
        Item(cell.id, cell.id, cell=cell.id),
        Item(arm.label, arm.label, color=arm.color),
        Item(cell.seed, str(cell.seed)),
        Item(state, text(f"arms.state.{state}"), tone=tone),
        *([word(str(kind or ""))] if several else []),
        _score_item(cell, kind, ACCURACY),
        row_item(audit.strongest if audit else ""),
        *(_score_item(cell, kind, measure) for measure in ERRORS),
        Item(cell.training_seconds, wording.seconds(cell.training_seconds)),
    ]


def _score_item(cell: JudgedCell, kind: AuditKind | None, measure: str) -> Item:
    score = cell.score(measure, kind)
    if score is None:
        return Item(None, wording.MISSING)
    return Item(score.mean, said(measure, score.mean), more={"low": score.low, "high": score.high})


def attacks(study: Judged) -> Table:
    """Every attack and floor on every arm, over seeds."""
    columns = [
        *([column("audit", words=True)] if len(study.kinds) > 1 else []),
        column("attack", words=True),
        column("arm", words=True),
        column("seeds"),
        *(column(measure, more=SPREAD) for measure in ERRORS),
        column("reliable"),
        column("attack_seconds"),
    ]
    rows = [row for kind in study.kinds for row in _attack_rows(study, kind)]
    return Table("attacks", text("arms.attacks"), columns, rows)


def _attack_rows(study: Judged, kind: AuditKind) -> Iterable[list[Item]]:
    names = dict.fromkeys(row.name for _, _, audit in study.pairs(kind) for row in audit.attacks)
    for name in names:
        for arm in study.arms:
            found = [row for audit in arm.audits(kind) for row in audit.attacks if row.name == name]
            if not found:
                continue
            scores = {key: spread_of([row.scores[key] for row in found if key in row.scores]) for key in ERRORS}
            reliable, seconds = sum(row.verdict.reliable for row in found), plain.fmean(row.seconds for row in found)
            floor = text("arms.floor") if found[0].kind == "floor" else ""
            yield [
                *([word(str(kind or ""))] if len(study.kinds) > 1 else []),
                row_item(name, small=floor),
                Item(arm.label, arm.label, color=arm.color),
                Item(len(found), str(len(found))),
                *(spread_item(key, scores[key]) for key in ERRORS),
                Item(reliable / len(found), text("arms.of", count=reliable, planned=len(found))),
                Item(seconds, wording.seconds(seconds)),
            ]


def comparisons(study: Judged, kind: AuditKind) -> Table:
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
    found = [(arm, item) for arm in study.names for item in study.against(arm, kind, MEASURES).values()]
    colors = {arm.label: arm.color for arm in study.arms}
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


def costs(study: Judged, kind: AuditKind) -> Table:
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
    first = next((found for arm in study.arms if (found := _training(arm))), None)
    rows = [_cost_row(arm, kind, first) for arm in study.arms]
    return Table("costs", text("arms.costs"), columns, rows)


def _training(arm: JudgedArm) -> SeedSummary | None:
    seconds = [cell.training_seconds for cell in arm.cells if cell.training_seconds is not None]
    return seed_summary(seconds) if seconds else None


def _cost_row(arm: JudgedArm, kind: AuditKind, first: SeedSummary | None) -> list[Item]:
    own = _training(arm)
    ratio = own.mean / first.mean if own and first else None
    trained = next((cell for cell in arm.cells if cell.manifest), None)
    manifest = trained.manifest if trained else {}
    config = trained.config if trained else None
    memory = manifest.get("peak_memory_bytes")  # absent in runs of older versions
    spent = wording.MISSING if own is None else wording.seconds(own.mean)
    varied = "" if own is None or own.sd is None else f"± {wording.seconds(own.sd)}"
    return [
        arm_item(arm),
        Item(own and own.mean, spent, varied, summary_more(own) if own else {}),
        Item(ratio, wording.MISSING if ratio is None else f"{ratio:.2f} ×"),
        word(config.training.epochs if config else None),
        Item(memory, wording.count(memory)),
        *(Item(manifest.get(name), wording.count(manifest.get(name))) for name in _COSTS),
        spread_item(ACCURACY, arm.summary(ACCURACY, kind)),
        spread_item("mse", arm.summary("mse", kind)),
    ]


def sensitivity(study: Judged, kind: AuditKind) -> Table:
    """Accuracy and errors at every value of every key of the grids, by arm."""
    columns = [
        column("key", words=True),
        column("value"),
        column("arm", words=True),
        *(column(measure, more=_SUMMARY) for measure in MEASURES),
    ]
    rows = [row for key in study.options for arm in study.names for row in _effect_rows(study, kind, key, arm)]
    return Table("sensitivity", text("arms.sensitivity"), columns, rows)


def _effect_rows(study: Judged, kind: AuditKind, key: str, arm: str) -> Iterable[list[Item]]:
    color = study.names.index(arm)
    by_value: dict[str, dict[str, SeedSummary]] = {}
    values: dict[str, Any] = {}
    for measure in MEASURES:
        for effect in study.effects(key, arm, measure, kind):
            values[repr(effect.value)] = effect.value
            by_value.setdefault(repr(effect.value), {})[measure] = effect.summary
    for name, found in by_value.items():
        yield [word(key), word(short_value(values[name])), Item(arm, arm, color=color), *_summaries(found)]


def _summaries(found: Mapping[str, SeedSummary]) -> list[Item]:
    items = []
    for measure in MEASURES:
        own = found.get(measure)
        missing = Item(None, wording.MISSING)
        items.append(missing if own is None else Item(own.mean, mean_sd(measure, own), more=summary_more(own)))
    return items


def heats(study: Judged, kind: AuditKind) -> list[dict[str, Any]]:
    """Heat maps: for each pair of keys, each arm and two measures, the values as rows with a shade from 0 to 1."""
    found = []
    for pair in combinations(study.options, 2):
        for measure in (ACCURACY, "mse"):
            maps = [(arm, study.heat(pair, arm, measure, kind)) for arm in study.names]
            known = [value for _, own in maps for value in own.values()]
            shades = _shades(known)
            for arm, own in maps:
                if len(own) > 1:
                    found.append({"keys": pair, "arm": arm, "color": study.names.index(arm), "measure": measure}
                                 | _grid(study, pair, own, measure, shades))  # fmt: skip
    return found


def _shades(known: Sequence[float]) -> tuple[float, float]:
    low, high = min(known, default=0.0), max(known, default=1.0)
    return low, high - low if high - low > 1e-12 else 1.0


def _grid(
    study: Judged,
    pair: tuple[str, str],
    own: Mapping[tuple[str, str], float],
    measure: str,
    shades: tuple[float, float],
) -> dict[str, Any]:
    sides = [{repr(arm.point[key]): arm.point[key] for arm in study.arms if key in arm.point} for key in pair]
    down, across = ([(name, short_value(value)) for name, value in side.items()] for side in sides)
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


def classes(study: Judged, kind: AuditKind) -> Table:
    """What the strongest attack recovers of every class, by arm: means over seeds, the most exposed one marked."""
    columns = [
        column("arm", words=True),
        column("class", words=True),
        column("class_mse", more=("sd",)),
        column("class_p05"),
        column(ACCURACY),
    ]
    rows = [row for arm in study.arms for row in _class_rows(arm, kind)]
    return Table("classes", text("arms.classes"), columns, rows)


def _class_rows(arm: JudgedArm, kind: AuditKind) -> Iterable[list[Item]]:
    audits = arm.attacked(kind)
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
                Item(arm.label, arm.label, color=arm.color),
                word(name),
                number(mean, tone="exposed" if mean == exposed else ""),
                number(ends),
                Item(right, wording.percent(right, unit="")),
            ]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return plain.fmean(known) if known else None


def standings(study: Judged, kind: AuditKind) -> Table:
    """Where each arm stands on the front, for every error."""
    columns = [
        column("arm", words=True),
        column("measure", words=True),
        column("standing", words=True),
        column("share"),
    ]
    colors, useless = {arm.label: arm.color for arm in study.arms}, lost(study, kind)
    rows = [
        [
            Item(label, label, text("arms.lost") if label in useless else "", color=colors[label]),
            Item(measure, text(f"measure.{measure}")),
            Item(point.standing, text(f"arms.standing.{point.standing}")),
            Item(point.share, wording.percent(point.share, 0)),
        ]
        for measure in ERRORS
        for label, point in study.front(measure, kind).items()
    ]
    return Table("front", text("arms.front"), columns, rows)


def lacking(study: Judged) -> Table:
    """Cells that are not done, with the reason."""
    columns = [
        column("cell", words=True),
        column("state", words=True),
        column("reason", words=True),
    ]
    rows = [
        [
            Item(cell.id, cell.id, cell=cell.id),
            Item(cell.state, text(f"arms.state.{cell.state}")),
            word(cell.reason),
        ]
        for cell in study.cells
        if cell.state != "done"
    ]
    return Table("lacking", text("arms.lacking"), columns, rows)
