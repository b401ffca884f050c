"""attncem seal: let a run of an older version release again."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from attncem.base.progress import open_console, show_line
from attncem.base.texts import text
from attncem.cli.verbs.base import Verbs, verb


def add(verbs: Verbs) -> None:
    """The verb `seal`."""
    parser = verb(verbs, "seal", "Seal a run of an older version, so that predict accepts it.")
    parser.epilog = "Check config.yaml first: the seal confirms the channel as it is now. Details: docs/channels.md"
    parser.add_argument("run_folder", metavar="RUN", help="run folder")
    parser.add_argument("--new_key", action="store_true", help="make noise.key, where it is missing; overwrites none")
    parser.set_defaults(run=_seal)


def _seal(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.models.releasing import seal_run

    result = seal_run(known.run_folder, with_new_key=known.new_key)
    stages = [" ".join(f"{name}={value}" for name, value in stage.items()) for stage in result.channel]
    front_end = " ".join(f"{name}={value}" for name, value in result.front_end.items())
    names = ", ".join(result.checkpoints)
    key = "command.sealed" if names else "command.sealed.fresh"
    facts = {"names": names, "channel": "; ".join(stages), "front_end": front_end}
    show_line(text(key, run=known.run_folder, **facts), open_console())
