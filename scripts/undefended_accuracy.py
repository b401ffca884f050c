"""Accuracy on CIFAR-10 of VGG11-BN cut at 4 without any defence.

    python scripts/undefended_accuracy.py CIFAR10_FOLDER results/undefended_cifar10.json [KEY=VALUE ...]

Options given after the file replace those below, for a shorter try.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import attncem
from attncem.config.attacks import GreyOptions
from attncem.config.suites import Suite
from attncem.files import write_json

SETTING = [
    "data.name=cifar10",
    "data.crop_padding=4",
    "data.horizontal_flip=true",
    "data.held_out_fraction=0",
    "data.validation_fraction=0.02",
    "model.name=vgg11_bn",
    "model.cut=4",
    "channel.name=identity",
    "training.epochs=40",
    "training.precision=bf16-mixed",
    "training.checkpoint_every=40",
    "training.optimizer.lr=0.1",
    "training.optimizer.nesterov=true",
]
SUITE = Suite(name="accuracy", version=1, meaning="accuracy only", rows={"grey": GreyOptions()})


def measure(data: str, more: list[str], folder: Path) -> dict[str, Any]:
    """Train, and count right answers on the test images."""
    run = attncem.train(None, [*SETTING, *more, f"data.root={data}"], out=folder / "run")
    best, last = (attncem.audit(run, SUITE, weights=weights) for weights in ("best", "last"))
    manifest = run.manifest
    return {
        "train": "attncem train " + " ".join([*SETTING, *more]),
        "machine": best.plan.device,
        "train_images": manifest["split"]["train"],
        "test_accuracy": best.known_accuracy.mean,
        "test_accuracy_low": best.known_accuracy.low,
        "test_accuracy_high": best.known_accuracy.high,
        "test_accuracy_last_epoch": last.known_accuracy.mean,
        "best_validation_accuracy": round(manifest["best"]["validation_accuracy"], 4),
        "steps": manifest["steps"],
    }


def main(data: str, out: str, *more: str) -> None:
    """Write one JSON object."""
    with tempfile.TemporaryDirectory() as folder:
        write_json(Path(out), measure(data, list(more), Path(folder)))


if __name__ == "__main__":
    main(*sys.argv[1:])
