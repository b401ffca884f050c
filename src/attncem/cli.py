"""The command `attncem`: one sub-command per verb. Torch is imported only by verbs that compute."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from rich.table import Column, Table
from rich.text import Text

from attncem import __version__
from attncem.progress import clean, lenient_streams, open_console, show_line
from attncem.texts import text
from attncem.types import SCHEMA_VERSION, AttncemError, ConfigError

if TYPE_CHECKING:
    from attncem.results.audit import AuditResult
    from attncem.results.record import Record


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; a person's mistake ends with a clear line on stderr and exit code 2."""
    with lenient_streams():
        try:
            return _run(arguments)
        except AttncemError as error:
            return _complain(str(error))
        except OSError as error:
            return _complain(text("command.no_file", file=error.filename or "stdout", reason=error.strerror or error))
        except (MemoryError, RuntimeError) as error:
            if not _is_about_memory(error):
                raise
            return _complain(text("command.memory", said=str(error).partition("\n")[0]))
        except KeyboardInterrupt:
            verb = next(iter(arguments or sys.argv[1:]), "")
            go_on = text(f"command.go_on.{verb}") if verb in ("train", "audit") else ""
            print(f"attncem: {text('command.interrupted', go_on=go_on)}", file=sys.stderr)  # noqa: T201
            return 130


def _run(arguments: Sequence[str] | None) -> int:
    parser = _parser()
    known, rest = parser.parse_known_args(arguments)
    if rest and not known.takes_overrides:
        parser.error(f"{known.verb}: unexpected {' '.join(rest)}")
    for name, value in vars(known).items():
        if "" in (value if isinstance(value, list) else [value]):
            raise ConfigError(text("command.empty", name=name))
        if isinstance(value, int) and value.bit_length() > 63:
            raise ConfigError(text("command.too_large", name=name, value=value))
    code = int(known.run(known, rest) or 0)
    sys.stdout.flush()
    return code


def _complain(line: str) -> int:
    print(f"attncem: error: {clean(line)}", file=sys.stderr)  # noqa: T201
    return 2


def _is_about_memory(error: BaseException) -> bool:
    """Whether memory ran out: Python's, numpy's and torch's ways to say it."""
    words = ("allocate memory", "out of memory", "bad_alloc")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="attncem",
        description="Train, attack, audit and compare private split models.",
        epilog="Start with: attncem demo.   Every option of a run: attncem train --help",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"attncem {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_VerbParser)
    for add in (_add_train, _add_audit, _add_report, _add_predict, _add_explain, _add_demo, _add_lists):
        add(verbs)
    return parser


Verbs = "argparse._SubParsersAction[argparse.ArgumentParser]"


class _Parser(argparse.ArgumentParser):
    """A parser whose errors cannot steer the terminal."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the words given, and end."""
        super().error(clean(message))


class _VerbParser(_Parser):
    """A verb; `further` makes the last part of its help, when it is asked for."""

    further: Callable[[], str] | None = None

    def format_help(self) -> str:
        """The help text."""
        return super().format_help() + (f"\n{self.further()}" if self.further else "")


def _options_help() -> str:
    from attncem.config.describe import format_help

    return format_help(shutil.get_terminal_size((110, 24)).columns)


def _suites_help() -> str:
    from attncem.config.suites import packaged_suites

    return "".join(f"{suite.name:10} {suite.meaning}\n" for suite in packaged_suites().values())


def _verb(verbs: Verbs, name: str, meaning: str, *, overrides: bool = False) -> _VerbParser:  # type: ignore[valid-type]
    usage = f"attncem {name} [options] [KEY=VALUE ...]" if overrides else None
    parser: _VerbParser = verbs.add_parser(  # type: ignore[attr-defined]
        name, help=meaning, description=meaning, usage=usage, allow_abbrev=False
    )
    parser.further = _options_help if overrides else None
    parser.set_defaults(takes_overrides=overrides)
    return parser


def _add_train(verbs: Verbs) -> None:  # type: ignore[valid-type]
    parser = _verb(verbs, "train", "Train a split model.", overrides=True)
    parser.add_argument("--config", metavar="NAME_OR_FILE", help="packaged configuration or YAML file (default: demo)")
    parser.add_argument("--out", metavar="FOLDER", help="new folder for the run (default: runs/NAME-001, -002 ...)")
    parser.add_argument("--init_from", metavar="RUN_OR_FILE", help="start from a run's or .safetensors file's weights")
    parser.add_argument("--fast", metavar="WAY", help="short for training.fast: how steps are taken on a GPU")
    parser.add_argument("--resume", metavar="RUN", help="go on with an interrupted run; takes no other option")
    parser.set_defaults(run=_train)


def _train(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.config.load import load_config, parse_cli_overrides

    overrides = parse_cli_overrides([*rest, *([f"training.fast={known.fast}"] if known.fast else [])])
    config = known.config
    if known.resume is None:
        config = config or "demo"
        load_config(config, overrides)  # a mistake is told before torch is imported
    from attncem.training import train

    run = train(config, overrides, out=known.out, resume=known.resume, init_from=known.init_from)
    accuracy = run.manifest["best"]["validation_accuracy"]
    show_line(text("command.trained", path=run.path, accuracy=100 * accuracy))


def _add_audit(verbs: Verbs) -> None:  # type: ignore[valid-type]
    from attncem.results.threats import THREATS

    parser = _verb(verbs, "audit", "Attack trained runs and write down what came out.")
    parser.usage = "attncem audit [options] RUN ... [ROW.OPTION=VALUE ...]"
    parser.epilog = (
        "An audit that was stopped goes on where it was: rows that are there are not made again. Options of the "
        "suite's rows can be set, e.g. decoder.epochs=5 for all decoders. Exit code 3: a row failed."
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders")
    parser.further = _suites_help
    parser.add_argument("--suite", default="standard", help="rows to run, see below, or a YAML (default: standard)")
    parser.add_argument("--threat", default="train", help=f"adversary: {', '.join(THREATS)} (default: train)")
    parser.add_argument("--releases", type=int, metavar="K", help="releases of each image that it sees (default: 1)")
    parser.add_argument("--on", default="test", help="images it is judged on: test or validation (default: test)")
    parser.add_argument("--weights", default="best", help="checkpoint: best, last or its name (default: best)")
    parser.add_argument("--only", action="append", default=[], metavar="ROW", help="this row or method; repeatable")
    parser.add_argument("--skip", action="append", default=[], metavar="ROW", help="not this row or method")
    parser.add_argument("--fresh", action="store_true", help="begin anew, beside what is there")
    parser.add_argument("--seed", type=int, metavar="N", help="seed of the attacks and the noise (default: the run's)")
    parser.add_argument("--out", metavar="FOLDER", help="folder for the audit (default: RUN/audits)")
    parser.add_argument("--device", help="auto, cpu or cuda (default: as the run)")
    parser.set_defaults(run=_audit, takes_overrides=True)


def _audit(known: argparse.Namespace, rest: Sequence[str]) -> int:
    from attncem.config.load import parse_cli_overrides
    from attncem.config.suites import load_suite, override_tree

    unexpected = [word for word in rest if word.startswith("-") and "." not in word.partition("=")[0]]
    if unexpected:
        raise ConfigError(f"audit: unexpected {' '.join(unexpected)}")
    words = [word for word in known.runs if "=" in word and not Path(word).exists()]
    runs = [word for word in known.runs if word not in words]
    if not runs:
        raise ConfigError("audit needs at least one run folder")
    suite = load_suite(known.suite).suite
    overrides = parse_cli_overrides([*words, *rest], override_tree(suite))
    return _audit_all(runs, known, overrides)


def _audit_all(runs: Sequence[str], known: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Audit one run after the other; what was found is printed whatever happens to the others."""
    from attncem.auditing import audit
    from attncem.results.audit import AuditResult

    names = ("suite", "threat", "releases", "on", "weights", "only", "skip", "fresh", "seed", "out", "device")
    options = {name: getattr(known, name) for name in names}
    results, errors = list[AuditResult](), list[str]()
    try:
        for run in runs:
            try:
                results.append(audit(run, overrides=overrides, **options))
            except ConfigError:
                raise
            except AttncemError as error:
                errors.append(f"{run}: {error}")
    finally:
        _show_audits(results)
    for line in errors:
        _complain(line)
    failed = any(row.outcome == "failed" for result in results for row in result.rows)
    return 2 if errors else 3 if failed else 0


def _show_audits(results: Sequence[AuditResult]) -> None:
    from attncem.reporting import print_summary

    if not results:
        return
    console = open_console()
    print_summary(results, console)
    for result in results:
        for found in result.findings:
            show_line(text("command.warning", run=result.subject.run, said=found.text), console)
        show_line(text("command.audit_folder", folder=result.folder), console)


def _add_report(verbs: Verbs) -> None:  # type: ignore[valid-type]
    parser = _verb(verbs, "report", "Write one self-contained HTML page about runs.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders")
    parser.add_argument("--out", default="report.html", help="file to write (default: report.html)")
    parser.add_argument("--csv", action="store_true", help="also write the headline table as CSV")
    parser.set_defaults(run=_report)


def _report(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.reporting import report

    if not Path(known.out).name:
        raise ConfigError(f"--out {known.out}: is a folder; give the name of a file, e.g. report.html")
    show_line(str(report(known.runs, known.out, csv=known.csv)), open_console())


_IMAGE = "image file of any size, or test:17 for that image of the data set's test images"


def _add_predict(verbs: Verbs) -> None:  # type: ignore[valid-type]
    parser = _verb(verbs, "predict", "Label images with a run, and say what leaves the device.")
    parser.add_argument("run_folder", metavar="RUN", help="run folder")
    parser.add_argument("images", nargs="+", metavar="IMAGE", help=_IMAGE)
    parser.add_argument("--top", type=int, default=3, metavar="N", help="labels shown for each image (default: 3)")
    parser.add_argument("--save", metavar="FOLDER", help="write what leaves the device there; replaces no file")
    parser.add_argument("--save_as", default="safetensors", help="safetensors or npy (default: safetensors)")
    _add_common(parser)
    parser.set_defaults(run=_predict)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--weights", default="best", help="checkpoint: best, last or its name (default: best)")
    parser.add_argument("--device", help="auto, cpu or cuda (default: as the run)")
    parser.add_argument("--json", action="store_true", help="print JSON instead")


def _predict(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.inference import predict
    from attncem.reporting import print_predictions

    names = ("top", "save", "save_as", "weights", "device")
    result = predict(known.run_folder, known.images, **{name: getattr(known, name) for name in names})
    if known.json:
        _print_json(result)
    else:
        print_predictions(result, open_console())


def _print_json(result: Record) -> None:
    data = {"schema_version": SCHEMA_VERSION, **result.to_dict()}
    print(json.dumps(data, indent=1, ensure_ascii=_is_ascii(), allow_nan=False))  # noqa: T201


def _is_ascii() -> bool:
    """Whether stdout may lack letters: data is then written in its own escapes, which are read back as it was."""
    return not (sys.stdout.encoding or "").lower().startswith("utf")


def _add_explain(verbs: Verbs) -> None:  # type: ignore[valid-type]
    parser = _verb(verbs, "explain", "Show one image on its way through a run, as one self-contained HTML page.")
    parser.add_argument("run_folder", metavar="RUN", help="run folder")
    parser.add_argument("image", metavar="IMAGE", help=_IMAGE)
    parser.add_argument("--out", help="page to write (default: explanation.html; with --json none)")
    _add_common(parser)
    parser.set_defaults(run=_explain)


def _explain(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.explaining import explain
    from attncem.reporting import print_explanation

    out = Path(known.out or "explanation.html")
    page = out if known.out or not known.json else None
    found = explain(known.run_folder, known.image, out=page, weights=known.weights, device=known.device)
    if known.json:
        _print_json(found)
        return
    console = open_console()
    print_explanation(found, console)
    show_line(text("command.page", path=out.resolve()), console)


def _add_demo(verbs: Verbs) -> None:  # type: ignore[valid-type]
    parser = _verb(
        verbs, "demo", "Train, attack and compare four models on the embedded data, in minutes.", overrides=True
    )
    parser.add_argument(
        "--out", metavar="FOLDER", help="new folder for the runs and the report (default: runs/demo-001 ...)"
    )
    parser.add_argument("--workers", type=int, metavar="N", help="processes (default: one per core, four at most)")
    parser.set_defaults(run=_demo)


def _demo(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.config.load import parse_cli_overrides
    from attncem.demonstration import run_demo
    from attncem.reporting import print_summary

    demo = run_demo(known.out, parse_cli_overrides(rest), workers=known.workers)
    console = open_console()
    print_summary(demo.audits, console)
    show_line(text("command.report", path=demo.report.resolve()), console)


def _table(columns: str, rows: Iterable[Sequence[str]]) -> Table:
    """A table that breaks long words instead of cutting them: names and paths stay whole."""
    table = Table(*(Column(name, overflow="fold") for name in columns.split("|")))
    for row in rows:
        table.add_row(*(Text(clean(cell)) for cell in row))
    return table


def _add_lists(verbs: Verbs) -> None:  # type: ignore[valid-type]
    parser = _verb(verbs, "data", "List the data sets, where they are looked for and how to get them.")
    parser.add_argument("--root", metavar="FOLDER", help="folder to look in (default: $ATTNCEM_DATA, ./data)")
    parser.add_argument("--verify", action="store_true", help="read what is found; check counts, labels and hashes")
    parser.set_defaults(run=_data)
    parser = _verb(verbs, "runs", "List the runs in a folder.")
    parser.add_argument("folder", nargs="?", default="runs", help="folder of runs (default: runs)")
    parser.set_defaults(run=_runs)
    parser = _verb(verbs, "config", "Print the full resolved configuration, or its JSON schema.", overrides=True)
    parser.add_argument(
        "--config", metavar="NAME_OR_FILE", help="packaged configuration or YAML file (default: defaults)"
    )
    parser.add_argument("--schema", action="store_true", help="print the JSON schema instead")
    parser.add_argument("--list", action="store_true", help="list the packaged configurations instead")
    parser.set_defaults(run=_config)


def _data(known: argparse.Namespace, rest: Sequence[str]) -> int:
    from attncem.data.inspect import inspect_datasets

    rows = inspect_datasets(known.root, verify=known.verify)
    cells = [(row.name, row.shape, row.classes, row.train, row.test, row.state) for row in rows]
    console = open_console()
    console.print(_table(text("command.data.columns"), cells))
    for row in rows:
        show_line(f"{row.name}: {row.note}", console)
    return 0 if all(row.ok for row in rows) else 2


def _runs(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.runs import describe_runs

    rows, console = describe_runs(known.folder), open_console()
    if rows:
        console.print(_table(text("command.runs.columns"), rows))
    else:
        show_line(text("command.no_runs", folder=known.folder), console)


def _config(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.config.load import config_schema, dump_config, load_config, packaged_configs, parse_cli_overrides

    if known.schema:
        print(json.dumps(config_schema(), indent=1))  # noqa: T201
    elif known.list:
        for name, meaning in packaged_configs().items():
            print(f"{name:20} {meaning}")  # noqa: T201
    else:
        loaded = load_config(known.config, parse_cli_overrides(rest))
        for note in loaded.notes:
            show_line(text("command.note", said=note))
        print(dump_config(loaded.config, ascii_only=_is_ascii()), end="")  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
