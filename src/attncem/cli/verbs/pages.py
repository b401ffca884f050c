"""attncem report, compare and card: pages about existing runs."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from attncem.base.progress import open_console, show_line
from attncem.base.texts import text
from attncem.base.types import ConfigError
from attncem.cli.verbs.base import Verbs, add_json, print_json, verb


def add_report(verbs: Verbs) -> None:
    """The verb `report`."""
    parser = verb(verbs, "report", "Write one self-contained HTML page about runs.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders, folders of runs or of audits")
    parser.add_argument("--out", default="report.html", help="file to write (default: report.html)")
    parser.add_argument("--csv", action="store_true", help="also write the headline table as CSV")
    parser.set_defaults(run=_report)


def _report(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.reporting import report

    if not Path(known.out).name:
        raise ConfigError(f"--out {known.out}: is a folder; give the name of a file, e.g. report.html")
    show_line(str(report(known.runs, known.out, csv=known.csv)), open_console())


def add_compare(verbs: Verbs) -> None:
    """The verb `compare`."""
    parser = verb(verbs, "compare", "Show runs side by side: options, training, and numbers with tests.")
    parser.epilog = (
        "Runs that differ only in the seed are one group, and groups are tested over their seeds; single runs are "
        "compared on the same images. Every group is compared with that of the first run."
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders, or folders of runs")
    parser.add_argument(
        "--by", action="append", default=[], metavar="KEY", help="group by this option, e.g. surrogate.name; repeatable"
    )
    parser.add_argument("--out", metavar="FILE", help="also write one self-contained page with curves")
    add_json(parser)
    parser.set_defaults(run=_compare)


def _compare(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.reporting import compare, print_comparison

    if known.out is not None and not Path(known.out).name:
        raise ConfigError(f"--out {known.out}: is a folder; give the name of a file, e.g. compare.html")
    comparison = compare(known.runs, by=known.by, out=known.out)
    if known.json:
        print_json(comparison)
        return
    console = open_console()
    print_comparison(comparison, console)
    said = text("command.page", path=Path(known.out).resolve()) if known.out else text("compare.hint")
    show_line(said, console)


def add_card(verbs: Verbs) -> None:
    """The verb `card`."""
    parser = verb(verbs, "card", "Write the privacy card of a run from its audits, to ship with the model.")
    parser.add_argument("source", metavar="RUN", help="run folder, or the audit folder of an external encoder")
    parser.add_argument(
        "--out", metavar="FOLDER", help="folder for card.json, card.md and card.html (default: RUN/card)"
    )
    parser.add_argument(
        "--no-pictures", action="store_true", help="leave out the image and its reconstruction on card.html"
    )
    parser.add_argument("--json", action="store_true", help="also print JSON")
    parser.set_defaults(run=_card)


def _card(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.reporting import privacy_card
    from attncem.reporting.answers import describe

    card, files = privacy_card(known.source, known.out, pictures=not known.no_pictures)
    if known.json:
        print_json(card)
        return
    console = open_console()
    for said in (describe(card.judgement), *(answer.said for answer in card.answers)):
        show_line(said, console)
    if card.subject.dataset == "image_folder" and not known.no_pictures:
        show_line(text("card.shows_picture"))
    for file in files:
        show_line(text("command.page", path=file.resolve()), console)
    if (Path(known.source) / "config.yaml").is_file():
        show_line(text("command.ship", run=shlex.quote(str(known.source))), console)
