"""attncem explain."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from attncem.base.progress import open_console, show_line
from attncem.base.texts import text
from attncem.cli.verbs.base import IMAGE, Verbs, add_common, print_json, verb


def add(verbs: Verbs) -> None:
    """The verb `explain`."""
    parser = verb(verbs, "explain", "Follow one image through a run, as one self-contained HTML page.")
    parser.add_argument("run_folder", metavar="RUN", help="run folder")
    parser.add_argument("image", metavar="IMAGE", help=IMAGE)
    parser.add_argument("--out", help="page to write (default: explanation.html; with --json none)")
    add_common(parser)
    parser.set_defaults(run=_explain)


def _explain(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.reporting import print_explanation
    from attncem.reporting.explain.explaining import explain

    out = Path(known.out or "explanation.html")
    page = out if known.out or not known.json else None
    found = explain(known.run_folder, known.image, out=page, weights=known.weights, device=known.device)
    if known.json:
        print_json(found)
        return
    console = open_console()
    print_explanation(found, console)
    show_line(text("command.page", path=out.resolve()), console)
