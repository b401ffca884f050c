"""Long runs on CIFAR-10: accuracy of fast and plain training, and the time of 240 epochs."""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import attncem
from attncem.base.progress import silent
from attncem.base.types import ConfigError
from attncem.config.loading.load import dump_config, load_config
from attncem.config.options.attacks import GreyOptions
from attncem.config.options.run import RunConfig
from attncem.config.options.suites import Suite
from attncem.records.runs import RunDirectory
from benchmarks.common import EPOCH_IMAGES, FEW_IMAGES, Case, Row, Setting, Table, free_memory

SEEDS = (0, 1, 2, 3)
ACCURACY_EPOCHS = 60
LONG_EPOCHS = 240
FAST = Case("kmeans", fast="compile")
PLAIN = replace(FAST, precision="32-true", fast="off")
RECIPE = {
    "training.penalty_weight": 16,
    "training.schedule.name": "multi_step",
    "training.penalty_schedule.name": "cem_lr",
}
"""The baseline's."""


def accuracy(setting: Setting) -> list[Table]:
    """Accuracy after 60 epochs, four seeds each: the plain runs wait for launches, so they share the device."""
    if not setting.on_gpu or setting.cifar10 is None:
        raise ConfigError("the part accuracy needs a GPU and CIFAR-10: give --cifar10 DIR")
    waiting = {seed: _start(setting, _config(setting, PLAIN, ACCURACY_EPOCHS, seed)) for seed in SEEDS}
    try:
        fast = [_train(setting, _config(setting, FAST, ACCURACY_EPOCHS, seed)) for seed in SEEDS]
        plain = [_finish(setting, seed, process) for seed, process in waiting.items()]
    finally:
        for process in waiting.values():
            process.kill()
    rows = [_accuracies("fast", FAST, fast), _accuracies("plain", PLAIN, plain)]
    difference = rows[0]["test_mean"] - rows[1]["test_mean"]
    error = math.sqrt(sum(row["test_std"] ** 2 / row["seeds"] for row in rows))
    rows[0] |= {"test_minus_plain": difference, "difference_over_error": abs(difference) / max(error, 1e-9)}
    note = f"kmeans with the baseline's recipe, batch 128, {ACCURACY_EPOCHS} epochs, the last weights; per cent."
    return [Table("Accuracy of fast and plain training", rows, note)]


def long(setting: Setting) -> list[Table]:
    """Seconds of 240 epochs, from the call to the finished run folder."""
    if not setting.on_gpu:
        raise ConfigError("the part long needs a GPU")
    free_memory()
    config = _config(setting, replace(FAST, fast="auto"), LONG_EPOCHS, 0, checkpoint_every=LONG_EPOCHS)
    began = time.perf_counter()
    run = attncem.train(config, out=setting.folder / "long", progress=silent)
    seconds = time.perf_counter() - began
    manifest = run.manifest
    row = {
        "surrogate": "kmeans",
        "epochs": LONG_EPOCHS,
        "images": manifest["split"]["train"],
        "steps": manifest["steps"],
        "whole_seconds": seconds,
        "epochs_seconds": manifest["training_seconds"],
        "validation_accuracy": 100 * manifest["best"]["validation_accuracy"],
    }
    data = "CIFAR-10" if setting.cifar10 else "made-up images of CIFAR-10's size"
    return [Table("240 epochs", [row], f"{data}, batch 128, bf16-mixed; start, compilation and checkpoints included.")]


def _config(setting: Setting, case: Case, epochs: int, seed: int, **training: Any) -> RunConfig:
    values: dict[str, Any] = {"seed": seed, "name": f"{case.fast}-{seed}", **RECIPE}
    if setting.cifar10 is not None:
        values |= {"data.root": setting.cifar10, "data.validation_fraction": 0.02}
    images = EPOCH_IMAGES if setting.cifar10 is None else FEW_IMAGES
    config = setting.config(case, images, epochs=epochs, **{"checkpoint_every": 20, **training})
    return load_config(config, values).config


def _folder(setting: Setting, config: RunConfig) -> Path:
    return setting.folder / f"accuracy-{config.name}"


def _train(setting: Setting, config: RunConfig) -> Row:
    free_memory()
    return _judge(attncem.train(config, out=_folder(setting, config), progress=silent))


def _start(setting: Setting, config: RunConfig) -> subprocess.Popen[bytes]:
    """The same training in a separate process."""
    file = setting.folder / f"{config.name}.yaml"
    file.write_text(dump_config(config), encoding="utf-8")
    words = [sys.executable, "-m", "attncem", "train", "--config", str(file), "--out", str(_folder(setting, config))]
    with (setting.folder / f"{config.name}.log").open("wb") as log:
        return subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"})


def _finish(setting: Setting, seed: int, process: subprocess.Popen[bytes]) -> Row:
    name = f"{PLAIN.fast}-{seed}"
    if process.wait():
        raise RuntimeError((setting.folder / f"{name}.log").read_text(encoding="utf-8")[-2000:])
    return _judge(RunDirectory.open(setting.folder / f"accuracy-{name}"))


def _judge(run: RunDirectory) -> Row:
    """Accuracy of the last weights on the validation and the test images, and the run's kind of step."""
    validated = [record["accuracy"] for record in run.records() if record["kind"] == "validation"][-1]
    result = attncem.audit(
        run,
        Suite(name="none", version=1, meaning="accuracy only", rows={"grey": GreyOptions()}),
        weights="last",
        progress=silent,
    )
    return {"steps": run.manifest["steps"], "validation": 100 * validated, "test": 100 * result.known_accuracy.mean}


def _accuracies(way: str, case: Case, runs: list[Row]) -> Row:
    row: Row = {"way": way, "precision": case.precision, "steps": runs[0]["steps"], "seeds": len(runs)}
    for part in ("test", "validation"):
        values = [run[part] for run in runs]
        row |= {f"{part}_mean": statistics.mean(values), f"{part}_std": statistics.stdev(values)}
    return {**row, "test_each": ", ".join(f"{run['test']:.2f}" for run in runs)}
