"""attncem compare."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from attncem.base.progress import open_console, show_line
from attncem.base.texts import text
from attncem.base.types import ConfigError
from attncem.cli.verbs.base import Verbs, print_json, verb


def add(verbs: Verbs) -> None:
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
    parser.add_argument("--json", action="store_true", help="print JSON instead")
    parser.set_defaults(run=_compare)


def _compare(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.reporting import compare, print_comparison

    if known.out is not None and not Path(known.out).name:
        raise ConfigError(f"--out {known.out}: is a folder; give the name of a file, e.g. compare.html")
    found = compare(known.runs, by=known.by, out=known.out)
    if known.json:
        print_json(found)
        return
    console = open_console()
    print_comparison(found, console)
    said = text("command.page", path=Path(known.out).resolve()) if known.out else text("compare.hint")
    show_line(said, console)
