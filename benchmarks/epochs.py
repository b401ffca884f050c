"""Epoch and step time by surrogate, batch size, precision, way of taking steps, front end, classes and processes."""

from __future__ import annotations

import itertools
import os
import shutil
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from PIL import Image

import attncem
from attncem.base.progress import silent
from attncem.config.loading.load import load_config
from attncem.models.front_ends import FRONT_ENDS
from attncem.training.surrogates import SURROGATES
from benchmarks.common import (
    EPOCH_IMAGES,
    FEW_IMAGES,
    Case,
    Row,
    Setting,
    Table,
    add_ratios,
    free_memory,
    milliseconds,
    ready,
)

CLASSES_BATCH = 256
PIXELS = 32
LONG_CHAINS = ("hybrid", "slot", "gated")
"""Surrogates of many small operations, also measured compiled; the first consists of the others."""
_numbers = itertools.count()


def epochs(setting: Setting) -> list[Table]:
    """Whole epochs through `attncem.train`, and single steps."""
    rows: dict[str, list[Row]] = {"epoch": [], "step": []}
    for kind, case in setting.in_time(_plan(setting)):
        rows[kind].append({**asdict(case), **setting.once(kind, case, MEASURES[kind])})
    return [
        Table(
            "Epoch",
            add_ratios(rows["epoch"], "epoch_seconds"),
            "Median of the epochs after the first; validation and refit included. The first also compiles and records.",
        ),
        Table("Step", add_ratios(rows["step"], "step_ms"), "Augmentation, forward, backward and update of one batch."),
    ]


def measure_epochs(setting: Setting, case: Case) -> Row:
    """Seconds of an epoch from the log of the run."""
    free_memory()
    count = 2 if case.fast == "off" else 4
    config = setting.config(case, EPOCH_IMAGES if setting.on_gpu else 1_000, epochs=count, checkpoint_every=count)
    run = attncem.train(config, out=setting.folder / f"run-{next(_numbers)}", progress=silent)
    seconds = [record["seconds"] for record in run.records("timing.jsonl")]
    manifest = run.manifest
    shutil.rmtree(run.path)
    return {
        "steps": manifest["steps"],
        "epoch_seconds": statistics.median(seconds[1:]),
        "first_epoch_seconds": seconds[0],
        **_problems(manifest["step_problems"]),
    }


def measure_step(setting: Setting, case: Case, options: Mapping[str, Any] = MappingProxyType({})) -> Row:
    """Milliseconds of a step."""
    with ready(setting, case, options) as now:
        step = now.trainer.objective.step
        return {"steps": step.mode, "step_ms": milliseconds(now.step, setting), **_problems(step.problems)}


def _problems(found: list[str]) -> Row:
    return {"problem": "; ".join(found)} if found else {}


MEASURES: dict[str, Callable[[Setting, Case], Row]] = {"epoch": measure_epochs, "step": measure_step}


def _plan(setting: Setting) -> list[tuple[str, Case]]:
    """The cases to measure, the most important first."""
    if not setting.on_gpu:
        some = ("none", "kmeans") if setting.tiny else tuple(SURROGATES)
        return [
            *(("epoch", replace(setting.plain, surrogate=name)) for name in some),
            *(("step", replace(setting.plain, surrogate=name)) for name in SURROGATES),
        ]
    two = ("none", "kmeans")
    return [
        *(("step", Case(name)) for name in SURROGATES),
        *(("step", Case(name, fast="compile_surrogate")) for name in SURROGATES),
        *(("epoch", Case(name, fast=way)) for way in ("capture", "compile_surrogate", "compile") for name in two),
        *(("epoch", Case(name, batch_size=256)) for name in two),
        *(("step", Case(name, batch_size=256)) for name in two),
        *(("epoch", Case(name)) for name in SURROGATES if name not in two),
        *(("step", Case(name, precision="32-true")) for name in two),
        *(("step", Case(name, precision=way, fast="off")) for way in ("bf16-mixed", "32-true") for name in two),
        ("epoch", Case("kmeans", batch_size=256, fast="compile")),
        *(("epoch", Case("kmeans", precision="32-true", fast=fast)) for fast in ("capture", "off")),
        ("epoch", Case("kmeans", fast="off")),
        *(("step", Case(name, fast="compile")) for name in (*two, "gated", "slot", "hybrid")),
    ]


# front ends, classes and processes


def front_ends(setting: Setting) -> list[Table]:
    """Captured steps without surrogate; `none` comes first and again at the end."""
    case = Case() if setting.on_gpu else setting.plain
    rows = [
        {"front_end": name, **measure_step(setting, case, {"model.front_end.name": name})}
        for name in setting.in_time([*FRONT_ENDS, "none"])
    ]
    first = rows[0]["step_ms"] if rows else 1.0
    return [
        Table(
            "Step with a front end",
            [{**row, "over_none": row["step_ms"] / first} for row in rows],
            f"Batch {case.batch_size}, no surrogate; the last row is the first again.",
        )
    ]


def classes(setting: Setting) -> list[Table]:
    """Steps on folders of synthetic images; ratios to the fewest classes."""
    counts = (4, 8) if setting.tiny else (10, 1000)
    data = {count: _class_folder(setting, count) for count in counts}
    cases = _class_cases(setting)
    rows = [row for case in setting.in_time(cases) for row in _class_rows(setting, case, data)]
    note = f"Batch {cases[0].batch_size}; the classifier has as many outputs as there are classes."
    return [Table("Step against classes", rows, note)]


def _class_cases(setting: Setting) -> list[Case]:
    if not setting.on_gpu:
        return [replace(setting.plain, surrogate=name) for name in SURROGATES]
    first, *others = (Case(name, batch_size=CLASSES_BATCH, fast="compile_surrogate") for name in LONG_CHAINS)
    return [first, *(Case(name, batch_size=CLASSES_BATCH) for name in SURROGATES), *others]


def _class_rows(setting: Setting, case: Case, data: dict[int, Path]) -> list[Row]:
    rows: list[Row] = []
    for count, folder in data.items():
        options = {"data.name": "image_folder", "data.root": str(folder), "data.held_out_fraction": 0}
        row = measure_step(setting, case, options)
        rows.append({"surrogate": case.surrogate, "classes": count, **row})
    return [{**row, "over_first": row["step_ms"] / rows[0]["step_ms"]} for row in rows]


def _class_folder(setting: Setting, count: int) -> Path:
    """Images of noise in folders by class: a few thousand for training, one of each class for testing."""
    folder = setting.folder / f"classes-{count}"
    random = np.random.default_rng(0)
    images = {"train": max(2, (200 if setting.tiny else FEW_IMAGES) // count), "test": 1}
    for part, each in images.items():
        for label in range(count):
            place = folder / part / f"{label:04}"
            place.mkdir(parents=True)
            for number in range(each):
                Image.fromarray(random.integers(0, 256, (PIXELS, PIXELS, 3), np.uint8)).save(place / f"{number}.png")
    return folder


def processes(setting: Setting) -> list[Table]:
    """The same training with one and with two processes, one thread each."""
    seconds = {count: _epoch_seconds(setting, count) for count in setting.in_time((1, 2))}
    rows = [{"processes": count, "over_one": value / seconds[1]} for count, value in seconds.items()]
    note = f"kmeans, the same global batch, one thread a process, {os.cpu_count()} cores."
    return [Table("Processes on the CPU", rows, note)]


def _epoch_seconds(setting: Setting, count: int) -> float:
    case = Case("kmeans", 32 if setting.tiny else 128, "32-true", "off")
    values = {"device": "cpu", "processes": count, "threads": 1, "model.width": 4 if setting.tiny else 16}
    config = load_config(setting.config(case, 2_000, epochs=3), values).config
    run = attncem.train(config, out=setting.folder / f"processes-{count}", progress=silent)
    seconds: list[float] = [record["seconds"] for record in run.records("timing.jsonl")]
    return statistics.median(seconds[1:])
