"""Tables: columns, entries, number formats; files in CSV (unrounded), Markdown and LaTeX (as shown)."""

from __future__ import annotations

import csv
import io
import re
import statistics as plain
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from attncem.base.shown_paths import without_paths
from attncem.base.texts import text
from attncem.base.texts.titles import row_title
from attncem.records.comparison import SeedSummary
from attncem.records.leak import Leak
from attncem.records.leaks import LEAKS, private_of, say_leak
from attncem.records.metrics import METRICS
from attncem.records.study import ACCURACY, Spread, spread_of
from attncem.reporting import wording

R = TypeVar("R")
_FORMULA = re.compile(r"[\t\r\n]|[\s\ufeff\u200b]*[=+\-@＝＋－＠]")
"""Begins of texts that spreadsheets take as a formula."""
_NUMBER = re.compile(r"[+-]?[0-9.]+(e[+-]?[0-9]+)?", re.IGNORECASE)
SUMMARY = ("sd", "low", "high", "count")
"""Extra CSV columns of a measure: standard deviation and interval over seeds, and the number of seeds."""
SPREAD = ("sd", "low", "high", "image_low", "image_high", "count")
"""SUMMARY with the interval over images."""


@dataclass(frozen=True)
class Column:
    """One column. ``more`` names further numbers of each item; a CSV file has a column per number, such as `KEY_sd`.

    An ``extra`` column is hidden until the reader opens it. ``card`` is the column's name where a row is shown
    as a card; by default the title. Adjacent columns of one ``group`` share a header above their own.
    """

    key: str
    title: str
    note: str = ""
    words: bool = False
    more: Sequence[str] = ()
    extra: bool = False
    card: str = ""
    group: Item | None = None


@dataclass(frozen=True)
class Item:
    """One entry: the value, its shown text, a second line, and further numbers.

    ``color`` is the arm's index in the palette; ``cell`` is the cell that a click opens; ``tone`` is the highlight;
    ``notes`` are sentences below the entry. ``best``: no other row of the table has a better value.
    """

    value: Any
    shown: str
    small: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)
    color: int | None = None
    cell: str = ""
    tone: str = ""
    notes: Sequence[str] = ()
    best: bool = False


@dataclass(frozen=True)
class Table:
    """A table. ``name`` is its file name; ``marks`` has a word per row, by which the page shows or hides the row.

    ``styles`` are the CSS classes of each row. ``lines`` are the short texts that a narrow screen shows for each folded
    row, its name first; without them rows are shown in full.
    """

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Item]]
    marks: Sequence[str] = ()
    styles: Sequence[str] = ()
    lines: Sequence[Sequence[str]] = ()


Field = tuple[Column, Callable[[R], Item]]
"""A column, declared once: its heading, and the function that makes its entry from a row."""


def table(
    name: str,
    title: str,
    fields: Sequence[Field[R]],
    rows: Iterable[R],
    marks: Sequence[str] = (),
) -> Table:
    """Make a table of these rows."""
    columns = [column for column, _ in fields]
    return Table(name, title, columns, [[entry(row) for _, entry in fields] for row in rows], marks)


def without_empty(table: Table, keys: Collection[str]) -> Table:
    """The table without those of the columns ``keys`` that no row has a value for."""
    kept = [
        place
        for place, column in enumerate(table.columns)
        if column.key not in keys or any(row[place].value is not None for row in table.rows)
    ]
    rows = [[row[place] for place in kept] for row in table.rows]
    return replace(table, columns=[table.columns[place] for place in kept], rows=rows)


def with_best(table: Table, left_out: Sequence[str] = (), unlike: Collection[str] = ()) -> Table:
    """The table with the best entries of every measure marked, where rows differ; rows named ``left_out`` never are.

    Numbers of other counts of releases or candidates are not compared, nor columns ``unlike``, of other images.
    """
    rows = [list(row) for row in table.rows]
    for place, column in enumerate(table.columns):
        measured = column.key in METRICS or column.key in LEAKS
        wanted = "higher" if column.key == ACCURACY else private_of(column.key) if measured else ""
        shown = [row[place] for row in rows if row[0].value not in left_out and row[place].value is not None]
        items = [item for item in shown if not item.more.get("vacuous")]
        are_alike = len({item.more.get("counts") for item in items}) == 1
        if column.key in unlike or not wanted or not are_alike or len({item.value for item in items}) < 2:
            continue
        best = (max if wanted == "higher" else min)(item.value for item in items)
        for row in rows:
            if row[0].value not in left_out and row[place].value == best and not row[place].more.get("vacuous"):
                row[place] = replace(row[place], best=True)
    return replace(table, rows=rows)


# entries


def word(value: Any, **other: Any) -> Item:
    """Text, unchanged."""
    return Item(value, str(value) if value not in (None, "") else wording.MISSING, **other)


def row_item(name: str, **other: Any) -> Item:
    """A row of an audit: its name as the value, its title as the shown text."""
    return Item(name, row_title(name) or wording.MISSING, **other)


def number(value: float | None, digits: int = 4, **other: Any) -> Item:
    """A number with this many decimals."""
    return Item(value, wording.decimal(value, digits), **other)


def said(measure: str, value: float | None) -> str:
    """A value of a measure, or its spread, as text; an accuracy is shown in percent."""
    if measure == ACCURACY:
        return wording.percent(value, unit="")
    if measure in LEAKS:
        return wording.MISSING if value is None else say_leak(measure, value)
    return wording.decimal(value, METRICS[measure].decimals)


def mean_sd(measure: str, summary: SeedSummary) -> str:
    """Mean, with ± standard deviation where there are at least two seeds."""
    mean = said(measure, summary.mean)
    return mean if summary.sd is None else f"{mean} ± {said_sd(measure, summary.sd)}"


def said_sd(measure: str, sd: float) -> str:
    """A standard deviation as text: of nats two significant digits."""
    return say_leak(measure, sd, digits=2) if measure in LEAKS else said(measure, sd)


def interval(measure: str, low: float | None, high: float | None) -> str:
    """Both ends of an interval; empty where there is none."""
    return "" if low is None or high is None else f"[{said(measure, low)}, {said(measure, high)}]"


def spread_item(measure: str, spread: Spread | None) -> Item:
    """A measure over seeds with its interval; for one seed, the interval over images."""
    if spread is None:
        return Item(None, wording.MISSING)
    seeds = spread.seeds
    more = {"image_low": spread.image_low, "image_high": spread.image_high} | summary_more(seeds)
    ends = (seeds.low, seeds.high) if seeds.low is not None else (spread.image_low, spread.image_high)
    return Item(seeds.mean, mean_sd(measure, seeds), interval(measure, *ends), more)


def leak_more(measure: str) -> tuple[str, ...]:
    """The extra CSV columns of a number of the leak."""
    return (*SPREAD, *leak_flag(measure))


def leak_flag(measure: str) -> tuple[str, ...]:
    """The CSV column with the number of seeds for which a bound is vacuous, or evidence is at its ceiling."""
    return tuple(filter(None, [LEAKS[measure].flag]))


def leak_item(measure: str, leaks: Sequence[Leak], missing: str = "") -> Item:
    """A number of the leak over seeds; without one, a dash and the words for it."""
    spread = spread_of(leaks)
    if spread is None:
        return Item(None, wording.MISSING, notes=[missing] if missing else ())  # long: it may wrap
    item, several = spread_item(measure, spread), spread.seeds.sd is not None
    bare = not several and spread.image_low == spread.image_high  # a bound that nothing was measured for
    small = " · ".join(filter(None, ["" if bare else item.small, *counts_said(measure, leaks)]))
    flags = {"vacuous": sum(leak.vacuous for leak in leaks), "at_ceiling": sum(leak.at_ceiling for leak in leaks)}
    counts = tuple(sorted({leak.count for leak in leaks}))
    return replace(item, shown=hedged(item.shown, leaks), small=small, more={**item.more, **flags, "counts": counts})


def hedged(shown: str, leaks: Sequence[Leak]) -> str:
    """A number of the leak with the words without which it misleads."""
    if any(leak.vacuous for leak in leaks):
        return text("bound.vacuous", said=shown)
    return text("leak.at_ceiling", said=shown) if any(leak.at_ceiling for leak in leaks) else shown


def described(leaks: Mapping[str, Sequence[Leak]]) -> str:
    """Means of several numbers of the leak in one line, by name; those that no seed has are left out."""
    return text("arms.nats.between").join(
        text("arms.nats.beside", measure=text(f"measure.{name}"), value=_described(name, of_seeds))
        for name, of_seeds in leaks.items()
        if of_seeds
    )


def _described(measure: str, leaks: Sequence[Leak]) -> str:
    return hedged(say_leak(measure, plain.fmean(leak.mean for leak in leaks), unit=True), leaks)


def counts_said(measure: str, leaks: Iterable[Leak]) -> list[str]:
    """How many releases the attacks saw, or among how many candidates the probes chose, each number once."""
    counts = [count for count in dict.fromkeys(leak.count for leak in leaks) if count]
    if LEAKS[measure].unit == "%":
        return [text("leak.among", count=count) for count in counts]
    return [text("leak.count", count=count) for count in counts]


def summary_more(summary: SeedSummary) -> dict[str, Any]:
    """The extra CSV numbers of a summary."""
    return {name: getattr(summary, name) for name in SUMMARY}


# files


def as_csv(table: Table) -> str:
    """All numbers, unrounded; a missing number is an empty field."""
    further = [(column, name) for column in table.columns for name in ("", *column.more)]
    lines = [[f"{column.key}_{name}" if name else column.key for column, name in further]]
    for row in table.rows:
        pairs = zip(table.columns, row, strict=True)
        lines.append([value for column, item in pairs for value in (item.value, *map(item.more.get, column.more))])
    return csv_text(lines)


def csv_text(lines: Iterable[Sequence[Any]]) -> str:
    """CSV that is safe to open in a spreadsheet and to pass on: no text is a formula or holds an absolute path."""
    words = io.StringIO()
    csv.writer(words, lineterminator="\n").writerows([_csv_cell(value) for value in line] for line in lines)
    return words.getvalue()


def _csv_cell(value: Any) -> Any:
    """Numbers as they are; a text that a spreadsheet would run as a formula gets an apostrophe in front."""
    if not isinstance(value, str):
        return value
    plain = without_paths(value).replace("\r", " ")  # which would end the line
    return f"'{plain}" if _FORMULA.match(plain) and not _NUMBER.fullmatch(plain) else plain


def as_markdown(table: Table) -> str:
    """A Markdown table for GitHub and pandoc."""
    rules = "|".join(["", *("---" if column.words else "--:" for column in table.columns), ""])
    first, *others = ("| " + " | ".join(map(_plain_markdown, row)) + " |" for row in _words(table))
    return "\n".join([first, rules, *others]) + "\n"


def _words(table: Table) -> list[list[str]]:
    """The headings, then the rows as shown; runs of white space become one space."""
    titles = [f"{column.group.shown}: {column.title}" if column.group else column.title for column in table.columns]
    headings = [f"{title} ({it.note})" if it.note else title for title, it in zip(titles, table.columns, strict=True)]
    rows = [headings, *([item.shown for item in row] for row in table.rows)]
    return [[" ".join(without_paths(words).split()) for words in row] for row in rows]


def _plain_markdown(words: str) -> str:
    """Escape all Markdown markup."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", words)


def as_latex(table: Table) -> str:
    """A LaTeX tabular with the rules of the package booktabs; the best entries of a column are bold."""
    align = "".join("l" if column.words else "r" for column in table.columns)
    headings, *rows = [[words.translate(_LATEX) for words in row] for row in _words(table)]
    for row, items in zip(rows, table.rows, strict=True):
        row[:] = [rf"\textbf{{{words}}}" if item.best else words for words, item in zip(row, items, strict=True)]
    first, *others = (" & ".join(row) + r" \\" for row in [headings, *rows])
    begin = rf"\begin{{tabular}}{{{align}}} % \usepackage{{booktabs}}"
    return "\n".join([begin, r"\toprule", first, r"\midrule", *others, r"\bottomrule", r"\end{tabular}"]) + "\n"


_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    **{mark: f"\\{mark}" for mark in "&%$#_"}, "<": "$<$", ">": "$>$", "|": "$|$", "±": r"$\pm$", "×": r"$\times$",
    "·": r"$\cdot$", "σ": r"$\sigma$", "λ": r"$\lambda$", "τ": r"$\tau$", "∞": r"$\infty$", "−": "$-$",
    wording.MISSING: "--", "≤": r"$\le$", "≥": r"$\ge$", "→": r"$\to$", "’": "'", "\u00a0": "~",
})  # fmt: skip


FORMATS: dict[str, Callable[[Table], str]] = {"csv": as_csv, "md": as_markdown, "tex": as_latex}
"""Writers of tables by file extension."""
