"""attncem campaign: plan, run, status, retry, stop, export, import, results, list and report."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attncem.base.courses import format_duration
from attncem.base.progress import open_console, show_line
from attncem.base.texts import text
from attncem.base.texts.titles import failed_at
from attncem.base.types import ConfigError
from attncem.cli.verbs.base import (
    VerbParser,
    Verbs,
    add_json,
    add_language,
    add_plugin,
    many_overrides,
    print_json,
    table,
    verb,
)
from attncem.cli.verbs.engine import add_engine, engine_options

if TYPE_CHECKING:
    from rich.console import Console

    from attncem.campaigns import CampaignResult, Outlook
    from attncem.records.campaign_folder import CellView

_SOURCE = "packaged campaign (attncem campaign list), YAML file, or the folder of a started campaign"
_OUT = "the campaign's folder; an existing one resumes (default: campaigns/NAME)"


def add(verbs: Verbs) -> None:
    """The verb `campaign` with its nested verbs."""
    parser = verb(verbs, "campaign", "Train and audit many runs from one file; resumes where it stopped.")
    parser.epilog = "Exit code 3: cells failed; the others are done. File format: docs/campaigns.md"
    nested = parser.add_subparsers(dest="action", required=True, metavar="VERB", parser_class=VerbParser)
    meaning = "Show what would run, time, disk space and what exists. Writes nothing."
    planning = _new(nested, "plan", meaning, overrides=True)
    add_json(planning)
    planning.set_defaults(run=_plan)
    running = _new(nested, "run", "Run every unfinished cell, several in parallel.", overrides=True)
    _add_going_on(running)
    running.set_defaults(run=_run)
    _add_folder_verbs(nested)
    _add_archive_verbs(nested)
    listing = nested.add_parser("list", help="list the packaged campaigns")
    add_json(listing)
    listing.set_defaults(run=_list, takes_overrides=False)
    add_language(listing)


def _new(verbs: Verbs, name: str, meaning: str, *, overrides: bool = False) -> VerbParser:
    parser = verbs.add_parser(name, help=meaning, description=meaning, allow_abbrev=False)
    parser.set_defaults(takes_overrides=overrides)
    add_language(parser)
    add_plugin(parser)
    if overrides:
        parser.usage = f"attncem campaign {name} [options] CAMPAIGN [KEY=VALUE ...]"
        parser.epilog = "KEY=VALUE: an option of the campaign (seeds=3), or of every run (training.epochs=2)."
        parser.add_argument("source", metavar="CAMPAIGN", help=_SOURCE)
        parser.add_argument("--out", metavar="FOLDER", help=_OUT)
    return parser


def _add_going_on(parser: VerbParser) -> None:
    """Add the common options of verbs that work on cells: which cells, the results file, and the engine."""
    parser.add_argument(
        "--cells",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only cells with these names, e.g. 'slot-*'; repeatable, in this order",
    )
    parser.add_argument(
        "--results",
        metavar="OUT.json",
        help="write the results so far there after every cell (attncem campaign results)",
    )
    parser.add_argument(
        "--within",
        type=float,
        metavar="MINUTES",
        help="time limit; a cell that cannot finish in time is not started",
    )
    add_engine(parser)


def _add_folder_verbs(verbs: Verbs) -> None:
    meanings = {
        "status": ("List the cells and their states.", _status),
        "retry": ("Run failed cells again.", _retry),
        "stop": ("Stop a running campaign; it can be resumed.", _stop),
        "report": ("Write the campaign's report.", _report),
    }
    for name, (meaning, run) in meanings.items():
        parser = _new(verbs, name, meaning)
        parser.add_argument("folder", metavar="FOLDER", help="the campaign's folder")
        parser.set_defaults(run=run)
        if name == "status":
            add_json(parser)
        if name == "retry":
            parser.add_argument("failed", nargs="*", metavar="CELL", help="failed cells (default: all of them)")
            _add_going_on(parser)
        if name == "report":
            parser.add_argument("--out", metavar="FILE", help="HTML file (default: FOLDER/report.html)")
            parser.add_argument("--reference", metavar="ARM", help="reference arm of the tests (default: the first)")
            parser.add_argument("--tables", metavar="FOLDER", help="also write every table as CSV, Markdown and LaTeX")
            parser.add_argument("--figures", metavar="FOLDER", help="also write every figure as SVG and PDF")


def _add_archive_verbs(verbs: Verbs) -> None:
    parser = _new(verbs, "export", "Pack the results into one archive; unfinished cells keep all files.")
    parser.add_argument("folder", metavar="FOLDER", help="the campaign's folder")
    parser.add_argument("archive", metavar="ARCHIVE", help="new .zip file")
    parser.add_argument(
        "--results-only", action="store_true", help="omit unfinished cells: elsewhere they start from scratch"
    )
    parser.add_argument(
        "--no-pictures", action="store_true", help="omit originals, reconstructions and portraits' images"
    )
    parser.set_defaults(run=_export)
    parser = _new(verbs, "results", "Write the results of every cell to one small JSON file.")
    parser.add_argument("folder", metavar="FOLDER", help="the campaign's folder")
    parser.add_argument("out", metavar="OUT.json", help="new file, or one with results of the same campaign")
    parser.set_defaults(run=_results)
    parser = _new(verbs, "import", "Import an archive; existing results are never overwritten.")
    parser.add_argument("archive", metavar="ARCHIVE", help="a .zip file of attncem campaign export")
    parser.add_argument("folder", metavar="FOLDER", help="new folder, or the folder of the same campaign")
    parser.add_argument(
        "--limit",
        type=float,
        metavar="GIB",
        help="largest unpacked size (default: 100 times the archive's, at most 8 GiB)",
    )
    parser.set_defaults(run=_import)


# plan and run


def _plan(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.campaigns import plan_campaign

    _show_outlook(plan_campaign(_source(known.source), _overrides(rest), out=known.out), known)


def _run(known: argparse.Namespace, rest: Sequence[str]) -> int:
    return _run_on(known, _source(known.source), _overrides(rest), out=known.out)


def _retry(known: argparse.Namespace, rest: Sequence[str]) -> int:
    return _run_on(known, _folder(known.folder), retry=known.failed)


def _run_on(known: argparse.Namespace, source: str | Path, overrides: Sequence[str] = (), **asked: Any) -> int:
    """Run a campaign; ``asked`` are further arguments of `run_campaign`."""
    from attncem.campaigns import run_campaign

    asked |= {"cells": known.cells, "results": known.results, "within": known.within}
    result = run_campaign(source, overrides, engine=known.engine, options=engine_options(known), **asked)
    _show_result(result, open_console())
    return 3 if result.failed else 0


def _overrides(rest: Sequence[str]) -> list[str]:
    from attncem.config.options.campaigns import Campaign

    return many_overrides(rest, Campaign)


def _source(word: str) -> str | Path:
    """A folder becomes a path, so that it is not read as a name, unless a packaged campaign has this name."""
    from attncem.config.options.campaigns import packaged_campaigns

    return Path(word) if Path(word).is_dir() and word not in packaged_campaigns() else word


def _folder(word: str) -> Path:
    """The folder of a campaign; RunError where it is none."""
    from attncem.records.campaign_folder import require_campaign

    return require_campaign(Path(word))


def _show_outlook(outlook: Outlook, known: argparse.Namespace) -> None:
    if known.json:
        print_json(_outlook_data(outlook))
        return
    console = open_console()
    _show_cells(outlook.cells, console)
    lines = [text("campaign.heading", name=outlook.name, count=len(outlook.cells), folder=outlook.folder)]
    lines += [outlook.meaning] if outlook.meaning else []
    lines += [_states(outlook.cells)]
    lines += outlook.changes if outlook.begun else []
    lines += [text("campaign.nothing_left")] if outlook.states.keys() == {"done"} else _costs(outlook)
    for line in lines:
        show_line(line, console)


def _outlook_data(outlook: Outlook) -> dict[str, Any]:
    """The same as data; costs that are unknown are null."""
    to_come = outlook.to_come
    return {
        "name": outlook.name,
        "meaning": outlook.meaning,
        "folder": str(outlook.folder),
        "states": dict(outlook.states),
        "cells": [
            {"cell": view.cell.id, "state": view.state, "audits": int(_audits(view) or 0), "reason": view.reason}
            for view in outlook.cells
        ],
        "added": outlook.added,
        "left_alone": outlook.left_alone,
        "renamed": outlook.anew,
        "seconds_to_come": None if to_come is None else to_come.seconds,
        "bytes_to_come": outlook.checkpoints if to_come is None else to_come.bytes,
        "free_bytes": outlook.free_bytes,
    }


def _costs(outlook: Outlook) -> list[str]:
    free, to_come = _bytes(outlook.free_bytes), outlook.to_come
    if to_come is None and outlook.checkpoints is None:
        return [text("campaign.time.unknown"), text("campaign.disk.unknown", free=free)]
    if to_come is None:
        amount = _bytes(outlook.checkpoints or 0)
        return [text("campaign.time.unknown"), text("campaign.disk.checkpoints", amount=amount, free=free)]
    return [
        text("campaign.time", amount=format_duration(to_come.seconds), basis=outlook.basis),
        text("campaign.disk", amount=_bytes(to_come.bytes), free=free),
    ]


def _show_result(result: CampaignResult, console: Console) -> None:
    from attncem.campaigns.expansion import needs

    folder = result.folder
    show_line(_states(result.cells), console)
    for view in result.failed:
        failure = folder.failure(view.cell.id)
        stage = failed_at(failure.stage if failure else "read")
        show_line(text("campaign.failed", cell=view.cell.id, stage=stage, reason=view.reason), console)
    failed = {view.cell.id for view in result.failed}
    for view in result.cells:
        lacking = failed.intersection(needs(folder.campaign, folder.plan, view.cell))
        if view.state == "planned" and lacking:
            show_line(text("campaign.waits", cell=view.cell.id, names=", ".join(sorted(lacking))), console)
    show_line(_next(result, len(failed)), console)


def _next(result: CampaignResult, failed: int) -> str:
    """The next step for the user."""
    folder = result.folder.path
    if result.stopped:
        return text("campaign.stopped", folder=folder)
    if failed:
        return text("campaign.next.retry", folder=folder, count=failed)
    return text("campaign.next.report", folder=folder) if result.done else text("campaign.next.run", folder=folder)


# one folder


def _status(known: argparse.Namespace, rest: Sequence[str]) -> int:
    from attncem.campaigns import plan_campaign

    outlook = plan_campaign(_folder(known.folder))
    _show_outlook(outlook, known)
    return 3 if outlook.states["failed"] else 0


def _stop(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.campaigns import stop_campaign

    folder = _folder(known.folder)
    ended = stop_campaign(folder)
    show_line(text("campaign.ended", folder=folder) if ended else text("campaign.not_running", folder=folder))


def _report(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.reporting.campaign.page import write_campaign_report, write_figures, write_tables
    from attncem.reporting.fonts import is_lacking

    folder = _folder(known.folder)
    page = write_campaign_report(folder, Path(known.out or folder / "report.html"), reference=known.reference)
    show_line(text("command.report", path=page.resolve()), open_console())
    for out, write in ((known.tables, write_tables), (known.figures, write_figures)):
        if out is not None:
            show_line(text("arms.wrote", count=len(write(folder, Path(out))), folder=out), open_console())
    if known.figures is not None and is_lacking():
        show_line(text("arms.no_font"), open_console())


def _export(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.campaigns.archive import export_campaign

    what = {"results_only": known.results_only, "pictures": not known.no_pictures}
    made = export_campaign(_folder(known.folder), Path(known.archive), **what)
    amount = _bytes(made.path.stat().st_size)
    show_line(text("campaign.exported", path=made.path, count=made.cells, amount=amount, whole=made.whole))
    if made.pictures:
        show_line(text("campaign.exported.pictures", count=made.pictures))


def _results(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.campaigns.results import write_results

    made = write_results(_folder(known.folder), known.out)
    show_line(text("campaign.results", path=known.out, count=len(made.cells), missing=len(made.unfinished)))


def _import(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.campaigns.unpacking import import_campaign

    if known.limit is not None and not 0 < known.limit < 2**20:
        raise ConfigError(f"--limit {known.limit:g}: must be a number of GiB above 0")
    limit = None if known.limit is None else int(known.limit * 2**30)
    made = import_campaign(Path(known.archive), Path(known.folder), limit=limit)
    folder = Path(known.folder)
    show_line(text("campaign.imported", folder=folder, count=len(made.taken), skipped=len(made.left)))
    show_line(text("campaign.next.run", folder=folder))


def _list(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.config.options.campaigns import packaged_campaigns

    if known.json:
        print_json({"campaigns": packaged_campaigns()})
        return
    rows = list(packaged_campaigns().items())
    if not rows:
        raise ConfigError(text("campaign.none"))
    open_console().print(table(text("campaign.list.columns"), rows))


# words


def _show_cells(cells: Sequence[CellView], console: Console) -> None:
    rows = [
        (view.cell.id, text(f"campaign.state.{view.state}"), _audits(view), view.reason.partition("\n")[0])
        for view in cells
    ]
    console.print(table(text("campaign.cells.columns"), rows))


def _audits(view: CellView) -> str:
    """The number of audits of a cell, complete and begun."""
    from attncem.records.ledger import count_audits

    return "" if view.state == "planned" else count_audits(view.path / "audits")


def _states(cells: Sequence[CellView]) -> str:
    counts = Counter(view.state for view in cells)
    named = ((text(f"campaign.state.{state}"), count) for state, count in counts.most_common())
    return ", ".join(text("campaign.state", count=count, state=state) for state, count in named)


def _bytes(amount: int) -> str:
    if amount < 2**20:
        return text("amount.kib", value=amount / 2**10)
    return text("amount.mib", value=amount / 2**20) if amount < 2**30 else text("amount.gib", value=amount / 2**30)
