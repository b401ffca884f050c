"""The tables of a campaign's report. A column is declared once, with the function that makes its entry from a row."""

from __future__ import annotations

import math
import statistics as plain
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from typing import Any, NamedTuple

from attncem.base.texts import text
from attncem.records.audit import Row
from attncem.records.comparison import Comparison, FrontPoint, SeedSummary
from attncem.records.leaks import BEYOND, CONTRARY, LIMIT, OVER_ALL, SHARE
from attncem.records.statistics import seed_summary
from attncem.records.study import ACCURACY, AuditKind, Spread, spread_of
from attncem.records.study.campaign import short_value
from attncem.reporting import answers, on_device, wording
from attncem.reporting import table_formats as made
from attncem.reporting.campaign.columns import WORDS, arm_notes, cell_leak, leak_field, measure_title, unlike
from attncem.reporting.campaign.columns import arm_item as _arm
from attncem.reporting.campaign.columns import field as _field
from attncem.reporting.campaign.columns import over_seeds as _over_seeds
from attncem.reporting.campaign.columns import spread_field as _spread
from attncem.reporting.campaign.load import (
    ERRORS,
    Judged,
    JudgedArm,
    JudgedCell,
    compared,
    lost,
    training_seconds,
)
from attncem.reporting.client_costs import CLIENT, LATER, TIMES, client_cost
from attncem.reporting.table_formats import SUMMARY, Item, Table, said, word

_COSTS = ("server_parameters", "server_macs", "bytes_per_query")
_LEAKS = (LIMIT, OVER_ALL, SHARE, BEYOND, *CONTRARY)
"""Numbers of the leak in the headline."""
COLUMNS = (
    *WORDS, *CLIENT, *_COSTS, "seeds", "accuracy", "seed", "training", "reliable", "attack_seconds", "difference", "p",
    "adjusted_p", "epochs", "memory", "ratio", "value", "class_mse", "class_p05", "share", "server_adds",
    "head_alone", "all_sent", "sending_adds",
)  # fmt: skip
"""Columns whose titles are in the catalogue, under `arms.column.NAME`; text columns first."""
MANY_CLASSES = 12
"""With more classes than this, the page shows only the table of classes, not the matrix."""


def _seconds(seconds: float | None) -> Item:
    return Item(seconds, wording.seconds(seconds))


def headline(study: Judged, kind: AuditKind, name: str = "headline") -> Table:
    """Arms as rows: accuracy and the strongest attack's measures over seeds, if the audit has attacks."""
    useless = lost(study, kind)
    notes = arm_notes(study, kind, useless)

    def seeds(arm: JudgedArm) -> Item:
        count, planned = max(len(arm.values(measure, kind)) for measure in (ACCURACY, *ERRORS)), len(arm.cells)
        return Item(count, str(count) if count == planned else text("arms.of", count=count, planned=planned))

    def attack(arm: JudgedArm) -> Item:
        """The strongest attack of most seeds."""
        names = Counter(audit.strongest for audit in arm.attacked(kind)) or Counter([""])
        note = answers.by_state(arm, kind)
        return made.row_item(names.most_common(1)[0][0], small=note)

    attacked = [_field("attack", attack), *(_spread(measure, _over_seeds(kind)) for measure in ERRORS)]
    fields: list[made.Field[JudgedArm]] = [
        _field("arm", lambda arm: _arm(arm, small=notes[arm.label], cell=arm.cells[0].id)),
        _field("seeds", seeds),
        _spread(ACCURACY, _over_seeds(kind)),
        *_server_adds(study, kind),
        *(attacked if any(arm.attacked(kind) for arm in study.arms) else []),
        *(leak_field(measure, kind) for measure in study.leaks(kind) if measure in _LEAKS),
    ]
    table = made.table(name, text("arms.headline"), fields, study.arms)
    return made.with_best(table, list(useless), unlike(study, kind))


def _server_adds(study: Judged, kind: AuditKind) -> list[made.Field[JudgedArm]]:
    """The column with what the server adds to the client alone; none where no reference is known."""
    known = on_device.worths(study, kind)
    column: made.Field[JudgedArm] = _field(
        "server_adds", lambda arm: on_device.points_item(known.get(arm.label)), ("low", "high")
    )
    return [column] if known else []


class _CellRow(NamedTuple):
    arm: JudgedArm
    cell: JudgedCell
    kind: AuditKind | None


def cells(study: Judged) -> Table:
    """Every cell with its numbers; with several kinds of audit, one row per kind."""
    tones = {"failed": "no", "done": "yes"}
    rows = [
        _CellRow(arm, cell, kind)
        for arm in study.arms
        for cell in (*arm.cells, *arm.others)
        for kind in tuple(kind for kind in study.kinds if kind in cell.audits) or (None,)
    ]
    fields: list[made.Field[_CellRow]] = [
        _field("cell", lambda row: word(row.cell.id, cell=row.cell.id)),
        _field("arm", lambda row: _arm(row.arm)),
        _field("seed", lambda row: word(row.cell.seed)),
        _field("state", lambda row: _state(row.cell, tone=tones.get(row.cell.state, ""))),
        *_kind(study),
        _score(ACCURACY),
        _field("attack", lambda row: made.row_item(audit.strongest if (audit := row.cell.audit(row.kind)) else "")),
        *map(_score, ERRORS),
        *map(cell_leak, study.leaks(study.kinds[0]) if study.kinds else ()),
        _field("training", lambda row: _seconds(row.cell.training_seconds)),
    ]
    return made.table("cells", text("arms.cells"), fields, rows)


def _kind(study: Judged) -> list[made.Field[Any]]:
    """The column for the kind of audit; none where there is only one kind."""
    return [_field("audit", lambda row: word(str(row.kind or "")))] if len(study.kinds) > 1 else []


def _state(cell: JudgedCell, tone: str = "") -> Item:
    return Item(cell.state, text(f"arms.state.{cell.state}"), tone=tone)


def _score(measure: str) -> made.Field[_CellRow]:
    def entry(row: _CellRow) -> Item:
        score = row.cell.score(measure, row.kind)
        if score is None:
            return Item(None, wording.MISSING)
        return Item(score.mean, said(measure, score.mean), more={"low": score.low, "high": score.high})

    return _field(measure, entry, ("low", "high"))


class _AttackRow(NamedTuple):
    kind: AuditKind
    arm: JudgedArm
    rows: Sequence[Row]


def attacks(study: Judged) -> Table:
    """Every attack and floor on every arm, over seeds."""

    def spread(of: _AttackRow, measure: str) -> Spread | None:
        return spread_of([row.scores[measure] for row in of.rows if measure in row.scores])

    def attack(of: _AttackRow) -> Item:
        return made.row_item(of.rows[0].name, small=text("arms.floor") if of.rows[0].kind == "floor" else "")

    def reliable(of: _AttackRow) -> Item:
        count, total = sum(row.verdict.reliable for row in of.rows), len(of.rows)
        return Item(count / total, text("arms.of", count=count, planned=total))

    fields: list[made.Field[_AttackRow]] = [
        *_kind(study),
        _field("attack", attack),
        _field("arm", lambda of: _arm(of.arm)),
        _field("seeds", lambda of: word(len(of.rows))),
        *(_spread(measure, spread) for measure in ERRORS),
        _field("reliable", reliable),
        _field("attack_seconds", lambda of: _seconds(plain.fmean(row.seconds for row in of.rows))),
    ]
    return made.table("attacks", text("arms.attacks"), fields, _attack_rows(study))


def _attack_rows(study: Judged) -> Iterator[_AttackRow]:
    for kind in study.kinds:
        names = dict.fromkeys(row.name for _, _, audit in study.pairs(kind) for row in audit.attacks)
        for name in names:
            for arm in study.arms:
                rows = [row for audit in arm.audits(kind) for row in audit.attacks if row.name == name]
                if rows:
                    yield _AttackRow(kind, arm, rows)


def comparisons(study: Judged, kind: AuditKind) -> Table:
    """Every arm against every reference arm; each row is marked with its reference."""
    arms = {arm.label: arm for arm in study.arms}

    def difference(test: Comparison) -> Item:
        more = {"low": test.low, "high": test.high, "count_arm": test.count_a, "count_reference": test.count_b}
        ends = made.interval(test.measure, test.low, test.high)
        return Item(test.difference, said(test.measure, test.difference), ends, more)

    fields: list[made.Field[Comparison]] = [
        _field("reference", lambda test: _arm(arms[test.b])),
        _field("arm", lambda test: _arm(arms[test.a])),
        _field("measure", lambda test: Item(test.measure, measure_title(test.measure))),
        _field("difference", difference, ("low", "high", "count_arm", "count_reference")),
        _field("p", lambda test: made.number(test.p)),
        _field("adjusted_p", lambda test: made.number(test.adjusted_p)),
        _field("verdict", lambda test: Item(test.verdict, text(f"arms.verdict.{test.verdict}"))),
    ]
    measures = compared(study, kind)
    tests = [(name, test) for name in study.names for test in study.against(name, kind, measures).values()]
    marks = [name for name, _ in tests]
    return made.table("tests", text("arms.tests"), fields, [test for _, test in tests], marks)


def costs(study: Judged, kind: AuditKind) -> Table:
    """Costs of each arm's training and use, and its privacy."""
    spent = {arm.label: seed_summary(seconds) for arm in study.arms if (seconds := training_seconds(arm))}
    first = next(iter(spent.values()), None)
    trained = {arm.label: cell for arm in study.arms for cell in reversed(arm.cells) if cell.manifest}

    def training(arm: JudgedArm) -> Item:
        summary = spent.get(arm.label)
        if summary is None:
            return Item(None, wording.MISSING)
        sd = "" if summary.sd is None else f"± {wording.seconds(summary.sd)}"
        return Item(summary.mean, wording.seconds(summary.mean), sd, made.summary_more(summary))

    def ratio(arm: JudgedArm) -> Item:
        summary = spent.get(arm.label)
        times = summary.mean / first.mean if summary and first else None
        return Item(times, wording.MISSING if times is None else f"{times:.2f} ×")

    def epochs(arm: JudgedArm) -> Item:
        config = trained[arm.label].config if arm.label in trained else None
        return word(config.training.epochs if config else None)

    def count(arm: JudgedArm, name: str) -> Item:
        manifest = trained[arm.label].manifest if arm.label in trained else {}
        return Item(manifest.get(name), wording.count(manifest.get(name)))  # runs of older versions lack it

    def client(arm: JudgedArm, name: str) -> Item:
        return client_cost(name, [cell.manifest for cell in reversed(arm.cells) if cell.manifest])

    def memory(arm: JudgedArm) -> Item:
        """The peak of a training; that of a process grows with the runs before it and says nothing about the arm."""
        manifest = trained[arm.label].manifest if arm.label in trained else {}
        alone = manifest.get("peak_memory_of") == "training" or manifest.get("device", "cpu") != "cpu"
        return count(arm, "peak_memory_bytes") if alone else Item(None, wording.MISSING)

    fields: list[made.Field[JudgedArm]] = [
        _field("arm", lambda arm: _arm(arm, cell=arm.cells[0].id)),
        _field("training", training, SUMMARY),
        _field("ratio", ratio),
        _field("epochs", epochs),
        _field("memory", memory),
        *(_field(name, partial(client, name=name), ("cpu",) if name in TIMES else ()) for name in CLIENT),
        *(_field(name, partial(count, name=name)) for name in _COSTS),
        *(_spread(measure, _over_seeds(kind)) for measure in (ACCURACY, "mse")),
    ]
    return made.without_empty(made.table("costs", text("arms.costs"), fields, study.arms), LATER)


class _EffectRow(NamedTuple):
    key: str
    value: object
    name: str
    summaries: dict[str, SeedSummary]


def sensitivity(study: Judged, kind: AuditKind) -> Table:
    """Accuracy, errors and the leak at every value of every key of the grids, by arm."""
    measures = compared(study, kind)

    def summary(measure: str) -> made.Field[_EffectRow]:
        def entry(row: _EffectRow) -> Item:
            seeds = row.summaries.get(measure)
            if seeds is None:
                return Item(None, wording.MISSING)
            return Item(seeds.mean, made.mean_sd(measure, seeds), more=made.summary_more(seeds))

        return _field(measure, entry, SUMMARY)

    fields: list[made.Field[_EffectRow]] = [
        _field("key", lambda row: word(row.key)),
        _field("value", lambda row: word(short_value(row.value))),
        _field("arm", lambda row: word(row.name, color=study.names.index(row.name))),
        *map(summary, measures),
    ]
    rows: dict[tuple[str, str, str], _EffectRow] = {}
    for key, name, measure in product(study.options, study.names, measures):
        for effect in study.effects(key, name, measure, kind):
            row = _EffectRow(key, effect.value, name, {})
            rows.setdefault((key, name, repr(effect.value)), row).summaries[measure] = effect.summary
    return made.table("sensitivity", text("arms.sensitivity"), fields, rows.values())


@dataclass(frozen=True)
class Heat:
    """The means of one method's measure at every pair of values of two options, keyed by their repr."""

    name: str
    color: int
    pair: tuple[str, str]
    measure: str
    values: Mapping[tuple[str, str], float]

    def names(self, side: int) -> list[str]:
        """The values of one of the options: 0 for rows, 1 for columns."""
        return list(dict.fromkeys(place[side] for place in self.values))


def heats(study: Judged, kind: AuditKind) -> list[Heat]:
    """A heat map for each pair of keys, each of two measures and each method."""
    return [
        Heat(name, color, pair, measure, values)
        for pair in combinations(study.options, 2)
        for measure in (ACCURACY, "mse")
        for color, name in enumerate(study.names)
        if len(values := study.heat(pair, name, measure, kind)) > 1
    ]


def heat_tables(study: Judged, kind: AuditKind) -> list[tuple[Heat, list[str], list[Any]]]:
    """The heat maps for the page: rows of values, each with a shade from 0 to 1 on a scale that all methods share."""
    maps = heats(study, kind)
    short = {repr(value): short_value(value) for arm in study.arms for value in arm.point.values()}
    shown = []
    for heat in maps:
        alike = [it.values.values() for it in maps if (it.pair, it.measure) == (heat.pair, heat.measure)]
        low, high = min(map(min, alike)), max(map(max, alike))
        span = high - low if high - low > 1e-12 else 1.0
        across, rows = heat.names(1), []
        for first in heat.names(0):
            values = [heat.values.get((first, second)) for second in across]
            items = [(None if v is None else (v - low) / span, said(heat.measure, v)) for v in values]
            rows.append((short[first], items))
        shown.append((heat, [short[name] for name in across], rows))
    return shown


class _ClassRow(NamedTuple):
    arm: JudgedArm
    name: str
    mse: float
    p05: float | None
    accuracy: float | None
    is_exposed: bool


def classes(study: Judged, kind: AuditKind) -> Table:
    """The strongest attack's recovery of every class, by arm: means over seeds; the most exposed class is marked."""
    fields: list[made.Field[_ClassRow]] = [
        _field("arm", lambda row: _arm(row.arm)),
        _field("class", lambda row: word(row.name)),
        _field("class_mse", lambda row: made.number(row.mse, tone="exposed" if row.is_exposed else ""), ("sd",)),
        _field("class_p05", lambda row: made.number(row.p05)),
        _field(ACCURACY, lambda row: Item(row.accuracy, said(ACCURACY, row.accuracy))),
    ]
    rows = (row for arm in study.arms for row in _class_rows(arm, kind))
    return made.table("classes", text("arms.classes"), fields, rows)


def _class_rows(arm: JudgedArm, kind: AuditKind) -> Iterator[_ClassRow]:
    audits = arm.attacked(kind)
    risks = [audit.risk for audit in audits if audit.risk]
    errors = _class_means([risk.per_class for risk in risks])
    ends = _class_means([risk.per_class_p05 for risk in risks])
    accuracies = _class_means([audit.accuracy.per_class for audit in audits if audit.accuracy])
    least = min(errors.values(), default=None)
    for label, mse in errors.items():
        name = wording.class_name(audits[0].subject.class_names, label)
        yield _ClassRow(arm, name, mse, ends.get(label), accuracies.get(label), mse == least)


def _class_means(seeds: Sequence[Sequence[float | None]]) -> dict[int, float]:
    """The mean over seeds for each class that has a number."""
    numbers: dict[int, list[float]] = {}
    for values in seeds:
        for label, value in enumerate(values):
            if value is not None and math.isfinite(value):
                numbers.setdefault(label, []).append(value)
    return {label: plain.fmean(numbers[label]) for label in sorted(numbers)}


def standings(study: Judged, kind: AuditKind) -> Table:
    """The position of each arm relative to the front, for every error."""
    notes = dict.fromkeys(lost(study, kind), text("arms.lost"))
    arms = {arm.label: arm for arm in study.arms}
    fields: list[made.Field[tuple[str, FrontPoint]]] = [
        _field("arm", lambda row: _arm(arms[row[1].name], small=notes.get(row[1].name, ""))),
        _field("measure", lambda row: Item(row[0], measure_title(row[0]))),
        _field("standing", lambda row: Item(row[1].standing, text(f"arms.standing.{row[1].standing}"))),
        _field("share", lambda row: Item(row[1].share, wording.percent(row[1].share, 0))),
    ]
    rows = [(measure, point) for measure in ERRORS for point in study.front(measure, kind).values()]
    return made.table("front", text("arms.front"), fields, rows)


def lacking(study: Judged) -> Table:
    """Unfinished cells, with the reason."""
    fields: list[made.Field[JudgedCell]] = [
        _field("cell", lambda cell: word(cell.id, cell=cell.id)),
        _field("state", _state),
        _field("reason", lambda cell: word(cell.reason)),
    ]
    return made.table("lacking", text("arms.lacking"), fields, [cell for cell in study.cells if cell.state != "done"])
