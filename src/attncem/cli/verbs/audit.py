"""attncem audit."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attncem.base.progress import open_console, show_line
from attncem.base.texts import text
from attncem.base.types import AttncemError, ConfigError
from attncem.cli.verbs.base import Verbs, add_json, complain, listed, verb
from attncem.cli.verbs.foreign import add_encoder, open_given, refuse_without_encoder
from attncem.cli.verbs.gate import Gate, add_gate

if TYPE_CHECKING:
    from attncem.judging.opening import OpenRun
    from attncem.records.audit import AuditResult


def add(verbs: Verbs) -> None:
    """The verb `audit`."""
    from attncem.config.threats import THREATS

    parser = verb(verbs, "audit", "Attack trained runs, or an external encoder, and save the results.")
    parser.usage = "attncem audit [options] RUN ... | --encoder FILE.onnx [ROW.OPTION=VALUE ...]"
    parser.epilog = (
        "An audit that was stopped resumes where it stopped; finished rows are not repeated. Options of the "
        "suite's rows can be set, e.g. decoder.epochs=5 for all decoders. Exit code 3: a row failed, or the audit "
        "does not pass --fail-if or --min-images."
    )
    parser.add_argument("runs", nargs="*", metavar="RUN", help="run folders")
    parser.further = _suites_help
    parser.add_argument("--suite", default="standard", help="rows to run, see below, or a YAML (default: standard)")
    parser.add_argument("--threat", default="train", help=f"adversary: {', '.join(THREATS)} (default: train)")
    parser.add_argument("--releases", type=int, metavar="K", help="releases seen of each image (default: 1)")
    parser.add_argument(
        "--attacker-data",
        metavar="FOLDER|SET",
        help="pictures from elsewhere that the adversary owns; no labels needed",
    )
    parser.add_argument(
        "--attacker-images", type=int, metavar="N", help="images that the adversary owns (default: all)"
    )
    parser.add_argument(
        "--queries", type=int, metavar="Q", help="queries that the client answers (default: any number)"
    )
    parser.add_argument(
        "--sees-answers",
        action="store_true",
        help="the adversary sees what a client with a head answers itself",
    )
    parser.add_argument("--on", default="test", help="images to evaluate on: test or validation (default: test)")
    parser.add_argument("--weights", default="best", help="checkpoint: best, last or its name (default: best)")
    parser.add_argument("--only", action="append", default=[], metavar="ROW", help="this row or method; repeatable")
    parser.add_argument("--skip", action="append", default=[], metavar="ROW", help="omit this row or method")
    parser.add_argument("--reference", metavar="RUN", help="undefended run on the same data, for probes")
    parser.add_argument("--fresh", action="store_true", help="start a new audit and keep the existing one")
    parser.add_argument("--seed", type=int, metavar="N", help="seed of the attacks and the noise (default: the run's)")
    parser.add_argument("--out", metavar="FOLDER", help="folder for the audit (default: RUN/audits)")
    parser.add_argument("--device", help="auto, cpu or cuda (default: as the run)")
    parser.add_argument("--threads", type=int, metavar="N", help="torch threads on a CPU (default: as the run)")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="attacks in parallel (default: 1)")
    add_json(parser)
    add_gate(parser)
    add_encoder(parser)
    parser.set_defaults(run=_audit, takes_overrides=True)


def _suites_help() -> str:
    from attncem.config.options.suites import packaged_suites

    return listed({suite.name: suite.meaning for suite in packaged_suites().values()})


def _audit(known: argparse.Namespace, rest: Sequence[str]) -> int:
    from attncem.config.loading.overrides import parse_cli_overrides
    from attncem.config.options.suites import load_suite, override_tree

    unexpected = [word for word in rest if word.startswith("-") and "." not in word.partition("=")[0]]
    if unexpected:
        raise ConfigError(f"audit: unexpected {' '.join(unexpected)}")
    words = [word for word in known.runs if "=" in word and not Path(word).exists()]
    runs = [word for word in known.runs if word not in words]
    if known.encoder is None:
        refuse_without_encoder(known)
    _refuse_release([*words, *rest], known)
    if bool(runs) == (known.encoder is not None):
        raise ConfigError("audit needs at least one run folder, or --encoder FILE.onnx")
    suite = load_suite(known.suite).suite
    gate = Gate.read(known, suite)  # report a mistake before importing torch
    overrides = parse_cli_overrides([*words, *rest], override_tree(suite))
    judged: list[str | OpenRun] = [open_given(known)] if known.encoder is not None else [*runs]
    results, errors = _audit_all(judged, known, overrides)
    for line in errors.values():
        complain(line)
    return gate.close(results, errors)


def _refuse_release(words: Sequence[str], known: argparse.Namespace) -> None:
    """ConfigError for options of a head: a run has chosen them, and an ONNX file has no head."""
    asked = next((word for word in words if word.lstrip("-").startswith("release.")), None)
    if known.encoder is not None and (asked or known.sees_answers):
        raise ConfigError(
            f"{asked or '--sees-answers'}: an encoder from an ONNX file has no head, so it sends every image and "
            "answers none itself: train a run with release.when=unsure"
        )
    if asked:
        raise ConfigError(f"{asked}: what a run sends is decided when it is trained: attncem train … {asked}")


def _audit_all(
    runs: Sequence[str | OpenRun], known: argparse.Namespace, overrides: Sequence[str]
) -> tuple[list[tuple[str, AuditResult]], dict[str, str]]:
    """Audit the runs one by one; each result is printed even if other runs fail, whose errors are by run."""
    from attncem.judging.auditing import audit

    where = ("on", "weights", "seed", "out", "device", "reference", "threads", "workers")
    adversary = ("threat", "releases", "attacker_data", "attacker_images", "queries", "sees_answers")
    names = ("suite", *adversary, "only", "skip", "fresh", *where)
    options = {name: getattr(known, name) for name in names}
    results: list[tuple[str, AuditResult]] = []
    errors: dict[str, str] = {}
    try:
        for run in runs:
            try:
                results.append((_name(run), audit(run, overrides=overrides, **options)))
            except ConfigError:
                raise
            except AttncemError as error:
                errors[_name(run)] = f"{_name(run)}: {error}"
    finally:
        if not known.json:
            _show_audits([result for _, result in results])
    return results, errors


def _name(run: str | OpenRun) -> str:
    return run if isinstance(run, str) else run.name


def _show_audits(results: Sequence[AuditResult]) -> None:
    from attncem.reporting import print_summary
    from attncem.reporting.runs.terminal import others_said

    if not results:
        return
    console = open_console()
    print_summary(results, console)
    for result in results:
        if line := others_said(result):
            show_line(line, console)
        for found in result.findings:
            show_line(text("command.warning", run=result.subject.run, said=found.text), console)
        show_line(text("command.audit_folder", folder=result.folder), console)
