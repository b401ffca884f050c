"""A table once, and as CSV (unrounded), Markdown and LaTeX (as the page shows it)."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from attncem.reporting.wording import MISSING


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


def as_csv(table: Table) -> str:
    """All numbers, unrounded; an empty field where there is none."""
    words = io.StringIO()
    writer = csv.writer(words, lineterminator="\n")
    writer.writerow([name for column in table.columns for name in _names(column)])
    for row in table.rows:
        pairs = zip(table.columns, row, strict=True)
        writer.writerow([field for column, item in pairs for field in _fields(column, item)])
    return words.getvalue()


def _names(column: Column) -> list[str]:
    return [column.key, *(f"{column.key}_{name}" for name in column.more)]


def _fields(column: Column, item: Item) -> list[Any]:
    return [item.value, *(item.more.get(name) for name in column.more)]


def as_markdown(table: Table) -> str:
    """A table as GitHub and pandoc read it."""
    lines = [_line(map(_heading, table.columns), _plain_markdown)]
    lines.append("|".join(["", *("---" if column.words else "--:" for column in table.columns), ""]))
    lines += [_line((item.shown for item in row), _plain_markdown) for row in table.rows]
    return "\n".join(lines) + "\n"


def _heading(column: Column) -> str:
    title = f"{column.group.shown}: {column.title}" if column.group else column.title
    return f"{title} ({column.note})" if column.note else title


def _line(words: Any, escape: Callable[[str], str]) -> str:
    return "| " + " | ".join(escape(word) for word in words) + " |"


def _plain_markdown(words: str) -> str:
    """Nothing of it is markup."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", " ".join(words.split()))


def as_latex(table: Table) -> str:
    """A tabular that needs no package."""
    align = "".join("l" if column.words else "r" for column in table.columns)
    rows = [_row(map(_heading, table.columns)), r"\hline", *(_row(item.shown for item in row) for row in table.rows)]
    return "\n".join([rf"\begin{{tabular}}{{{align}}}", r"\hline", *rows, r"\hline", r"\end{tabular}"]) + "\n"


_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    **{mark: f"\\{mark}" for mark in "&%$#_"}, "<": "$<$", ">": "$>$", "|": "$|$", "±": r"$\pm$", "×": r"$\times$",
    "·": r"$\cdot$", "σ": r"$\sigma$", "λ": r"$\lambda$", "τ": r"$\tau$", "∞": r"$\infty$", MISSING: "--", "−": "$-$",
    "≤": r"$\le$", "≥": r"$\ge$", "→": r"$\to$", "’": "'", "\u00a0": "~",
}  # fmt: skip


def _row(words: Any) -> str:
    cells = ("".join(_LATEX.get(letter, letter) for letter in " ".join(word.split())) for word in words)
    return " & ".join(cells) + r" \\"


FORMATS: dict[str, Callable[[Table], str]] = {"csv": as_csv, "md": as_markdown, "tex": as_latex}
"""How a table is written, by the ending of its file."""
