"""Tables: columns and entries, numbers as words; each table as CSV (unrounded), Markdown and LaTeX (as shown)."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from attncem.base.texts.titles import row_title
from attncem.records.comparison import SeedSummary
from attncem.records.metrics import METRICS
from attncem.records.study import ACCURACY, Spread
from attncem.reporting import wording

R = TypeVar("R")
SUMMARY = ("sd", "low", "high", "count")
"""Further numbers of a measure in a CSV file: over seeds, and how many seeds."""
SPREAD = ("sd", "low", "high", "image_low", "image_high", "count")
"""The same with the interval over images."""


@dataclass(frozen=True)
class Column:
    """One column. ``more`` names further numbers of each item: in a CSV file they are columns, such as `KEY_sd`.

    An ``extra`` column is folded away until it is asked for. ``card`` is what it is called where a row is shown as a
    card, if not by its title. Columns beside each other of one ``group`` share a header above theirs.
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
    """One entry: the value, how it is shown, a second line, and further numbers.

    ``color`` is an arm's place in the palette; ``cell`` the cell that a click leads to; ``tone`` how it is marked;
    ``notes`` are sentences below it.
    """

    value: Any
    shown: str
    small: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)
    color: int | None = None
    cell: str = ""
    tone: str = ""
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Table:
    """A table with a name for files; ``marks``: a word for each row by which the page shows or hides it.

    ``styles`` are each row's classes of the style sheet. ``lines``: what is left of each row where a narrow screen
    folds it, its name first; without them rows are shown whole.
    """

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Item]]
    marks: Sequence[str] = ()
    styles: Sequence[str] = ()
    lines: Sequence[Sequence[str]] = ()


Field = tuple[Column, Callable[[R], Item]]
"""A column, declared once: its heading, and the function that makes its entry of a row."""


def table(
    name: str,
    title: str,
    fields: Sequence[Field[R]],
    rows: Iterable[R],
    marks: Sequence[str] = (),
) -> Table:
    """A table of these rows."""
    columns = [column for column, _ in fields]
    return Table(name, title, columns, [[entry(row) for _, entry in fields] for row in rows], marks)


# entries


def word(value: Any, **other: Any) -> Item:
    """A word as it is."""
    return Item(value, str(value) if value not in (None, "") else wording.MISSING, **other)


def row_item(name: str, **other: Any) -> Item:
    """A row of an audit: by its name for programs, by its title for people."""
    return Item(name, row_title(name) or wording.MISSING, **other)


def number(value: float | None, digits: int = 4, **other: Any) -> Item:
    """A number with this many decimals."""
    return Item(value, wording.decimal(value, digits), **other)


def said(measure: str, value: float | None) -> str:
    """A value of a measure, or a spread of it; an accuracy is shown in percent."""
    if measure == ACCURACY:
        return wording.percent(value, unit="")
    return wording.decimal(value, METRICS[measure].decimals)


def mean_sd(measure: str, summary: SeedSummary) -> str:
    """A mean, ± its standard deviation where there are two seeds."""
    mean = said(measure, summary.mean)
    return mean if summary.sd is None else f"{mean} ± {said(measure, summary.sd)}"


def interval(measure: str, low: float | None, high: float | None) -> str:
    """Both ends; nothing where there are none."""
    return "" if low is None or high is None else f"[{said(measure, low)}, {said(measure, high)}]"


def spread_item(measure: str, spread: Spread | None) -> Item:
    """A measure over seeds with its interval; of one seed that over images."""
    if spread is None:
        return Item(None, wording.MISSING)
    seeds = spread.seeds
    more = {"image_low": spread.image_low, "image_high": spread.image_high} | summary_more(seeds)
    ends = (seeds.low, seeds.high) if seeds.low is not None else (spread.image_low, spread.image_high)
    return Item(seeds.mean, mean_sd(measure, seeds), interval(measure, *ends), more)


def summary_more(summary: SeedSummary) -> dict[str, Any]:
    """The further numbers of a summary."""
    return {name: getattr(summary, name) for name in SUMMARY}


# files


def as_csv(table: Table) -> str:
    """All numbers, unrounded; an empty field where there is none."""
    words = io.StringIO()
    writer = csv.writer(words, lineterminator="\n")
    further = [(column, name) for column in table.columns for name in ("", *column.more)]
    writer.writerow([f"{column.key}_{name}" if name else column.key for column, name in further])
    for row in table.rows:
        pairs = zip(table.columns, row, strict=True)
        writer.writerow([value for column, item in pairs for value in (item.value, *map(item.more.get, column.more))])
    return words.getvalue()


def as_markdown(table: Table) -> str:
    """A table as GitHub and pandoc read it."""
    rules = "|".join(["", *("---" if column.words else "--:" for column in table.columns), ""])
    first, *others = ("| " + " | ".join(map(_plain_markdown, row)) + " |" for row in _words(table))
    return "\n".join([first, rules, *others]) + "\n"


def _words(table: Table) -> list[list[str]]:
    """The headings, then the rows as they are shown; white space is one space."""
    titles = [f"{column.group.shown}: {column.title}" if column.group else column.title for column in table.columns]
    headings = [f"{title} ({it.note})" if it.note else title for title, it in zip(titles, table.columns, strict=True)]
    rows = [headings, *([item.shown for item in row] for row in table.rows)]
    return [[" ".join(words.split()) for words in row] for row in rows]


def _plain_markdown(words: str) -> str:
    """Nothing of it is markup."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", words)


def as_latex(table: Table) -> str:
    """A tabular that needs no package."""
    align = "".join("l" if column.words else "r" for column in table.columns)
    first, *others = (" & ".join(words.translate(_LATEX) for words in row) + r" \\" for row in _words(table))
    lines = [rf"\begin{{tabular}}{{{align}}}", r"\hline", first, r"\hline", *others, r"\hline", r"\end{tabular}"]
    return "\n".join(lines) + "\n"


_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    **{mark: f"\\{mark}" for mark in "&%$#_"}, "<": "$<$", ">": "$>$", "|": "$|$", "±": r"$\pm$", "×": r"$\times$",
    "·": r"$\cdot$", "σ": r"$\sigma$", "λ": r"$\lambda$", "τ": r"$\tau$", "∞": r"$\infty$", "−": "$-$",
    wording.MISSING: "--", "≤": r"$\le$", "≥": r"$\ge$", "→": r"$\to$", "’": "'", "\u00a0": "~",
})  # fmt: skip


FORMATS: dict[str, Callable[[Table], str]] = {"csv": as_csv, "md": as_markdown, "tex": as_latex}
"""How a table is written, by the ending of its file."""
