"""attncem seal: let a run of an older version release again."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attncem.base.progress import open_console, show_line
from attncem.base.texts import text
from attncem.cli.verbs.base import Verbs, verb

if TYPE_CHECKING:
    from attncem.models.releasing import Sealed


def add(verbs: Verbs) -> None:
    """The verb `seal`."""
    parser = verb(verbs, "seal", "Seal a run of an older version, so that predict accepts it.")
    parser.epilog = "Check config.yaml first: the seal confirms the channel as it is now. Details: docs/channels.md"
    parser.add_argument("run_folder", metavar="RUN", help="run folder")
    parser.add_argument("--new-key", action="store_true", help="make noise.key, where it is missing; overwrites none")
    parser.set_defaults(run=_seal)


def _seal(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.models.releasing import seal_run

    result = seal_run(known.run_folder, with_new_key=known.new_key)
    show_line(_said(known.run_folder, result), open_console())
    if result.thresholds:
        thresholds = ", ".join(f"{value:.6g} ({name})" for name, value in result.thresholds.items())
        show_line(text("command.sealed.decision", run=known.run_folder, thresholds=thresholds), open_console())


def _said(run: str, result: Sealed) -> str:
    """What was sealed, in words."""
    if not result.checkpoints:
        return text("command.sealed.fresh", run=run)
    stages = "; ".join(_options(stage) for stage in result.channel)
    names = ", ".join(result.checkpoints)
    return text("command.sealed", run=run, names=names, channel=stages, front_end=_options(result.front_end))


def _options(options: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in options.items())
