"""attncem report."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from attncem.base.progress import open_console, show_line
from attncem.base.types import ConfigError
from attncem.cli.verbs.base import Verbs, verb


def add(verbs: Verbs) -> None:
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
