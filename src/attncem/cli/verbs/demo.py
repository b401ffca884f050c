"""attncem demo."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence

from attncem.base.progress import open_console, show_line
from attncem.base.texts import text
from attncem.cli.verbs.base import Verbs, add_json, print_json, verb
from attncem.cli.verbs.reaching import activation, as_typed, own_command


def add(verbs: Verbs) -> None:
    """The verb `demo`."""
    parser = verb(
        verbs, "demo", "Train, attack and compare five models on the embedded data, in minutes.", overrides=True
    )
    parser.add_argument(
        "--out", metavar="FOLDER", help="new folder for the runs and the report (default: runs/demo-001 ...)"
    )
    parser.add_argument("--workers", type=int, metavar="N", help="processes (default: one per core, five at most)")
    add_json(parser)
    parser.set_defaults(run=_demo)


def _demo(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.campaigns.demonstration import run_demo
    from attncem.config.loading.overrides import parse_cli_overrides
    from attncem.reporting import print_summary

    demo = run_demo(known.out, parse_cli_overrides(rest), workers=known.workers)
    if known.json:
        runs = [run.name for run in demo.runs]
        alone = demo.alone.name if demo.alone else None
        print_json({"report": str(demo.report), "runs": runs, "alone": alone, "audits": demo.audits})
        return
    console = open_console()
    print_summary(demo.audits, console, brief=True)
    show_line(text("command.report", path=demo.report.resolve()), console)
    command = own_command()
    run = shlex.quote(str(as_typed(demo.runs[-1])))
    lines = [
        text("command.demo.next"),
        text("command.demo.explain", command=command, run=run),
        text("command.demo.audit", command=command, run=run),
        text("command.demo.own", command=command),
    ]
    if activate := activation():
        lines.append(text("command.demo.activate", activate=activate))
    for line in lines:
        show_line(line, console)
