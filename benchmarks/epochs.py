"""Epoch and step time by surrogate, batch size, precision and way of taking steps."""

from __future__ import annotations

import itertools
import shutil
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any

import attncem
from attncem.base.progress import silent
from attncem.training.surrogates import SURROGATES
from benchmarks.common import EPOCH_IMAGES, Case, Row, Setting, Table, add_ratios, free_memory, milliseconds, ready

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
    """Seconds of an epoch as the run itself writes them down."""
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
    """What is measured, what matters most first."""
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
