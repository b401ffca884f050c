"""A whole training step against the number of classes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from attncem.training.surrogates import SURROGATES
from benchmarks.common import FEW_IMAGES, Case, Row, Setting, Table
from benchmarks.epochs import measure_step

BATCH = 256
PIXELS = 32
LONG_CHAINS = ("hybrid", "slot", "gated")
"""Surrogates of many small operations, measured compiled as well; the first is made of the others."""


def classes(setting: Setting) -> list[Table]:
    """Steps on folders of made-up images; ratios to the fewest classes."""
    counts = (4, 8) if setting.tiny else (10, 1000)
    data = {count: _folder(setting, count) for count in counts}
    cases = _cases(setting)
    rows = [row for case in setting.in_time(cases) for row in _rows(setting, case, data)]
    note = f"Batch {cases[0].batch_size}; the classifier has as many outputs as there are classes."
    return [Table("Step against classes", rows, note)]


def _cases(setting: Setting) -> list[Case]:
    if not setting.on_gpu:
        return [replace(setting.plain, surrogate=name) for name in SURROGATES]
    first, *others = (Case(name, batch_size=BATCH, fast="compile_surrogate") for name in LONG_CHAINS)
    return [first, *(Case(name, batch_size=BATCH) for name in SURROGATES), *others]


def _rows(setting: Setting, case: Case, data: dict[int, Path]) -> list[Row]:
    rows: list[Row] = []
    for count, folder in data.items():
        options = {"data.name": "image_folder", "data.root": str(folder), "data.held_out_fraction": 0}
        row = measure_step(setting, case, options)
        rows.append({"surrogate": case.surrogate, "classes": count, **row})
    return [{**row, "over_first": row["step_ms"] / rows[0]["step_ms"]} for row in rows]


def _folder(setting: Setting, count: int) -> Path:
    """Images of noise in folders by class: a few thousand to train on, one of each class to test."""
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
