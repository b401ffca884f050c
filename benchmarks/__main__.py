"""python -m benchmarks: measure, write JSON, print tables."""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

import attncem
from attncem.base.types import AttncemError, RunError
from attncem.records.files import read_json, write_json
from attncem.training.engine import describe_device, limited_threads, resolve_device
from benchmarks.audits import audits
from benchmarks.baseline import baseline
from benchmarks.common import Row, Setting, Table
from benchmarks.epochs import classes, epochs, front_ends, processes
from benchmarks.floor import floor
from benchmarks.long_runs import accuracy, long
from benchmarks.memory import memory
from benchmarks.overhead import overhead
from benchmarks.tables import fill_page, render, render_part

PARTS: dict[str, Callable[[Setting], list[Table]]] = {
    "floor": floor,
    "memory": memory,
    "overhead": overhead,
    "front_ends": front_ends,
    "classes": classes,
    "audits": audits,
    "processes": processes,
    "baseline": baseline,
    "epochs": epochs,
    "accuracy": accuracy,
    "long": long,
}
"""Parts in the order of measurement: the longest come last."""
ON_REQUEST = ("accuracy", "long")
"""Parts that take many minutes; measured only when named."""
ABSOLUTE = ("seconds", "_ms")
"""Suffixes of figures that are meaningful only for a named GPU."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or show the results of a file."""
    options = _parser().parse_args(arguments)
    try:
        if options.table is not None:
            return _show(options.table, options.page)
        return _measure(options, sys.argv[1:] if arguments is None else arguments)
    except AttncemError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    usual = ",".join(name for name in PARTS if name not in ON_REQUEST)
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__, allow_abbrev=False)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write results here; parts measured earlier stay")
    parser.add_argument("--parts", default=usual, metavar="A,B", help=f"of {', '.join(PARTS)} (default: {usual})")
    parser.add_argument("--tiny", action="store_true", help="seconds on a CPU: shows that it works, not how fast it is")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no row begins after this time")
    parser.add_argument("--cifar10", metavar="DIR", help="real CIFAR-10, for the parts accuracy and long")
    parser.add_argument("--table", type=Path, metavar="FILE", help="measure nothing: print the tables of a result file")
    parser.add_argument("--page", type=Path, metavar="FILE", help="with --table: put the tables into this page")
    return parser


def _show(file: Path, page: Path | None) -> int:
    results = read_json(file)
    if page is None:
        print(render(results))
    else:
        page.write_text(fill_page(page.read_text(encoding="utf-8"), results), encoding="utf-8")
    return 0


def _measure(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    chosen = options.parts.split(",")
    unknown = [name for name in chosen if name not in PARTS]
    if unknown:
        raise RunError(f"--parts={options.parts}: {', '.join(unknown)} is unknown (allowed: {', '.join(PARTS)})")
    device = resolve_device(options.device)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
    results = _begun(options.out, _head(device, tiny=options.tiny))
    command = _command(arguments)
    with tempfile.TemporaryDirectory() as folder, limited_threads(1):
        deadline = time.monotonic() + 60 * options.minutes
        setting = Setting(device, Path(folder), options.tiny, options.cifar10, deadline)
        for name in (name for name in PARTS if name in chosen):
            part = _measure_part(name, setting, command)
            known = {**results["parts"], name: part}
            results["parts"] = {key: known[key] for key in PARTS if key in known}
            if options.out is not None:
                write_json(options.out, results)
            print(f"## {name}\n\n{render_part(part)}\n", flush=True)
    return int(any("error" in results["parts"][name] for name in chosen))


def _measure_part(name: str, setting: Setting, command: str) -> Row:
    """The tables of one part; an error in it is recorded and does not stop the other parts."""
    began, setting.left_out = time.monotonic(), 0
    try:
        tables = [asdict(table) for started in setting.in_time([PARTS[name]]) for table in started(setting)]
    except Exception:  # a part may fail in any way
        text = traceback.format_exc()
        print(text, file=sys.stderr)
        return {"command": command, "error": text}
    for table in tables:
        table["rows"] = [_allowed(row, setting) for row in table["rows"]]
    took = {"part_seconds": time.monotonic() - began} if setting.on_gpu else {}
    return {"command": command, **took, "left_out": setting.left_out, "tables": tables}


def _allowed(row: Row, setting: Setting) -> Row:
    return row if setting.on_gpu else {key: value for key, value in row.items() if not key.endswith(ABSOLUTE)}


def _head(device: torch.device, *, tiny: bool) -> dict[str, Any]:
    """Facts that all parts of a file share."""
    machine = f"{describe_device(device)}, {os.cpu_count()} CPU cores, {platform.system()} {platform.machine()}"
    versions = {
        "attncem": attncem.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    return {"machine": machine + (", tiny form" if tiny else ""), "versions": versions}


def _begun(out: Path | None, head: dict[str, Any]) -> dict[str, Any]:
    """An earlier file of the same machine and versions, to extend; or a new one."""
    if out is None or not out.exists():
        return {**head, "parts": {}}
    earlier = read_json(out)
    if {key: earlier.get(key) for key in head} != head:
        raise RunError(f"{out} was measured elsewhere ({earlier.get('machine')}): choose another --out or remove it")
    return earlier


def _command(arguments: Sequence[str]) -> str:
    """The command as a user would type it, without folders of this machine."""
    words = list(arguments)
    for option, shown in (("--cifar10", "DIR"), ("--out", "results/benchmark.json")):
        if option in words[:-1]:
            words[words.index(option) + 1] = shown
    return shlex.join(["python", "-m", "benchmarks", *words])


if __name__ == "__main__":
    sys.exit(main())
