"""From a result file to Markdown: on the terminal and in docs/performance.md."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.goals import GOALS

Json = Mapping[str, Any]


def render(results: Json) -> str:
    """Every part of a result file as Markdown."""
    parts = [f"## {name}\n\n{render_part(part)}" for name, part in results["parts"].items()]
    return "\n\n".join([render_machine(results), *parts, f"## goals\n\n{render_goals(results)}"])


def render_machine(results: Json) -> str:
    """Machine and versions of the measurement."""
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    return f"{results['machine']}; {versions}."


def render_goals(results: Json) -> str:
    """Goals and measured values."""
    return _render_rows([goal.row(results) for goal in GOALS])


def render_part(part: Json) -> str:
    """The tables of one part with their command, or its error."""
    if "error" in part:
        return f"failed: {part['error'].strip().splitlines()[-1]}"
    texts = [f"`{part['command']}`", *(_render_table(table) for table in part["tables"])]
    if part["left_out"]:
        texts.append(f"{part['left_out']} rows were left out: the time was over.")
    return "\n\n".join(texts)


def _render_table(table: Json) -> str:
    head = f"**{table['title']}.** {table['note']}".strip()
    return f"{head}\n\n{_render_rows(table['rows'])}" if table["rows"] else head


def _render_rows(rows: Sequence[Json]) -> str:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    numeric = [all(isinstance(row.get(key), int | float | None) for row in rows) for key in columns]
    head = _line([key.replace("_", " ") for key in columns])
    rule = "|" + "|".join("--:" if number else "---" for number in numeric) + "|"
    return "\n".join([head, rule, *(_line([_cell(row.get(key)) for key in columns]) for row in rows)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value).replace("|", "\\|")


def fill_page(page: str, results: Json | None) -> str:
    """The page with the tables of a result file in their places, or with empty places."""
    texts = {}
    if results is not None:
        texts = {name: render_part(part) for name, part in results["parts"].items()}
        texts |= {"machine": render_machine(results), "goals": render_goals(results)}

    def place(found: re.Match[str]) -> str:
        name, text = found[1], texts.get(found[1], "")
        return f"<!-- benchmark:{name} -->\n" + (f"{text}\n" if text else "") + f"<!-- /benchmark:{name} -->"

    return re.sub(r"<!-- benchmark:(\w+) -->\n.*?<!-- /benchmark:\1 -->", place, page, flags=re.DOTALL)


def places(page: str) -> list[str]:
    """Names of the places that a page has for tables."""
    return re.findall(r"<!-- benchmark:(\w+) -->", page)
