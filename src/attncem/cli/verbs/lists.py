"""attncem data, runs and config: lists of data sets, runs and configurations."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from attncem.base.progress import open_console, show_line
from attncem.base.texts import has_text, text
from attncem.cli.verbs.base import Verbs, is_ascii, listed, table, verb

if TYPE_CHECKING:
    from attncem.records.listing import RunLine


def add(verbs: Verbs) -> None:
    """The verbs `data`, `runs` and `config`."""
    parser = verb(verbs, "data", "List the data sets, their search paths and how to get them.")
    parser.add_argument("--root", metavar="FOLDER", help="folder to look in (default: $ATTNCEM_DATA, ./data)")
    parser.add_argument("--verify", action="store_true", help="read the files; check counts, labels and hashes")
    parser.set_defaults(run=_data)
    parser = verb(verbs, "runs", "List the runs in a folder and its sub-folders.")
    parser.add_argument("folder", nargs="?", default="runs", help="folder of runs (default: runs)")
    parser.set_defaults(run=_runs)
    parser = verb(verbs, "config", "Print the full resolved configuration, or its JSON schema.", overrides=True)
    parser.add_argument(
        "--config", metavar="NAME_OR_FILE", help="packaged configuration or YAML file (default: defaults)"
    )
    parser.add_argument("--schema", action="store_true", help="print the JSON schema instead")
    parser.add_argument("--list", action="store_true", help="list the packaged configurations instead")
    parser.set_defaults(run=_config)


def _data(known: argparse.Namespace, rest: Sequence[str]) -> int:
    from attncem.data.inspect import inspect_datasets

    rows = inspect_datasets(known.root, verify=known.verify)
    cells = [(row.name, row.shape, row.classes, row.train, row.test, _state(row.state)) for row in rows]
    console = open_console()
    console.print(table(text("command.data.columns"), cells, numbers=range(2, 5)))
    for row in rows:
        show_line(f"{row.name}: {row.note}", console)
    return 0 if all(row.ok for row in rows) else 2


def _runs(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.records.listing import describe_runs

    lines, console = describe_runs(known.folder), open_console()
    if not lines:
        show_line(text("command.no_runs", folder=known.folder), console)
        return
    cells = [line._replace(status=_state(line.status), accuracy=_accuracy(line))[:-1] for line in lines]
    show_line(text("command.runs.title", folder=known.folder), console)
    console.print(table(text("command.runs.columns"), cells, numbers=range(3, 8)))
    if any(line.accuracy and not line.audited for line in lines):
        show_line(text("command.runs.unaudited"), console)


def _state(word: str) -> str:
    """The state of a run or a data set in words; an unknown state of a later version is shown as it is."""
    return text(f"command.state.{word}") if has_text(f"command.state.{word}") else word


def _accuracy(line: RunLine) -> str:
    """The accuracy, with a mark if it is not from an audit."""
    return (
        text("command.runs.validation", accuracy=line.accuracy) if line.accuracy and not line.audited else line.accuracy
    )


def _config(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.config.loading.load import dump_config, load_config, packaged_configs
    from attncem.config.loading.overrides import parse_cli_overrides
    from attncem.config.options.run import RunConfig

    if known.schema:
        print(json.dumps(RunConfig.model_json_schema(), indent=1))  # noqa: T201
    elif known.list:
        print(listed(packaged_configs()), end="")  # noqa: T201
    else:
        loaded = load_config(known.config, parse_cli_overrides(rest))
        for note in loaded.notes:
            show_line(text("command.note", said=note))
        print(dump_config(loaded.config, ascii_only=is_ascii()), end="")  # noqa: T201
