"""The command `attncem`: one sub-command per verb. Torch is imported only by verbs that compute."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from attncem import __version__
from attncem.progress import show_line
from attncem.types import AttncemError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; a person's mistake ends with a clear line on stderr and exit code 2."""
    try:
        parser = _parser()
        known, rest = parser.parse_known_args(arguments)
        if rest and not known.takes_overrides:
            parser.error(f"{known.verb}: unexpected {' '.join(rest)}")
        return int(known.run(known, rest) or 0)
    except AttncemError as error:
        print(f"attncem: error: {error}", file=sys.stderr)  # noqa: T201
        return 2
    except KeyboardInterrupt:
        print("attncem: interrupted; go on later with: attncem train --resume RUN", file=sys.stderr)  # noqa: T201
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="attncem",
        description="Train, attack, audit and compare private split models.",
        epilog="Start with: attncem demo.   Every option of a run: attncem train --help",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"attncem {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_VerbParser)
    _add_train(verbs)
    _add_audit(verbs)
    _add_report(verbs)
    _add_predict(verbs)
    _add_explain(verbs)
    _add_demo(verbs)
    _add_data(verbs)
    _add_runs(verbs)
    _add_config(verbs)
    return parser


Verbs = "argparse._SubParsersAction[argparse.ArgumentParser]"


class _VerbParser(argparse.ArgumentParser):
    """A verb; the help of one that takes overrides ends with every option of a run."""

    takes_overrides = False

    def format_help(self) -> str:
        """The help text, its last part made only when it is asked for."""
        if not self.takes_overrides:
            return super().format_help()
        from attncem.config.describe import format_help

        width = shutil.get_terminal_size((110, 24)).columns
        return f"{super().format_help()}\n{format_help(width)}"


def _verb(verbs: Verbs, name: str, meaning: str, *, overrides: bool = False) -> argparse.ArgumentParser:  # type: ignore[valid-type]
    usage = f"attncem {name} [options] [KEY=VALUE ...]" if overrides else None
    parser: _VerbParser = verbs.add_parser(  # type: ignore[attr-defined]
        name, help=meaning, description=meaning, usage=usage, allow_abbrev=False
    )
    parser.takes_overrides = overrides
    parser.set_defaults(takes_overrides=overrides)
    return parser


def _add_train(verbs: Verbs) -> None:  # type: ignore[valid-type]
    parser = _verb(verbs, "train", "Train a split model.", overrides=True)
    parser.add_argument("--config", metavar="NAME_OR_FILE", help="packaged configuration or YAML file (default: demo)")
    parser.add_argument("--out", metavar="FOLDER", help="new folder for the run (default: runs/NAME-001, -002 ...)")
    parser.add_argument(
        "--init_from", metavar="RUN_OR_FILE", help="start from a run's best weights or a .safetensors file"
    )
    parser.add_argument("--fast", metavar="WAY", help="short for training.fast: how steps are taken on a GPU")
    parser.add_argument("--resume", metavar="RUN", help="go on with an interrupted run; takes no other option")
    parser.set_defaults(run=_train)


def _train(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.config.load import load_config, parse_cli_overrides

    overrides = parse_cli_overrides([*rest, *([f"training.fast={known.fast}"] if known.fast else [])])
    if known.resume:
        from attncem.training import train

        run = train(known.config, overrides, out=known.out, resume=known.resume, init_from=known.init_from)
    else:
        loaded = load_config(known.config or "demo", overrides)
        for note in loaded.notes:
            show_line(f"note: {note}")
        from attncem.training import train

        run = train(loaded.config, out=known.out, init_from=known.init_from)
    _say_trained(run.path, run.manifest)


def _say_trained(path: Path, manifest: dict[str, object]) -> None:
    best = manifest["best"]
    accuracy = best["validation_accuracy"] if isinstance(best, dict) else float("nan")
    show_line(f"{path}: validation accuracy {100 * accuracy:.1f} %. Next: attncem audit {path}")


def _add_audit(verbs: Verbs) -> None:  # type: ignore[valid-type]
    from attncem.config.attacks import SUITES
    from attncem.types import THREAT_MODELS

    suites = "; ".join(f"{suite.name}: {suite.meaning}" for suite in SUITES.values())
    parser = _verb(verbs, "audit", "Attack trained runs and write down what came out.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders")
    parser.add_argument("--suite", default="standard", help=f"attacks to run (default: standard). {suites}")
    parser.add_argument(
        "--threat", default="train", help=f"attacker's data: {', '.join(THREAT_MODELS)} (default: train)"
    )
    parser.add_argument("--on", default="test", help="images it is judged on: test or validation (default: test)")
    parser.add_argument("--weights", default="best", help="checkpoint: best, last or its name (default: best)")
    parser.add_argument("--device", help="auto, cpu or cuda (default: as the run)")
    parser.set_defaults(run=_audit)


def _audit(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.auditing import audit
    from attncem.reporting import print_summary

    options = {"suite": known.suite, "threat": known.threat, "on": known.on, "weights": known.weights}
    results = [audit(run, device=known.device, **options) for run in known.runs]
    console = Console()
    print_summary(results, console)
    for result in results:
        for warning in result.warnings:
            show_line(f"warning: {result.run}: {warning}", console)


def _add_report(verbs: Verbs) -> None:  # type: ignore[valid-type]
    parser = _verb(verbs, "report", "Write one self-contained HTML page about runs.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders")
    parser.add_argument("--out", default="report.html", help="file to write (default: report.html)")
    parser.add_argument("--csv", action="store_true", help="also write the headline table as CSV")
    parser.set_defaults(run=_report)


def _report(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.reporting import report

    Console().print(str(report(known.runs, known.out, csv=known.csv)), highlight=False, soft_wrap=True)


_IMAGE = "image file of any size, or test:17 for that image of the data set's test images"


def _add_predict(verbs: Verbs) -> None:  # type: ignore[valid-type]
    parser = _verb(verbs, "predict", "Label images with a run, and say what leaves the device.")
    parser.add_argument("run_folder", metavar="RUN", help="run folder")
    parser.add_argument("images", nargs="+", metavar="IMAGE", help=_IMAGE)
    parser.add_argument("--top", type=int, default=3, metavar="N", help="labels shown for each image (default: 3)")
    parser.add_argument("--save", metavar="FOLDER", help="write what leaves the device there; replaces no file")
    parser.add_argument("--save_as", default="safetensors", help="safetensors or npy (default: safetensors)")
    parser.add_argument(
        "--seed", type=int, metavar="N", help="repeatable noise, for experiments (default: fresh noise)"
    )
    _add_common(parser)
    parser.set_defaults(run=_predict)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--weights", default="best", help="checkpoint: best, last or its name (default: best)")
    parser.add_argument("--device", help="auto, cpu or cuda (default: as the run)")
    parser.add_argument("--json", action="store_true", help="print JSON instead")


def _predict(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.inference import predict
    from attncem.reporting import print_predictions

    names = ("top", "save", "save_as", "seed", "weights", "device")
    result = predict(known.run_folder, known.images, **{name: getattr(known, name) for name in names})
    if known.json:
        print(json.dumps(result.to_dict(), indent=1, ensure_ascii=False, allow_nan=False))  # noqa: T201
    else:
        print_predictions(result, Console())


def _add_explain(verbs: Verbs) -> None:  # type: ignore[valid-type]
    parser = _verb(verbs, "explain", "Show one image on its way through a run, as one self-contained HTML page.")
    parser.add_argument("run_folder", metavar="RUN", help="run folder")
    parser.add_argument("image", metavar="IMAGE", help=_IMAGE)
    parser.add_argument("--out", help="page to write (default: explanation.html; with --json none)")
    parser.add_argument("--decoder_epochs", type=float, metavar="N", help="also train a small decoder for N epochs")
    _add_common(parser)
    parser.set_defaults(run=_explain)


def _explain(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.explaining import explain
    from attncem.reporting import print_explanation

    out = Path(known.out or "explanation.html")
    page = out if known.out or not known.json else None
    names = ("decoder_epochs", "weights", "device")
    found = explain(known.run_folder, known.image, out=page, **{name: getattr(known, name) for name in names})
    if known.json:
        print(json.dumps(found.to_dict(), indent=1, ensure_ascii=False, allow_nan=False))  # noqa: T201
        return
    console = Console()
    print_explanation(found, console)
    console.print(f"page: {out.resolve()}", markup=False, highlight=False, soft_wrap=True)


def _add_demo(verbs: Verbs) -> None:  # type: ignore[valid-type]
    parser = _verb(
        verbs, "demo", "Train, attack and compare three models on the embedded data, in minutes.", overrides=True
    )
    parser.add_argument(
        "--out", metavar="FOLDER", help="new folder for the runs and the report (default: runs/demo-001 ...)"
    )
    parser.add_argument("--workers", type=int, metavar="N", help="processes (default: one per core, three at most)")
    parser.set_defaults(run=_demo)


def _demo(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.config.load import parse_cli_overrides
    from attncem.demonstration import run_demo
    from attncem.reporting import print_summary

    demo = run_demo(known.out, parse_cli_overrides(rest), workers=known.workers)
    console = Console()
    print_summary(demo.audits, console)
    console.print(f"report: {demo.report.resolve()}", highlight=False, soft_wrap=True)


def _table(*columns: str) -> Table:
    """A table that breaks long words instead of cutting them: names and paths stay whole."""
    return Table(*(Column(name, overflow="fold") for name in columns))


def _add_data(verbs: Verbs) -> None:  # type: ignore[valid-type]
    parser = _verb(verbs, "data", "List the data sets, where they are looked for and how to get them.")
    parser.add_argument("--root", metavar="FOLDER", help="folder to look in (default: $ATTNCEM_DATA, ./data)")
    parser.add_argument("--verify", action="store_true", help="read what is found; check counts, labels and hashes")
    parser.set_defaults(run=_data)


def _data(known: argparse.Namespace, rest: Sequence[str]) -> int:
    from attncem.data.inspect import inspect_datasets

    table = _table("data set", "images", "classes", "train", "test", "state")
    rows = inspect_datasets(known.root, verify=known.verify)
    for row in rows:
        table.add_row(row.name, row.shape, row.classes, row.train, row.test, row.state)
    console = Console()
    console.print(table)
    for row in rows:
        console.print(f"{row.name}: {row.note}", markup=False, highlight=False, soft_wrap=True)
    return 0 if all(row.ok for row in rows) else 2


def _add_runs(verbs: Verbs) -> None:  # type: ignore[valid-type]
    parser = _verb(verbs, "runs", "List the runs in a folder.")
    parser.add_argument("folder", nargs="?", default="runs", help="folder of runs (default: runs)")
    parser.set_defaults(run=_runs)


def _runs(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.runs import describe_runs

    table = _table("run", "status", "surrogate", "weight", "epoch", "validation accuracy", "audits")
    for row in describe_runs(known.folder):
        table.add_row(*row)
    Console().print(table if table.row_count else f"no runs in {known.folder}")


def _add_config(verbs: Verbs) -> None:  # type: ignore[valid-type]
    parser = _verb(verbs, "config", "Print the full resolved configuration, or its JSON schema.", overrides=True)
    parser.add_argument(
        "--config", metavar="NAME_OR_FILE", help="packaged configuration or YAML file (default: defaults)"
    )
    parser.add_argument("--schema", action="store_true", help="print the JSON schema instead")
    parser.add_argument("--list", action="store_true", help="list the packaged configurations instead")
    parser.set_defaults(run=_config)


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
            print(f"note: {note}", file=sys.stderr)  # noqa: T201
        print(dump_config(loaded.config), end="")  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
