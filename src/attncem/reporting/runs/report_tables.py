"""The report's tables, each with unrounded numbers for its CSV file."""

from __future__ import annotations

import statistics as plain
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from markupsafe import Markup

from attncem.base.texts import text, translated
from attncem.base.texts.titles import row_title
from attncem.records.audit import Row
from attncem.records.leaks import LEAKS, private_of, unit_of
from attncem.records.metrics import METRICS, shown_in
from attncem.records.score import Score
from attncem.records.statistics import seed_summary
from attncem.records.study import ACCURACY, spread_of
from attncem.reporting import answers, wording
from attncem.reporting.client_costs import LATER, TIMES, client_cost
from attncem.reporting.places import run_place
from attncem.reporting.runs import leaks, units
from attncem.reporting.runs import repeated_releases as asking
from attncem.reporting.runs.methods import Entry, Method
from attncem.reporting.runs.sending import name_item
from attncem.reporting.runs.tables import Cells, Guess, attack_rows, class_tables, guesses
from attncem.reporting.table_formats import (
    SPREAD,
    Column,
    Field,
    Item,
    Table,
    leak_item,
    leak_more,
    mean_sd,
    number,
    row_item,
    said,
    spread_item,
    table,
    without_empty,
    word,
)

MAIN = shown_in("table")
"""Measures that are always shown; the others are hidden at first."""
FOLDED = ("mse", "ssim")
"""Measures in the short line of an attack on a narrow screen."""
NOTED = (
    "accuracy", "exposed", "penalty_weight", "noise", "training", "cost", "query", "releases", "units", "taken_off",
    *LATER,
)  # fmt: skip
"""Columns with a note in the catalogue, under `report.column.NAME.note`."""
MISSING = Item(None, wording.MISSING)
COLUMNS = (
    "run", "suite", "threat", "accuracy", "strongest", "exposed", "reliable", "state", "surrogate", "penalty_weight",
    "noise", "training", "client", "server", "query", "guess", "of", "attack", "kind", "releases", "units", "gain",
    "parameters", "time", "taken_off", "class", *LATER,
)  # fmt: skip
"""Columns whose titles are in the catalogue, under `report.column.NAME`."""
OF_CLASS = ("accuracy", "mse", "exposed")
"""Numbers of a class; their titles are under `report.classes.NAME`."""


def _column(key: str, *, words: bool = False, more: Sequence[str] = (), extra: bool = False, note: str = "") -> Column:
    """A column with its catalogue title; ``note`` names a note there; a measure shows its unit and direction."""
    if key in METRICS or key in LEAKS:
        unit, private = unit_of(key), private_of(key) and text(f"report.private.{private_of(key)}")
        title = text(f"measure.{key}")
        card = text("leak.in_unit", title=title, unit=unit) if key in LEAKS and unit else ""
        return Column(key, title, ", ".join(filter(None, (unit, private))), words, more, extra, card)
    small = text(f"report.column.{note}.note") if note else ""
    return Column(key, text(f"report.column.{key}"), small, words, more, extra)


# the headline


class _Model(NamedTuple):
    """A method and the cells of its runs; values that all runs share are taken from the first."""

    method: Method
    cells: Sequence[Cells]

    @property
    def first(self) -> Cells:
        return self.cells[0]


def headline_table(methods: Sequence[Method], cells: Sequence[Cells], *, mixed: bool) -> Table:
    """One row per method; for several seeds, mean ± sd."""
    by_label = {row["label"]: row for row in cells if "label" in row}
    rows = [_Model(method, _cells_of(method, by_label)) for method in methods]
    return without_empty(table("headline", text("report.headline"), _headline_fields(methods, mixed), rows), LATER)


def seeds_table(methods: Sequence[Method], cells: Sequence[Cells], *, mixed: bool) -> Table | None:
    """The same table for the single runs of methods with several; None where there are none."""
    alone = [
        Method(entry.label, entry.name, method.color, [entry.run], [entry])
        for method in methods
        if method.several
        for entry in method.entries
    ]
    made = headline_table(alone, cells, mixed=mixed)
    return replace(made, name="seeds", title=text("report.headline.seeds")) if alone else None


def _cells_of(method: Method, by_label: dict[str, Cells]) -> list[Cells]:
    labels = [entry.label for entry in method.entries] or [run.label for run in method.runs]
    return [by_label[label] for label in labels]


def _headline_fields(methods: Sequence[Method], mixed: bool) -> list[Field[_Model]]:
    """The columns with their entries; suite and threat model where they differ, the leak where any model has it."""
    measured = [name for name in LEAKS if any(leaks.leaks_in(method.audits, name) for method in methods)]
    return [
        (_column("run", words=True), lambda it: name_item(it.method)),
        *((_column(key, words=True), _word_of(key)) for key in ("suite", "threat") if mixed),
        _measured(ACCURACY),
        (_column("strongest", words=True), lambda it: _strongest(it.method, it.first)),
        *map(_measured, MAIN),
        *map(_leak, measured),
        (
            _column("exposed", note="exposed"),
            lambda it: _over_seeds("mse", [score.p05 for score in it.method.scores("mse")]),
        ),
        (_column("state"), lambda it: _state(it.method)),
        (_column("surrogate", words=True, extra=True), _word_of("surrogate")),
        (_column("penalty_weight", extra=True, note="penalty_weight"), _number_of("penalty_weight")),
        (_column("noise", extra=True, note="noise"), _number_of("noise_std")),
        (_column("training", extra=True, more=("ratio",), note="training"), lambda it: _training(it.cells)),
        (_column("client", extra=True, more=("macs",), note="cost"), lambda it: _cost(it.first, "client")),
        *map(_client, LATER),
        (_column("server", extra=True, more=("macs",), note="cost"), lambda it: _cost(it.first, "server")),
        (
            _column("query", extra=True, note="query"),
            lambda it: Item(it.first["bytes_per_query"], wording.count(it.first["bytes_per_query"])),
        ),
    ]


def _measured(name: str) -> Field[_Model]:
    return _column(name, more=SPREAD, note=name), lambda it: spread_item(name, spread_of(it.method.scores(name)))


def _leak(name: str) -> Field[_Model]:
    """A number of the leak, or the command that measures it; the first ones are always shown."""

    def entry(it: _Model) -> Item:
        audits = it.method.audits
        missing = leaks.missing(audits, run_place(it.method.runs[0].path), name) if audits else ""
        return leak_item(name, leaks.leaks_in(audits, name), missing)

    return _column(name, more=leak_more(name), extra=name not in leaks.SHOWN), entry


def _client(name: str) -> Field[_Model]:
    more = ("cpu",) if name in TIMES else ()
    return _column(name, extra=True, more=more, note=name), lambda it: client_cost(name, it.cells)


def _word_of(key: str) -> Callable[[_Model], Item]:
    return lambda it: word(it.first[key])


def _number_of(key: str) -> Callable[[_Model], Item]:
    return lambda it: Item(it.first[key], wording.general(it.first[key]))


def _over_seeds(measure: str, values: Sequence[float]) -> Item:
    if not values:
        return MISSING
    summary = seed_summary(values)
    return Item(summary.mean, mean_sd(measure, summary))


def _strongest(method: Method, first: Cells) -> Item:
    """The strongest attack (of most seeds) and its error in familiar units, or why there is none."""
    if method.on_device:
        return Item(None, text("on_device.nothing"))
    if not method.entries:
        command = Markup("<code>{}</code>").format(first["command"])
        return Item(None, Markup(text("report.headline.unaudited", command=command)))
    attacked = [entry.audit.strongest_attack for entry in method.entries if entry.audit.strongest]
    if not attacked:
        return Item(None, text("report.headline.no_result"))
    name = Counter(row.name for row in attacked).most_common(1)[0][0]
    floor = any(row.kind == "floor" for row in attacked)
    worth = first["units"] if len(method.entries) == 1 else ""
    return row_item(name, small=text("report.headline.floor_wins") if floor else worth)


def _state(method: Method) -> Item:
    """The worst state of the seeds, and how many are in it."""
    states = [entry.audit.state for entry in method.entries]
    state = answers.worst(states)
    if state is None:
        return MISSING
    count = states.count(state)
    shown = answers.state_word(state)
    small = text("report.headline.reliable_of", count=count, total=len(states)) if len(states) > 1 else ""
    return Item(state, shown, small, tone="yes" if state == "reliable" else "no")


def _yes(fact: bool) -> Item:
    return Item(fact, text("report.yes") if fact else text("report.no"), tone="yes" if fact else "no")


def _training(cells: Sequence[Cells]) -> Item:
    """Training time relative to the first run's, over the seeds whose time is known."""
    spent, ratios = _known(cells, "training_seconds"), _known(cells, "training_ratio")
    ratio = plain.fmean(ratios) if ratios else None
    shown = wording.MISSING if ratio is None else f"{wording.decimal(ratio, 2)} ×"
    seconds = plain.fmean(spent) if spent else None
    return Item(seconds, shown, wording.seconds(seconds), {"ratio": ratio})


def _known(cells: Iterable[Cells], key: str) -> list[float]:
    return [row[key] for row in cells if row[key] is not None]


def _cost(cells: Cells, side: str) -> Item:
    parameters, macs = cells[f"{side}_parameters"], cells[f"{side}_macs"]
    return Item(parameters, wording.count(parameters), wording.count(macs), {"macs": macs})


# blind guesses


def guess_table(methods: Sequence[Method]) -> Table | None:
    """The guesses that see no release: one row if a guess is equally good for all models, otherwise one per model."""
    found = guesses([(entry.label, entry.audit) for method in methods for entry in method.entries])
    if not found:
        return None
    several = len(methods) > 1
    columns = [_column("guess", words=True), *([_column("of", words=True)] if several else [])]
    columns += [*(_column(name, more=SPREAD) for name in MAIN), _column("exposed")]
    rows = [row for guess in found for row in _guess_rows(guess, methods, several)]
    return Table("guesses", text("report.guesses"), columns, rows)


def _guess_rows(guess: Guess, methods: Sequence[Method], several: bool) -> list[list[Item]]:
    own = dict(guess.rows)
    if guess.alike:
        whose = [word(text("report.guess.all") if len(own) > 1 else guess.rows[0][0])] if several else []
        return [[row_item(guess.name), *whose, *_guess_numbers([guess.rows[0][1]])]]
    held = [(method, [own[entry.label] for entry in method.entries if entry.label in own]) for method in methods]
    return [
        [row_item(guess.name), *([Item(method.label, method.label, color=method.color)] if several else []), *numbers]
        for method, rows in held
        if rows and (numbers := _guess_numbers(rows))
    ]


def _guess_numbers(rows: Sequence[Row]) -> list[Item]:
    scores = [[row.scores[name] for row in rows if name in row.scores] for name in MAIN]
    exposed = _over_seeds("mse", [row.mse.p05 for row in rows])
    return [*(spread_item(name, spread_of(own)) for name, own in zip(MAIN, scores, strict=True)), exposed]


# all attacks


def attacks_table(entries: Sequence[Entry], *, worth: bool) -> Table:
    """Every row of every audit; below the name of a row without a measure, the reason."""
    others = [name for name in METRICS if name not in MAIN]
    columns = [
        _column("run", words=True),
        _column("attack", words=True),
        _column("kind", words=True),
        _column("releases", note="releases"),
        *([_column("units", words=True, note="units")] if worth else []),
        *(_column(name, more=("low", "high")) for name in MAIN),
        _column("reliable"),
        *(_column(name, more=("low", "high"), extra=True) for name in others),
        *(_column(name, extra=True) for name in ("gain", "parameters", "time")),
    ]
    found = attack_rows(entries)
    rows = [_attack_row(cells, [*MAIN, *others], worth) for cells in found]
    styles = [_style(cells, first=place == 0) for place, cells in enumerate(found)]
    return Table("attacks", text("report.attacks"), columns, rows, styles=styles, lines=[_line(it) for it in found])


def _style(cells: Cells, *, first: bool) -> str:
    return " ".join(["strongest"] * cells["strongest"] + ["first"] * (cells["first"] and not first))


def _attack_row(cells: Cells, measures: Sequence[str], worth: bool) -> list[Item]:
    row: Row = cells["attack"]
    scores = [_score(name, row.scores.get(name) if cells["judged"] else None) for name in measures]
    verdict = row.verdict
    return [
        Item(cells["label"], cells["label"], color=cells["color"]),
        row_item(row.name, notes=[*cells["notes"], *_without_measure(cells)]),
        Item(row.kind, text(f"report.kind.{row.kind}"), tone="no" if row.outcome == "failed" else ""),
        Item(row.releases, wording.describe_sight(row)),
        *([word(cells["units"])] if worth else []),
        *scores[: len(MAIN)],
        _yes(verdict.reliable) if cells["judged"] else MISSING,
        *scores[len(MAIN) :],
        Item(verdict.gain_of_doubling, wording.percent(verdict.gain_of_doubling)) if cells["judged"] else MISSING,
        Item(verdict.num_parameters, wording.count(verdict.num_parameters)) if cells["judged"] else MISSING,
        Item(row.seconds, wording.seconds(row.seconds)),
    ]


def _line(cells: Cells) -> list[str]:
    """A row in short: its name and its first measures, or its kind or outcome where it has none."""
    row: Row = cells["attack"]
    name = row_title(row.name)
    if not cells["judged"]:
        return [name, text(f"report.kind.{row.kind}") if row.ok else text(f"report.outcome.{row.outcome}")]
    found = {key: said(key, row.scores[key].mean) for key in FOLDED if key in row.scores}
    return [
        name,
        *(text("report.attacks.line", measure=text(f"measure.{key}"), value=it) for key, it in found.items()),
    ]


def _without_measure(cells: Cells) -> list[str]:
    """Text for a row without a measure: the numbers of a certificate or a probe, or why there is no result."""
    row: Row = cells["attack"]
    if row.ok:
        return [] if cells["judged"] else list(cells["said"])
    return [text("report.outcome.reason", outcome=text(f"report.outcome.{row.outcome}"), reason=translated(row.why))]


def _score(name: str, score: Score | None) -> Item:
    if score is None:
        return MISSING
    ends = f"[{said(name, score.low)}, {said(name, score.high)}]" if name in MAIN[:2] else ""
    return Item(score.mean, said(name, score.mean), ends, {"low": score.low, "high": score.high})


# repeated releases


def asking_table(block: asking.Block, place: int, *, worth: bool) -> Table:
    """The part of the error that further releases of each image remove."""
    columns = [
        _column("attack", words=True),
        _column("releases", note="releases"),
        _column("mse", more=("low", "high")),
        *([_column("units", words=True, note="units")] if worth else []),
        _column("taken_off", more=("low", "high"), note="taken_off"),
    ]
    rows = [
        [
            row_item(answer.row.name),
            Item(answer.row.releases, wording.describe_sight(answer.row)),
            _score("mse", answer.row.mse),
            *([word(units.short(block.entry.audit.plan.units, answer.row.mse.mean))] if worth else []),
            _taken_off(answer),
        ]
        for answer in block.answers
    ]
    return Table(f"asking-{place}", text("report.asking.region", run=block.entry.label), columns, rows)


def _taken_off(answer: asking.Answer) -> Item:
    found = answer.averaging
    if found is None:
        return MISSING
    return Item(found.gain, asking.taken_off(found), more={"low": found.low, "high": found.high})


# classes


def classes_tables(methods: Sequence[Method]) -> list[Table]:
    """One table per data set: accuracy, error and its lower end of each class for each method."""
    return [_class_table(part, place) for place, part in enumerate(class_tables(methods))]


def _class_table(part: Cells, place: int) -> Table:
    keys = OF_CLASS if part["ends"] else OF_CLASS[:2]
    columns = [_column("class", words=True)]
    columns += [_class_column(method, key) for method in part["methods"] for key in keys]
    rows = [
        [word(row["name"]), *(item for cell in row["cells"] for item in _class_cell(cell)[: len(keys)])]
        for row in part["rows"]
    ]
    return Table(f"classes-{place}", text("report.classes.region", dataset=part["dataset"]), columns, rows)


def _class_column(method: Method, key: str) -> Column:
    group = Item(method.label, method.label, color=method.color)
    return Column(f"{method.label} {key}", text(f"report.classes.{key}"), group=group)


def _class_cell(cell: dict[str, Any]) -> list[Item]:
    mark = f"▼ {wording.decimal(cell['mse'])}" if cell["exposed"] else wording.decimal(cell["mse"])
    return [
        Item(cell["accuracy"], wording.percent(cell["accuracy"], unit="")),
        Item(cell["mse"], mark, tone="exposed" if cell["exposed"] else ""),
        number(cell["end"]),
    ]
