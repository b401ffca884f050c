"""attncem card."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from attncem.base.progress import open_console, show_line
from attncem.base.texts import text
from attncem.cli.verbs.base import Verbs, print_json, verb


def add(verbs: Verbs) -> None:
    """The verb `card`."""
    parser = verb(verbs, "card", "Write the privacy card of a run from its audits, to ship with the model.")
    parser.add_argument("source", metavar="RUN", help="run folder, or the audit folder of an external encoder")
    parser.add_argument(
        "--out", metavar="FOLDER", help="folder for card.json, card.md and card.html (default: RUN/card)"
    )
    parser.add_argument("--json", action="store_true", help="also print JSON")
    parser.set_defaults(run=_card)


def _card(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.reporting import privacy_card

    card, files = privacy_card(known.source, known.out)
    if known.json:
        print_json(card)
        return
    console = open_console()
    for said in (card.leakage, *card.caveats):
        show_line(said, console)
    for file in files:
        show_line(text("command.page", path=file.resolve()), console)
