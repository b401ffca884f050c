"""Made-up results of campaigns: planted means, a spread over seeds, and the scripts that write pages from them."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from attncem.campaigns.expansion import expand
from attncem.campaigns.results import results_text
from attncem.config.options.campaigns import load_campaign
from attncem.records.campaign_folder import PlannedCell
from attncem.records.campaign_table import AskedAudit, CampaignTable, CellAudit, CellResult
from attncem.records.metrics import METRICS

ROOT = Path(__file__).parent.parent
Plant = Callable[[str, float], dict[str, float]]
"""From an arm and its λ to the means that its seeds spread around: accuracy, and how many times the base's errors."""
BASE = {"mse": 0.0150, "psnr": 18.7, "ssim": 0.549, "ssim_zero_pad": 0.67, "structure": 0.0134, "edges": 0.787}
BASE |= {"band_mean": 0.0016, "band_low": 0.0063, "band_high": 0.0071}
SPREAD = {"accuracy": 0.002, "times": 0.01}


@contextmanager
def page_scripts() -> Iterator[Any]:
    """The script that writes the pages, and its parts, importable as when it is run."""
    names = (
        *("baseline", "beyond", "claim", "cost", "demo", "documents", "doubts", "front", "headlines", "lean", "others"),
        *("lean_claim", "pairs", "selective", "server", "source", "unsure"),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "scripts"))
        parts = {name: importlib.import_module(f"evidence.{name}") for name in names}
        yield SimpleNamespace(write_results=importlib.import_module("write_results"), **parts)


@cache
def cells_of(campaign: str) -> list[PlannedCell]:
    return expand(load_campaign(campaign))


def made(campaign: str, plant: Plant, *, noise: float = 1.0, drop: int = 0) -> CampaignTable:
    """Results that a campaign could have: every cell of it, with planted means and a spread over seeds."""
    asked, rng, cells = load_campaign(campaign), np.random.default_rng(0), []
    planned = cells_of(campaign)
    for one in planned[: len(planned) - drop]:
        means = plant(one.cell.arm, one.config.training.penalty_weight)
        accuracy = means["accuracy"] + noise * rng.normal(0, SPREAD["accuracy"])
        times = means.get("times", 1.0) * (1 + noise * rng.normal(0, SPREAD["times"]))
        audits = [made_audit(accuracy, times) for _ in asked.audits]
        cells.append(CellResult(one.cell.arm, dict(one.cell.point), one.cell.seed, audits, [], 21_000_000, 20.0))
    told = [AskedAudit({"decoder global": {}}, "standard v4", audit.threat, audit.on, "best") for audit in asked.audits]
    missing = {one.cell.id: "planned" for one in planned[len(planned) - drop :]} if drop else {}
    return CampaignTable(campaign, asked.meaning, "", told, cells, unfinished=missing)


def made_audit(accuracy: float, times: float) -> CellAudit:
    """Errors so many times the baseline's, similarities so much lower."""
    values = {
        name: base * (times if METRICS[name].private == "higher" else 1 - 0.2 * (times - 1))
        for name, base in BASE.items()
    }
    scores: dict[str, Any] = {name: [value, 0.99 * value, 1.01 * value] for name, value in values.items()}
    doubled = {name: [2 * mean, low, high] for name, (mean, low, high) in scores.items()}
    guess = {name: [4 * BASE[name], BASE[name], 5 * BASE[name]] for name in BASE}
    rows = {"decoder global": scores, "ridge x4": doubled, "class mean": guess}
    attacks = {row: {**of, "reliable": True} for row, of in rows.items()}
    return CellAudit([accuracy, accuracy, accuracy], "decoder global", attacks, None, 60.0, accuracy - 0.02)


def folder(path: Path, *tables: CampaignTable) -> Path:
    path.mkdir(exist_ok=True)
    for table in tables:
        (path / f"{table.campaign.replace('-', '_')}.json").write_text(results_text(table), encoding="utf-8")
    return path


def part(page: str, heading: str) -> str:
    """The text under a heading, down to the next of any level."""
    return re.split(r"^##+ ", page.partition(f"{heading}\n")[2], flags=re.MULTILINE)[0]


def planted(mse: float, accuracy: float = 0.877) -> Plant:
    """Arm c, and kmeans behind a front end by half as much, at this accuracy; arm a is at 87.7 %."""

    def plant(arm: str, weight: float) -> dict[str, float]:
        gain = {"a": 0.0, "b": (mse - 1) / 2, "c": mse - 1, "d": 1.5 * (mse - 1)}[arm[0]]
        return {"accuracy": 0.877 if arm[0] == "a" else accuracy, "times": 1 + gain}

    return plant


def by_weight(arm: str, weight: float) -> dict[str, float]:
    """Weights that cost accuracy and bring error along one line; slots behind the narrow blur leave the largest."""
    if arm == "kmeans":
        return {"accuracy": 0.877 if weight == 2 else 0.867, "times": weight / 2}
    strength = weight / (1.6 if "kmeans" in arm else 0.07)
    best = {"s1.5-slot": 1.9, "s3-slot": 1.7}.get(arm, 1.5)
    return {"accuracy": 0.877 - 0.02 * (strength - 1), "times": best + 0.5 * (strength - 1)}


def flat(arm: str, weight: float) -> dict[str, float]:
    """A selection in which nothing depends on the weight."""
    return {"accuracy": 0.877, "times": 1.0}
