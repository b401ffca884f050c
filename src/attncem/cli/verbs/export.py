"""attncem export: a run as a bundle for devices and servers."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from attncem.base.progress import open_console, show_line
from attncem.base.texts import joined, text
from attncem.cli.verbs.base import Verbs, add_json, print_json, verb

if TYPE_CHECKING:
    from attncem.deploy.exporting import Exported


def add(verbs: Verbs) -> None:
    """The verb `export`."""
    parser = verb(verbs, "export", "Write a run as a bundle for devices and servers: ONNX files, channel, card.")
    parser.epilog = "attncem-edge and attncem serve take a bundle. Details: docs/deploy.md"
    parser.add_argument("run_folder", metavar="RUN", help="run folder")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="new folder; overwrites none")
    triton = "also write the server half into this model repository of Triton and KServe"
    parser.add_argument("--triton", metavar="FOLDER", help=triton)
    parser.add_argument("--weights", default="best", help="checkpoint: best, last or its name (default: best)")
    add_json(parser)
    parser.set_defaults(run=_export)


def _export(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.deploy.exporting import export

    exported = export(known.run_folder, known.out, weights=known.weights)
    if known.triton is not None:
        from attncem.deploy.triton import write_triton

        write_triton(known.out, known.triton)
    if known.json:
        print_json({"folder": known.out, "identity": exported.manifest.identity, "manifest": exported.manifest.facts})
        return
    console = open_console()
    for line in _said(known.run_folder, known.out, exported):
        show_line(line, console)
    if known.triton is not None:
        show_line(text("export.triton", folder=shlex.quote(known.triton)), console)


def _said(run: str, out: str, exported: Exported) -> list[str]:
    """What was written, how it was checked, and whether it was audited."""
    from attncem.deploy.describing import compared_words

    manifest = exported.manifest
    names = ", ".join(f"{it.plan.suite} v{it.plan.suite_version}" for it in exported.audits)
    return [
        text("export.written", folder=out, name=manifest.name, identity=manifest.identity),
        joined(compared_words(exported.comparison)),
        text("export.audited", names=names) if names else text("export.not_audited", run=shlex.quote(run)),
        text("export.next", folder=shlex.quote(out)),
    ]
