"""attncem data, runs and config: lists of data sets, runs and configurations."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attncem.base.progress import open_console, show_line
from attncem.base.texts import has_text, text
from attncem.cli.verbs.base import Verbs, add_json, is_ascii, listed, print_json, table, verb

if TYPE_CHECKING:
    from attncem.data.inspect import DatasetState
    from attncem.records.listing import RunLine


def add(verbs: Verbs) -> None:
    """The verbs `data`, `runs` and `config`."""
    parser = verb(verbs, "data", "List the data sets, their search paths and how to get them.")
    parser.add_argument("--root", metavar="FOLDER", help="folder to look in (default: $ATTNCEM_DATA, ./data)")
    parser.add_argument("--verify", action="store_true", help="read the files; check counts, labels and hashes")
    add_json(parser)
    parser.set_defaults(run=_data)
    parser = verb(verbs, "runs", "List the runs in a folder and its sub-folders.")
    parser.add_argument("folder", nargs="?", default="runs", help="folder of runs (default: runs)")
    parser.add_argument(
        "--time-client",
        action="store_true",
        help="first measure every finished run's client on one CPU thread, also by onnxruntime where it is installed",
    )
    add_json(parser)
    parser.set_defaults(run=_runs)
    parser = verb(verbs, "config", "Print the full resolved configuration, or its JSON schema.", overrides=True)
    parser.add_argument(
        "--config", metavar="NAME_OR_FILE", help="packaged configuration or YAML file (default: defaults)"
    )
    parser.add_argument("--schema", action="store_true", help="print the JSON schema instead")
    parser.add_argument("--list", action="store_true", help="list the packaged configurations instead")
    add_json(parser)
    parser.set_defaults(run=_config)


def _data(known: argparse.Namespace, rest: Sequence[str]) -> int:
    from attncem.data.inspect import inspect_datasets

    rows = inspect_datasets(known.root, verify=known.verify)
    code = 0 if all(row.ok for row in rows) else 2
    if known.json:
        print_json({"data_sets": list(map(_data_set, rows))}, local=True)  # its notes say where to put the files
        return code
    cells = [(row.name, row.shape, row.classes, row.train, row.test, _state(row.state)) for row in rows]
    console = open_console()
    console.print(table(text("command.data.columns"), cells, numbers=range(2, 5)))
    for row in rows:
        show_line(f"{row.name}: {row.note}", console)
    return code


def _data_set(row: DatasetState) -> dict[str, Any]:
    """A line of `attncem data` as data: numbers where they are known, else null."""
    counts = {name: _number(getattr(row, name)) for name in ("classes", "train", "test")}
    return {"name": row.name, "shape": row.shape, **counts, "ok": row.ok, "state": row.state, "note": row.note}


def _runs(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.records.listing import describe_runs
    from attncem.reporting import on_device, sending

    if known.time_client:
        _time_clients(known.folder)
    lines, console = describe_runs(known.folder), open_console()
    if known.json:
        print_json({"folder": known.folder, "runs": list(map(_run_line, lines))})
        return
    if not lines:
        show_line(text("command.no_runs", folder=known.folder), console)
        return
    cells = [line._replace(status=_state(line.status), accuracy=_accuracy(line))[:-1] for line in lines]
    show_line(text("command.runs.title", folder=known.folder), console)
    console.print(table(text("command.runs.columns"), cells, numbers=range(3, 8)))
    if any(line.accuracy and not line.audited for line in lines):
        show_line(text("command.runs.unaudited"), console)
    for sentence in (*sending.of_folder(known.folder), *on_device.of_folder(known.folder)):
        show_line(sentence, console)


def _time_clients(folder: str) -> None:
    """Measure the clients of the finished runs; the lines go where notes go, so that --json stays one object.

    A run that cannot be measured gets a line with the reason, and the others are still measured.
    """
    from attncem.judging.client_timing import time_run
    from attncem.records.listing import list_runs
    from attncem.reporting.client_costs import described

    for run in list_runs(folder):
        name = run.path.name
        try:
            said = described(time_run(run)._asdict()) if run.is_finished else None
        except Exception as error:  # a damaged run may fail in any way
            show_line(text("command.timed.failed", run=name, said=error))
            continue
        if said is not None:
            show_line(text("command.timed", run=name, said=said) if said else text("command.timed.none", run=name))


def _run_line(line: RunLine) -> dict[str, Any]:
    """A line of `attncem runs` as data: rounded as in the table, unknown numbers as null."""
    done, _, planned = line.epoch.partition("/")
    percent = _number(line.accuracy)
    return {
        "run": line.run,
        "status": line.status,
        "surrogate": line.surrogate or None,
        "penalty_weight": _number(line.weight),
        "epoch": _number(done),
        "epochs": _number(planned),
        "accuracy": None if percent is None else round(percent / 100, 6),
        "audited": line.audited,
        "mse": _number(line.mse),
        "audits": _number(line.audits),
    }


def _number(word: str) -> float | None:
    """The number that a table shows; None where it shows none."""
    try:
        value = float(word)
    except ValueError:
        return None
    return int(value) if value.is_integer() and "." not in word else value


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
    elif known.list and known.json:
        print_json({"configurations": packaged_configs()})
    elif known.list:
        print(listed(packaged_configs()), end="")  # noqa: T201
    else:
        loaded = load_config(known.config, parse_cli_overrides(rest))
        for note in loaded.notes:
            show_line(text("command.note", said=note))
        if known.json:
            print_json({"config": loaded.config.model_dump(mode="json")}, local=True)
        else:
            print(dump_config(loaded.config, ascii_only=is_ascii()), end="")  # noqa: T201
