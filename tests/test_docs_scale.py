"""docs/scale.md: its costs are those of the committed results, and its commands exist."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from statistics import median
from typing import Any

from attncem.campaigns.results import read_results
from attncem.cli.main import _parser

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/scale.md").read_text(encoding="utf-8")
PARTS: dict[str, Any] = json.loads((ROOT / "results/benchmark.json").read_text())["parts"]


def rows(part: str, title: str) -> list[dict[str, Any]]:
    return next(table["rows"] for table in PARTS[part]["tables"] if table["title"] == title)


def test_the_table_is_that_of_the_results() -> None:
    files = ("front_ends_cifar10", "front_ends_selection")
    cells = [cell for name in files for cell in read_results(ROOT / f"results/{name}.json").cells]
    short = median(cell.training_seconds or 0.0 for cell in cells)
    assert len(cells) == 27
    (long,) = rows("long", "240 epochs")
    for seconds in (short, long["whole_seconds"]):
        hours = 1000 * seconds / 3600
        assert f"| {seconds:.1f} | {hours:.1f} h | {hours / 8:.1f} h |" in PAGE


def test_the_other_numbers_are_those_of_the_benchmark() -> None:
    epochs = {
        row["surrogate"]: row["epoch_seconds"]
        for row in reversed(rows("epochs", "Epoch"))
        if (row["batch_size"], row["precision"], row["fast"]) == (128, "bf16-mixed", "capture")
    }
    told = ", ".join(f"{epochs[name]:.2f} {name}" for name in ("none", "kmeans", "gated", "slot", "hybrid"))
    assert told in PAGE
    steps = {row["decoder"]: row["captured_ms"] for row in rows("audits", "Step of a decoder")}
    assert all(f"{name} {steps[name]:.2f}" in " ".join(PAGE.split()) for name in ("small", "published", "strong"))
    baseline = rows("baseline", "The baseline's loop and ours")[0]["epoch_seconds"]
    assert f"{baseline:.1f} s per epoch" in PAGE and f"{1000 * 240 * baseline / 3600:.0f} hours" in PAGE
    count = 50 * (47_500 // 256 + 1)
    assert f"{count:,} steps, {count * steps['published'] / 1000:.0f} s" in " ".join(PAGE.split())


def test_its_commands_are_taken() -> None:
    pages = PAGE + (ROOT / "docs/campaigns.md").read_text(encoding="utf-8")
    lines = re.findall(r"(?:^|`)attncem ([^#\n`]+)", pages, flags=re.MULTILINE)
    commands = [line for line in lines if line.split()[0] in ("campaign", "search") and len(line.split()) > 2]
    assert len(commands) > 6
    for line in commands:
        _parser()[0].parse_known_args(shlex.split(line))
