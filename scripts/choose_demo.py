"""Choose the demo's baseline weight and its defended model on validation images, never on test images.

    python scripts/choose_demo.py results/demo_selection.json [--workers 2]

Front end, surrogate, λ and σ are tried together. Rule, the same for both: among the settings whose validation accuracy
lies within ALLOWED_DROP of the undefended model's, the one with the largest error under its strongest attack. The error
is the geometric mean of MSE and structure error: MSE alone would flatter front ends, which take out colour and
brightness.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import attncem
from attncem.config.attacks import DecoderOptions, NearestNeighbourOptions, RidgeOptions
from attncem.config.suites import Suite
from attncem.progress import silent

ALLOWED_DROP = 0.03
SUITE = Suite(
    name="selection",
    version=2,
    meaning="nearest neighbour, ridge and a short small decoder",
    rows={
        "nearest neighbour": NearestNeighbourOptions(),
        "ridge": RidgeOptions(),
        "decoder small": DecoderOptions(epochs=6, max_epochs=12),
    },
)
FRONT_ENDS = {
    "none": "{name: none}",
    "standardise": "{name: standardise}",
    "high_pass_standardise": "{name: high_pass_standardise, s: 2, a: 0.2}",
    "local_contrast": "{name: local_contrast, s: 3}",
    "local_contrast s 1.5": "{name: local_contrast, s: 1.5}",
    "local_contrast s 2 a 0.2": "{name: local_contrast, s: 2, a: 0.2}",
    "block_dct": "{name: block_dct, n: 1}",
}
SURROGATES: dict[str, list[str]] = {
    "none": ["surrogate.name=none"],
    "kmeans": ["surrogate.name=kmeans", "surrogate.small_sample_correction=false"],
    "gated worst_case": ["surrogate.name=gated"],
    "gated fit": ["surrogate.name=gated", "surrogate.learn=fit"],
    "gated hinge worst_case": ["surrogate.name=gated", "surrogate.statistic=hinge"],
    "gated-000": ["surrogate.name=gated", "surrogate.variant=000", "surrogate.attention_loss_scale=1"],
    "gated-002": ["surrogate.name=gated", "surrogate.variant=002", "surrogate.attention_loss_scale=1"],
    "gated-004": ["surrogate.name=gated", "surrogate.variant=004"],
    "slot": ["surrogate.name=slot"],
}
Setting = tuple[str, str, float, float]
"""Front end, surrogate, λ, σ."""
LOCAL = ("none", "local_contrast", "local_contrast s 1.5", "local_contrast s 2 a 0.2")
UNDEFENDED: Setting = ("none", "none", 0, 0.1)
SETTINGS: list[Setting] = [
    UNDEFENDED,
    *(("none", "kmeans", weight, 0.1) for weight in (0.5, 1, 2)),
    ("local_contrast", "none", 0, 0.1),
    ("local_contrast", "kmeans", 1, 0.1),
    *((front_end, "gated worst_case", weight, 0.1) for front_end in LOCAL for weight in (0.4, 0.8, 1.6)),
    *((front_end, "gated worst_case", 0.8, 0.1) for front_end in ("standardise", "high_pass_standardise", "block_dct")),
    *((front_end, "gated fit", 0.8, 0.1) for front_end in ("none", "local_contrast")),
    ("local_contrast", "slot", 0.8, 0.1),
    ("local_contrast", "gated worst_case", 0.4, 0.2),
    ("local_contrast", "gated worst_case", 0.8, 0.05),
    ("none", "gated hinge worst_case", 0.2, 0.1),
    ("none", "gated-000", 0.8, 0.1),
    ("none", "gated-002", 1.6, 0.1),
    ("none", "gated-004", 0.4, 0.1),
]


def overrides(setting: Setting) -> list[str]:
    """What makes a setting of the configuration demo-none."""
    front_end, surrogate, weight, noise = setting
    given = [f"model.front_end={FRONT_ENDS[front_end]}", *SURROGATES[surrogate]]
    given += [f"training.penalty_weight={weight:g}", f"channel.noise_std={noise:g}"]
    return [*given, "training.warmup_epochs=1"] if "-0" in surrogate else given


def measure(setting: Setting, folder: Path) -> dict[str, Any]:
    """Train one setting and attack it on the validation images."""
    front_end, surrogate, weight, noise = setting
    name = f"{front_end} {surrogate} {weight:g} {noise:g}".replace(" ", "-")
    run = attncem.train("demo-none", overrides(setting), out=folder / name, progress=silent)
    result = attncem.audit(run, SUITE, on="validation", progress=silent)
    row: dict[str, Any] = {"front_end": front_end, "surrogate": surrogate, "weight": weight, "noise_std": noise}
    strongest = result.strongest_attack
    scores = {name: strongest.scores[name].mean for name in ("mse", "structure", "ssim")}
    row |= {"accuracy": result.known_accuracy.mean, "strongest": strongest.name, **scores}
    numbers = "  ".join(f"{name} {value:.4f}" for name, value in scores.items())
    print(f"{name:58} accuracy {row['accuracy']:.3f}  {numbers}  {strongest.name}", flush=True)
    return row


def error(row: dict[str, Any]) -> float:
    """What is chosen by."""
    return math.sqrt(row["mse"] * row["structure"])


def choose(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The rule above, for kmeans without a front end and for attention with or without one."""
    floor = rows[0]["accuracy"] - ALLOWED_DROP
    kmeans = [row for row in rows if (row["surrogate"], row["front_end"]) == ("kmeans", "none")]
    attention = [row for row in rows if row["surrogate"].startswith(("gated", "slot"))]
    kinds = {"kmeans": kmeans, "attention": attention}
    return {kind: max((row for row in some if row["accuracy"] >= floor), key=error) for kind, some in kinds.items()}


def main() -> None:
    """Measure every setting, choose, write down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as name, ProcessPoolExecutor(options.workers, context) as pool:
        rows = list(pool.map(partial(measure, folder=Path(name)), SETTINGS))
    data = {"schema_version": 2, "allowed_drop": ALLOWED_DROP, "rows": rows, "chosen": choose(rows)}
    options.out.write_text(json.dumps(data, indent=1) + "\n")
    print(json.dumps(data["chosen"], indent=1))


if __name__ == "__main__":
    main()
