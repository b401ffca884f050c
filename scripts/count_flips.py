"""Codes of two clients that this script trains (a minute each): their bounds, and flips by batch, threads and runtime.

python scripts/count_flips.py results/code_flips.json
"""

from __future__ import annotations

import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from attncem.base.progress import silent
from attncem.config.options.channels import QuantiseOptions
from attncem.judging.auditing import audit
from attncem.judging.flips import RUNTIMES, count_flips
from attncem.judging.opening import OpenRun, open_run
from attncem.models.channels import QuantiseChannel
from attncem.training.train import train

QUERIES = 256
"""Queries of one image."""
CHANNEL = {"channel": [{"name": "quantise", "bits": 1}], "device": "cpu"}
CLIENTS: dict[str, dict[str, Any]] = {
    "16 bits": {**CHANNEL, "model.bottleneck.channels": 1},
    "128 bits": CHANNEL,
}
"""Overrides of demo-none: no noise, no penalty."""
FLIPPED = "128 bits"
BITS = (1, 4, 8, 16)
"""The client was trained with the first; with the others its z is rounded more finely, to show how the count grows."""
ROWS = ("quantisation", "entropy of the code", "leakage evidence", "re-identification")


def measure() -> dict[str, Any]:
    """Train the clients, and measure their bounds and flips."""
    clients, flips = {}, []
    with tempfile.TemporaryDirectory() as folder:
        for name, overrides in CLIENTS.items():
            run = train("demo-none", overrides, out=Path(folder) / name.replace(" ", "-"), progress=silent)
            clients[name] = {"overrides": overrides, **bounds_of(run.path)}
            flips += flips_of(open_run(run)) if name == FLIPPED else []
    return {
        "command": "python scripts/count_flips.py results/code_flips.json",
        "configuration": "demo-none",
        "torch": torch.__version__,
        "onnxruntime": version("onnxruntime"),
        "clients": clients,
        "flips_of": FLIPPED,
        "flips": flips,
    }


def bounds_of(run: Path) -> dict[str, Any]:
    """What the codes of a run can tell, and what is proven to leak, in nats."""
    result = audit(run, "certificates", only=ROWS, progress=silent)
    bounds = {f"{row.name}: {name}": bound.claim for row in result.rows for name, bound in row.bounds.items()}
    assert result.accuracy is not None
    return {
        "bytes_per_query": result.subject.bytes_per_query,
        "accuracy": result.accuracy.mean,
        "claims": bounds,
        "re-identified of 1000": result.row("re-identification").scores["rank_1"].mean,
    }


def flips_of(opened: OpenRun) -> list[dict[str, Any]]:
    """The flips of one image that is asked for often, and of all test images."""
    images, rows = opened.data.test.get(slice(None))[0], []
    for bits in BITS:
        opened.model.channel = QuantiseChannel(QuantiseOptions(bits=bits)).eval()
        for name, x in (("one image", images[:1].repeat(QUERIES, 1, 1, 1)), ("test images", images)):
            rows += [{"bits": bits, "of": name, **row.to_dict()} for row in count_flips(opened.model, x)]
    return rows


def flips_table(result: dict[str, Any]) -> str:
    """The table of docs/channels.md: the most flips of any condition, by bits, images and runtime."""
    lines = ["| bits per value | queries | values compared | flips, torch | flips, onnxruntime | largest change of z |"]
    lines += ["|--:|---|--:|--:|--:|--:|"]
    for bits, of in [(bits, of) for of in ("one image", "test images") for bits in result_bits(result)]:
        rows = [row for row in result["flips"] if (row["bits"], row["of"]) == (bits, of)]
        most = {name: max(row["flips"] for row in rows if row["runtime"] == name) for name in RUNTIMES}
        moved, first = max(row["largest_change"] for row in rows), rows[0]
        lines.append(
            f"| {bits} | {of}, {first['queries']:,} | {first['values']:,} | {most['torch']:,} | "
            f"{most['onnxruntime']:,} | {moved:.1e} |"
        )
    return "\n".join(lines)


def result_bits(result: dict[str, Any]) -> list[int]:
    """The bits that were counted."""
    return sorted({row["bits"] for row in result["flips"]})


def codes_table(result: dict[str, Any]) -> str:
    """The table of docs/certificates.md: what the codes of each client tell, in nats."""
    lines = ["| code | bytes | accuracy | bits hold ≤ | entropy ≤ | entropy ≥ (counts, estimate) | leaks ≥ (InfoNCE) |"]
    lines += ["|---|--:|--:|--:|--:|--:|--:|"]
    keys = ("quantisation: leakage", "entropy of the code: entropy", "entropy of the code: entropy_plugin")
    for name, client in result["clients"].items():
        claims = " | ".join(f"{client['claims'][key]:.1f}" for key in (*keys, "leakage evidence: infonce"))
        lines.append(f"| {name} | {client['bytes_per_query']} | {100 * client['accuracy']:.1f} % | {claims} |")
    return "\n".join(lines)


def table(result: dict[str, Any]) -> str:
    """The counts as lines: bits, images, runtime, threads, and the flips at each size of the batch."""
    lines = [f"{'bits':>4}  {'of':<11}  {'runtime':<11}  {'batch':>5}  {'threads':>7}  {'flips':>7}  change of z"]
    lines += [
        f"{row['bits']:>4}  {row['of']:<11}  {row['runtime']:<11}  {row['batch']:>5}  {row['threads']:>7}  "
        f"{row['flips']:>7,}  {row['largest_change']:.1e}"
        for row in result["flips"]
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    measured = measure()
    Path(sys.argv[1]).write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    print(table(measured))
