"""Choose the demo's baseline weight and attention surrogate on validation images, never on test images.

    python scripts/choose_demo_surrogate.py results/demo_selection.json

Rule, the same for both: among the settings whose validation accuracy lies within ALLOWED_DROP of the undefended
model's, the one whose strongest attack has the highest MSE on the validation images.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import attncem
from attncem.config.attacks import DecoderOptions, NearestNeighbourOptions, RidgeOptions
from attncem.config.suites import Suite

ALLOWED_DROP = 0.03
SUITE = Suite(
    name="selection",
    version=1,
    meaning="nearest neighbour, ridge and a short small decoder",
    rows={
        "nearest neighbour": NearestNeighbourOptions(),
        "ridge": RidgeOptions(),
        "decoder small": DecoderOptions(epochs=6, max_epochs=12),
    },
)
GATED: dict[str, list[str]] = {
    "gated worst_case": [],
    "gated fit": ["surrogate.learn=fit"],
    "gated hinge worst_case": ["surrogate.statistic=hinge"],
    "gated-000": ["surrogate.variant=000", "surrogate.attention_loss_scale=1", "training.warmup_epochs=1"],
    "gated-002": ["surrogate.variant=002", "surrogate.attention_loss_scale=1", "training.warmup_epochs=1"],
    "gated-004": ["surrogate.variant=004", "training.warmup_epochs=1"],
}
WEIGHTS: dict[str, tuple[float, ...]] = {
    "kmeans": (0.5, 1, 2),
    "gated worst_case": (0.4, 0.8, 1.6),
    "gated fit": (0.4, 0.8, 1.6),
    "gated hinge worst_case": (0.1, 0.2, 0.4),
    "gated-000": (0.2, 0.8),
    "gated-002": (0.4, 1.6),
    "gated-004": (0.1, 0.4),
}


def measure(label: str, weight: float, config: str, overrides: list[str], folder: Path) -> dict[str, Any]:
    """Train one setting and attack it on the validation images."""
    overrides = [*overrides, f"training.penalty_weight={weight}"]
    run = attncem.train(config, overrides, out=folder / f"{label.replace(' ', '-')}-{weight}")
    result = attncem.audit(run, SUITE, on="validation")
    row = {"surrogate": label, "weight": weight, "config": config, "overrides": overrides}
    strongest = result.strongest_attack
    row |= {"accuracy": result.known_accuracy.mean, "mse": strongest.mse.mean, "ssim": strongest.scores["ssim"].mean}
    print(f"{label:24} {weight:5g}  accuracy {row['accuracy']:.3f}  MSE {row['mse']:.4f}  {strongest.name}", flush=True)
    return row


def choose(rows: list[dict[str, Any]], floor: float) -> dict[str, Any]:
    """The rule above."""
    return max((row for row in rows if row["accuracy"] >= floor), key=lambda row: row["mse"])


def main(out: Path) -> None:
    """Measure every setting, choose, write down."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain = measure("none", 0, "demo-none", [], folder)
        rows = [measure("kmeans", weight, "demo-kmeans", [], folder) for weight in WEIGHTS["kmeans"]]
        for label, overrides in GATED.items():
            rows += [measure(label, weight, "demo", overrides, folder) for weight in WEIGHTS[label]]
    floor = plain["accuracy"] - ALLOWED_DROP
    chosen = {
        "kmeans": choose([row for row in rows if row["surrogate"] == "kmeans"], floor),
        "attention": choose([row for row in rows if row["surrogate"] != "kmeans"], floor),
    }
    data = {"schema_version": 1, "allowed_drop": ALLOWED_DROP, "undefended": plain, "rows": rows, "chosen": chosen}
    out.write_text(json.dumps(data, indent=1) + "\n")
    print(json.dumps(chosen, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
