"""attncem search."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attncem.base.progress import open_console, show_line
from attncem.base.texts import text
from attncem.cli.verbs.base import Verbs, add_json, listed, many_overrides, print_json, table, verb
from attncem.cli.verbs.engine import add_engine, engine_options

if TYPE_CHECKING:
    from rich.console import Console

    from attncem.records.search import SearchResult


def add(verbs: Verbs) -> None:
    """The verb `search`."""
    parser = verb(verbs, "search", "Tune methods with equal budgets: accuracy and attack error, on validation images.")
    parser.usage = "attncem search [options] FILE [KEY=VALUE ...]"
    parser.epilog = (
        "The same command resumes a search that was stopped or killed. KEY=VALUE: an option of the search "
        "(equal_budget=false), or of every run (training.epochs=20). File format: docs/campaigns.md"
    )
    parser.add_argument("source", metavar="FILE", help="packaged search, see below, YAML file, or a search's folder")
    parser.add_argument("--budget", metavar="B", help="for the whole search: trials, e.g. 24, or a time, e.g. 30m, 2h")
    parser.add_argument("--out", metavar="FOLDER", help="the search's folder (default: campaigns/NAME)")
    add_json(parser)
    add_engine(parser)
    parser.further = _searches_help
    parser.set_defaults(run=_search, takes_overrides=True)


def _searches_help() -> str:
    from attncem.config.options.search import packaged_searches

    return listed(packaged_searches())


def _search(known: argparse.Namespace, rest: Sequence[str]) -> int:
    from attncem.campaigns.searches.searching import search
    from attncem.config.options.search import Search

    source = Path(known.source) if Path(known.source).is_dir() else known.source
    overrides = many_overrides(rest, Search)
    options = engine_options(known)
    result = search(source, overrides, budget=known.budget, out=known.out, engine=known.engine, options=options)
    print_json(result) if known.json else _show(result, open_console())
    return 3 if any(not method.front for method in result.methods) else 0


def _show(result: SearchResult, console: Console) -> None:
    """Print the budget and results of every method, and the folder of the configurations."""
    methods = [
        [method.name, str(method.trials), str(method.failed), f"{method.seconds / 60:.1f}", str(len(method.front))]
        for method in result.methods
    ]
    console.print(table(text("search.methods.columns"), methods, numbers=range(1, 5)))
    console.print(table(text("search.levels.columns"), _levels(result), numbers=(2, 3)))
    for line in _beside(result):
        show_line(line, console)
    show_line(text("search.undefended", accuracy=100 * result.undefended), console)
    key = "equal" if result.equal_budget else "unequal"
    show_line(text(f"search.budget.{key}", budget=result.budget), console)
    if not result.complete:
        show_line(text("search.stopped", folder=result.folder), console)
    show_line(text("search.folder", folder=result.folder), console)


def _levels(result: SearchResult) -> Iterator[list[str]]:
    """Every level, its methods by descending attack error, or by rising nats where these choose."""
    from attncem.records.leaks import LIMIT, say_leak

    for level, drop in result.levels.items():
        best = [
            (method.name, result.trial(method.levels[level])) for method in result.methods if level in method.levels
        ]
        title = text("search.level", level=level, points=100 * drop)
        for name, trial in sorted(best, key=lambda item: item[1].nats or -(item[1].error or 0.0)):
            nats = "" if trial.nats is None else f"; {say_leak(LIMIT, trial.nats, unit=True)}"
            numbers = [f"{100 * (trial.accuracy or 0.0):.1f}", f"{trial.error:.4g}{nats}"]
            yield [title, name, *numbers, result.files[f"{name}-{level}"]]


def _beside(result: SearchResult) -> Iterator[str]:
    """For every chosen trial the numbers that may contradict its limit, then the pairs where they do."""
    from attncem.records.leaks import from_kept
    from attncem.reporting.table_formats import described

    for cell in dict.fromkeys(cell for method in result.methods for cell in method.levels.values()):
        leaks = {name: [from_kept(name, data)] for name, data in result.trial(cell).beside.items()}
        if leaks:
            yield text("said.about", about=cell, said=described(leaks))
    for item in result.findings:
        yield text("terminal.note", text=item.text)
