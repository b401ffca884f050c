"""Every surrogate once on CIFAR-10, VGG11 cut 4: accuracy, attacks, health and time. One seed: a check, not a result.

    python scripts/surrogate_table.py CIFAR10_FOLDER results/surrogates_cifar10.csv

Needs a GPU: about a minute a surrogate on an H200.
"""

from __future__ import annotations

import csv
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import attncem
from attncem.config.attacks import ClassMeanOptions, DecoderOptions, MeanImageOptions, RidgeOptions
from attncem.config.suites import Suite

EPOCHS = 12
SETTING = [
    "data.name=cifar10",
    "data.crop_padding=4",
    "data.horizontal_flip=true",
    "data.rotation_degrees=15",
    "data.held_out_fraction=0",
    "model.name=vgg11_bn",
    "model.cut=4",
    "channel.noise_std=0.05",
    "device=cuda",
    "training.precision=bf16-mixed",
    f"training.epochs={EPOCHS}",
    f"training.checkpoint_every={EPOCHS}",
    "training.log_every=50",
]
WEIGHTS: dict[str, tuple[float, ...]] = {
    "none": (0,),
    "capacity": (0.05, 1),
    "logdet": (1,),
    "kmeans": (1,),
    "gmm": (1,),
    "gated": (0.05, 1),
    "slot": (0.05, 1),
    "hybrid": (0.05,),
}
"""Penalty weights tried; at 1 the capacity of 512 dimensions outweighs the cross entropy."""
SUITE = Suite(
    name="table",
    version=1,
    meaning="floors, ridge and the baseline's decoder on a short budget",
    rows={
        "mean image": MeanImageOptions(),
        "class mean": ClassMeanOptions(),
        "ridge": RidgeOptions(),
        "decoder": DecoderOptions(size="published", epochs=3, max_epochs=6, batch_size=256, lr=1e-3),
    },
)
HEALTH = ("rob_loss", "intra_mse", "effective_samples", "active", "slot_entropy", "latched", "gradient_ratio")


def measure(name: str, weight: float, data: str, folder: Path) -> dict[str, Any]:
    """Train and attack one model."""
    overrides = [f"data.root={data}", f"surrogate.name={name}", f"training.penalty_weight={weight}"]
    run = attncem.train(None, [*SETTING, *overrides], out=folder / f"{name}-{weight}")
    result = attncem.audit(run, SUITE)
    times = [record["seconds"] for record in run.records("timing.jsonl")][1:]
    row: dict[str, Any] = {"surrogate": name, "penalty weight": result.subject.penalty_weight}
    row |= {"accuracy": result.known_accuracy.mean, "steps": run.manifest["steps"]}
    for attack in result.attacks:
        row[f"{attack.name} mse"] = attack.mse.mean
    row["decoder ssim"] = result.attacks[-1].scores["ssim"].mean
    row["gain of doubling"] = result.attacks[-1].verdict.gain_of_doubling
    lines = [record for record in run.records() if record["kind"] == "train"]
    for figure in HEALTH:
        row[figure] = next((line[figure] for line in reversed(lines) if figure in line), None)
    warnings = sorted({str(record.get("cause")) for record in run.records() if record["kind"] == "warning"})
    row |= {"epoch seconds": statistics.median(times), "warnings": " ".join(warnings), "device": result.plan.device}
    return row


def main(data: str, out: str) -> None:
    """Write one line a surrogate, as soon as it is known."""
    with tempfile.TemporaryDirectory() as folder, Path(out).open("w", newline="") as file:
        writer: csv.DictWriter[str] | None = None
        for name, weight in [(name, weight) for name, weights in WEIGHTS.items() for weight in weights]:
            row = measure(name, weight, data, Path(folder))
            if writer is None:
                writer = csv.DictWriter(file, list(row), lineterminator="\n")
                writer.writeheader()
            writer.writerow({key: f"{value:.5g}" if isinstance(value, float) else value for key, value in row.items()})
            file.flush()
            print(
                " ".join(f"{key}={value:.4g}" if isinstance(value, float) else str(value) for key, value in row.items())
            )


if __name__ == "__main__":
    main(*sys.argv[1:3])
