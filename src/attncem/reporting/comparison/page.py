"""A comparison of runs for a terminal of 80 columns, and as one self-contained page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path
from textwrap import fill
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from attncem import __version__
from attncem.base.progress import clean
from attncem.base.texts import text
from attncem.base.texts.titles import threat_title
from attncem.records.comparison import LEVEL, Comparison, SeedSummary
from attncem.records.leaks import LEAKS
from attncem.records.metrics import METRICS
from attncem.records.run_comparison import ComparedRun, Difference, Group, Quantity, RunsComparison
from attncem.records.study.runs import JudgedRun
from attncem.reporting import figures, html, table_formats, wording
from attncem.reporting.client_costs import CLIENT, client_cost
from attncem.reporting.comparison.leaking import LEAK
from attncem.reporting.table_formats import said, said_sd

GENERATOR = "attncem-compare"
_SHOWN = 3
"""Numbers per row in a terminal; the page has all."""
_HEADING = 14
"""Characters per line of a heading above numbers."""
_DECIMALS = 9
_SHARES = ("accuracy", "validation_accuracy", *(name for name, measure in LEAKS.items() if measure.unit == "%"))
"""Quantities in percent."""
_LEAKS = 3
"""Numbers of the leak per table in a terminal."""


# numbers


def number(value: float | None, quantity: Quantity) -> str:
    """A value with the decimals of its measure; shares in percent."""
    if quantity.measure in _SHARES:
        return wording.percent(value)
    if quantity.measure in LEAKS:
        return said(quantity.measure, value)
    return wording.decimal(value, METRICS[quantity.measure].decimals)


def spread(summary: SeedSummary, quantity: Quantity) -> str:
    """Mean ± standard deviation; only the value for one run."""
    if summary.sd is None:
        return number(summary.mean, quantity)
    of_leak = quantity.measure in LEAKS and quantity.measure not in _SHARES
    sd = said_sd(quantity.measure, summary.sd) if of_leak else number(summary.sd, quantity)
    return text("compare.value", mean=number(summary.mean, quantity), sd=sd)


def _spread_of(group: Group, quantity: Quantity) -> str:
    """A group's number; a dash for the client alone, which has no audit."""
    return spread(group.numbers[quantity.key], quantity) if quantity.key in group.numbers else wording.MISSING


def change(item: Comparison, quantity: Quantity) -> str:
    """A difference with its sign; for shares, in percentage points."""
    scale, digits = _scale(item, quantity)
    said = f"{scale * item.difference:+z.{digits}f}"
    return text("compare.points", value=said) if quantity.measure in _SHARES else said


def bounds(item: Comparison, quantity: Quantity) -> str:
    """The interval of a difference; a dash where there is none."""
    if item.low is None or item.high is None:
        return wording.MISSING
    scale, digits = _scale(item, quantity)
    low, high = (f"{scale * value:+z.{digits}f}" for value in (item.low, item.high))
    return text("compare.bounds", low=low, high=high)


def _scale(item: Comparison, quantity: Quantity) -> tuple[float, int]:
    """Factor and decimals of a difference: the measure's decimals, or enough for two digits of the interval."""
    share = quantity.measure in _SHARES
    scale, usual = (100.0, 1) if share else (1.0, _decimals(quantity.measure))
    width = scale * abs(item.difference if item.low is None or item.high is None else item.high - item.low)
    return scale, usual if width == 0 else min(_DECIMALS, max(usual, 1 - math.floor(math.log10(width))))


def _decimals(measure: str) -> int:
    return LEAKS[measure].decimals if measure in LEAKS else METRICS[measure].decimals


def told_p(item: Comparison) -> str:
    """The p value behind the verdict, adjusted if it was; a dash where there is none."""
    p = item.p if item.adjusted_p is None else item.adjusted_p
    return wording.MISSING if p is None else f"{p:.2g}"


def answer(item: Comparison) -> str:
    """The verdict in a few words."""
    if item.verdict == "a_higher":
        return text("compare.answer.a_higher", a=item.a)
    if item.verdict == "b_higher":
        return text("compare.answer.b_higher", b=item.b)
    if item.verdict == "too_few_seeds":
        return text("compare.answer.too_few_seeds")
    return text("compare.answer.no_difference_shown")


def rule(found: RunsComparison) -> str:
    """The criterion for a difference; empty where nothing was tested."""
    if not found.comparisons:
        return ""
    over_seeds = found.comparisons[0].over == "seeds"
    return text("compare.adjusted", level=LEVEL) if over_seeds else text("compare.by_interval")


def audit_name(found: RunsComparison) -> str:
    """The compared audit, in a few words."""
    if found.audit is None:
        return ""
    audit = found.audit
    said = text("compare.audit", suite=audit.suite, version=audit.version, threat=threat_title(audit.threat))
    return ", ".join([said, *audit.changed])


def shown_value(value: Any) -> str:
    """An option's value as typed on a command line."""
    return {None: "null", True: "true", False: "false"}.get(value, str(value)) if _is_plain(value) else str(value)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def cost_table(found: RunsComparison) -> table_formats.Table:
    """The costs of every group's client; only its first column where no cost is known."""

    def cost(name: str) -> table_formats.Field[Group]:
        column = table_formats.Column(name, text(f"compare.cost.{name}"))
        return column, lambda group: client_cost(name, [run.costs for run in found.runs if run.group == group.name])

    first = table_formats.Column("runs", text("compare.column.runs"), words=True)
    fields = [(first, lambda group: table_formats.word(group.name)), *map(cost, CLIENT)]
    made = table_formats.table("costs", text("compare.costs"), fields, found.groups)
    return table_formats.without_empty(made, CLIENT)


# the terminal


def print_comparison(found: RunsComparison, console: Console) -> None:
    """Warnings first, then options, training, numbers and differences."""
    for item in found.findings:
        _say(text("terminal.note", text=item.text), console)
    shared = [item for item in found.differences if item.everywhere]
    if shared:
        console.print(_option_table(shared))
    elif not found.differences:
        _say(text("compare.same_options"), console)
    if further := len(found.differences) - len(shared):
        _say(text("compare.some_options", count=further), console)
    for sentence in (*found.sending, *found.alone):
        _say(sentence, console)
    console.print(_training_table(found))
    if (costs := cost_table(found)).columns[1:]:
        console.print(_cost_table(costs))
    if found.quantities:
        console.print(_number_table(found))
    leaks = [it for it in found.quantities if it.key.startswith(LEAK)]
    for place in range(0, len(leaks), _LEAKS):
        console.print(_leak_table(found, leaks[place : place + _LEAKS]))
    for words in leak_notes(found):
        _say(words, console)
    if found.comparisons:
        console.print(_test_table(found))
        _say(rule(found), console)


def _say(line: str, console: Console) -> None:
    console.print(clean(line), markup=False, highlight=False)


def _table(title: str, columns: Sequence[str], numbers: Sequence[int]) -> Table:
    """A narrow table; ``numbers`` are the indices of number columns, which do not wrap."""
    made = [
        Column(name, justify="right", no_wrap=True) if place in numbers else Column(name, overflow="fold")
        for place, name in enumerate(columns)
    ]
    return Table(*made, title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)


def _row(table: Table, cells: Sequence[str]) -> None:
    table.add_row(*(Text(clean(cell)) for cell in cells))


def _option_table(shared: Sequence[Difference]) -> Table:
    table = _table(text("compare.title.options"), text("compare.columns.options").split("|"), ())
    for _, section in groupby(shared, key=lambda item: item.key.partition(".")[0]):
        for item in section:
            for place, (value, names) in enumerate(by_value(item)):
                _row(table, ["" if place else item.key, value, ", ".join(names)])
        table.add_section()
    return table


def by_value(item: Difference) -> list[tuple[str, list[str]]]:
    """The values of an option, each with the groups that have it."""
    found: dict[str, list[str]] = {}
    for group, values in item.values.items():
        found.setdefault(", ".join(map(shown_value, values)) or wording.MISSING, []).append(group)
    return list(found.items())


def _training_table(found: RunsComparison) -> Table:
    columns = text("compare.columns.runs").split("|")
    table = _table(text("compare.title.training"), columns, range(1, len(columns)))
    for run in found.runs:
        shares = [wording.percent(value, unit="") for value in (*run.along, run.best_accuracy)]
        _row(table, [run.label, str(run.seed), *shares, wording.seconds(run.training_seconds)])
    return table


def _leak_table(found: RunsComparison, shown: Sequence[Quantity]) -> Table:
    columns = [*text("compare.columns.groups").split("|"), *(fill(heading(it), _HEADING) for it in shown)]
    table = _table(text("compare.title.leak"), columns, range(1, len(columns)))
    for group in found.groups:
        runs = [run for run in found.runs if run.group == group.name]
        numbers = (_hedged(_spread_of(group, it), it, runs) for it in shown)
        _row(table, [group.name, str(len(group.runs)), *numbers])
    return table


def _hedged(shown: str, quantity: Quantity, runs: Sequence[ComparedRun]) -> str:
    """A number with the words without which it misleads."""
    if any(quantity.key in run.vacuous for run in runs):
        return text("bound.vacuous", said=shown)
    return text("leak.at_ceiling", said=shown) if any(quantity.key in run.at_ceiling for run in runs) else shown


def heading(quantity: Quantity) -> str:
    """The title of a quantity, with its unit where that is nats."""
    unit = LEAKS[quantity.measure].unit if quantity.measure in LEAKS else ""
    return text("leak.in_unit", title=quantity.title, unit=unit) if unit == "nats" else quantity.title


def _cost_table(costs: table_formats.Table) -> Table:
    numbers = range(1, len(costs.columns))
    made = _table(text("compare.title.costs"), [fill(column.title, _HEADING) for column in costs.columns], numbers)
    for row in costs.rows:
        _row(made, [item.shown for item in row])
    return made


def _number_table(found: RunsComparison) -> Table:
    shown = [it for it in found.quantities if not it.key.startswith(LEAK)][:_SHOWN]
    title = text("compare.title.numbers", audit=audit_name(found)) if found.audit else ""
    columns = [*text("compare.columns.groups").split("|"), *(fill(it.title, _HEADING) for it in shown)]
    table = _table(title or text("compare.title.numbers.validation"), columns, range(1, len(columns)))
    for group in found.groups:
        _row(table, [group.name, str(len(group.runs)), *(_spread_of(group, it) for it in shown)])
    return table


def _test_table(found: RunsComparison) -> Table:
    table = _table(text("compare.title.tests"), text("compare.columns.tests").split("|"), (2, 4))
    for quantity, item in tested(found):
        against = text("compare.against", a=item.a, b=item.b)
        cells = [quantity.title, against, change(item, quantity), bounds(item, quantity)]
        _row(table, [*cells, told_p(item), answer(item)])
    return table


def tested(found: RunsComparison) -> Iterator[tuple[Quantity, Comparison]]:
    """Every comparison with its quantity."""
    known = {quantity.title: quantity for quantity in found.quantities}
    return ((known[item.measure], item) for item in found.comparisons)


# the page


def write_comparison(found: RunsComparison, runs: Sequence[JudgedRun], out: Path, *, now: datetime) -> Path:
    """Render the page and write it; a file that is not an older comparison is kept."""
    html.refuse_foreign(out, f'content="{GENERATOR} ')
    places = [group.name for group in found.groups]
    colors = [places.index(run.group) for run in found.runs]
    context = {
        "version": __version__,
        "generator": f"{GENERATOR} {__version__}",
        "generated": now.isoformat(sep=" ", timespec="seconds"),
        "it": found,
        "verdict": [item.sentence for item in found.comparisons],
        "audit": audit_name(found),
        "rule": rule(found),
        "groups": _groups(found),
        "headings": [heading(quantity) for quantity in found.quantities],
        "leak_notes": leak_notes(found),
        "tests": [_test(quantity, item) for quantity, item in tested(found)],
        "options": [_options(item) for item in found.differences],
        "costs": cost_table(found),
        "curves": figures.training_curves(runs, colors),
        "num_colors": figures.NUM_COLORS,
    }
    html.write_page(out, html.render(context, "comparison.html.j2"))
    return out


def leak_notes(found: RunsComparison) -> list[str]:
    """That the numbers of the leak were not tested, because each group is one run, and which runs have none."""
    shown = any(it.key.startswith(LEAK) for it in found.quantities)
    alone = shown and all(len(group.runs) == 1 for group in found.groups)
    notes = [text("compare.leak.untested", said=text("leak.one_seed"))] if alone else []
    if found.unmeasured:
        runs = ", ".join(found.unmeasured)
        notes.append(text("compare.leak.unmeasured", runs=runs, command=found.measure_leak))
    return notes


def _groups(found: RunsComparison) -> list[dict[str, Any]]:
    """Every group with its runs and their formatted numbers."""
    groups = []
    for color, group in enumerate(found.groups):
        runs = [run for run in found.runs if run.group == group.name]
        numbers = [_hedged(_spread_of(group, it), it, runs) for it in found.quantities]
        shown = [
            {
                "run": run,
                "numbers": [_hedged(number(run.numbers.get(it.key), it), it, [run]) for it in found.quantities],
            }
            for run in runs
        ]
        groups.append({"name": group.name, "color": color, "count": len(group.runs), "numbers": numbers, "runs": shown})
    return groups


def _test(quantity: Quantity, item: Comparison) -> dict[str, Any]:
    return {
        "title": quantity.title,
        "against": text("compare.against", a=item.a, b=item.b),
        "difference": change(item, quantity),
        "value": item.difference,
        "bounds": bounds(item, quantity),
        "ratio": item.ratio,
        "p": told_p(item),
        "answer": answer(item),
        "verdict": item.verdict,
    }


def _options(item: Difference) -> dict[str, Any]:
    values = [", ".join(map(shown_value, values)) or wording.MISSING for values in item.values.values()]
    return {"key": item.key, "values": values}
