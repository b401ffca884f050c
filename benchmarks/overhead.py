"""Forward and backward pass of each surrogate alone, by classes, features, batch and slots."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from attncem.training.capture import WARM_STEPS, Step
from attncem.training.surrogates import SURROGATES
from benchmarks.common import NOISE_STD, Row, Setting, Table, free_memory, milliseconds

Shape = tuple[int, int, int]
SPLITS = ("num_slots", "num_clusters")
"""Options for the number of parts of a class."""


@dataclass(frozen=True)
class Load:
    """The input of a surrogate."""

    shape: Shape = (8, 8, 8)
    classes: int = 10
    batch: int = 256
    options: dict[str, Any] = field(default_factory=dict)


def overhead(setting: Setting) -> list[Table]:
    """One table for each series; ratios to the first row of the same surrogate."""
    return [Table(f"Surrogate alone against {name}", list(chain(*found))) for name, found in _series(setting)]


def _series(setting: Setting) -> Iterator[tuple[str, list[list[Row]]]]:
    names = [name for name in SURROGATES if name != "none"]
    plain = Load((2, 4, 4), 10, 32) if setting.tiny else Load()
    for series, loads in _loads(setting, plain).items():
        yield series, [_rows(setting, name, loads) for name in names]
    yield (
        "parts of a class",
        [_rows(setting, name, _split_loads(setting, plain, option)) for name in names if (option := _split_of(name))],
    )


def _loads(setting: Setting, plain: Load) -> dict[str, dict[int, Load]]:
    """Series → value → load."""
    classes = (10, 16) if setting.tiny else (10, 100, 200, 1000)
    batches = (32, 64) if setting.tiny else (64, 256, 1024, 4096)
    small: list[Shape] = [(2, 4, 4), (4, 4, 4)]
    shapes = small if setting.tiny else [(8, 8, 8), (8, 16, 16), (32, 16, 16), (512, 7, 7)]
    return {
        "classes": {count: replace(plain, classes=count) for count in classes},
        "features": {math.prod(shape): replace(plain, shape=shape) for shape in shapes},
        "batch": {size: replace(plain, batch=size) for size in batches},
    }


def _split_of(name: str) -> str | None:
    fields = SURROGATES[name].options_type.model_fields
    return next((option for option in SPLITS if option in fields), None)


def _split_loads(setting: Setting, plain: Load, option: str) -> dict[int, Load]:
    return {count: replace(plain, options={option: count}) for count in ((2, 4) if setting.tiny else (4, 8, 16, 32))}


def _rows(setting: Setting, name: str, loads: dict[int, Load]) -> list[Row]:
    rows: list[Row] = []
    free_memory()
    for value, load in setting.in_time(loads.items()):
        row = {"surrogate": name, "value": value, **_measure(setting, name, load)}
        if "surrogate_ms" in row:
            first = next((other["surrogate_ms"] for other in rows if "surrogate_ms" in other), row["surrogate_ms"])
            row["over_first"] = row["surrogate_ms"] / first
        rows.append(row)
    return rows


def _measure(setting: Setting, name: str, load: Load) -> Row:
    """Milliseconds; a load that does not fit is reported and does not stop the others."""
    try:
        step, z, y = surrogate_step(setting, name, load)
        time = milliseconds(lambda: step(z, y), setting)
    except (RuntimeError, ValueError) as error:
        return {"problem": str(error).strip().splitlines()[0]}
    return {"steps": step.mode, "surrogate_ms": time, **({"problem": step.problems[0]} if step.problems else {})}


def surrogate_step(setting: Setting, name: str, load: Load) -> tuple[Step, Tensor, Tensor]:
    """Both losses and their backward pass on synthetic features, captured on a GPU; and the features and labels."""
    device = setting.device
    torch.manual_seed(0)
    kind = SURROGATES[name]
    options = kind.options_type(**load.options)
    surrogate = kind(options, feature_shape=load.shape, num_classes=load.classes, noise_std=NOISE_STD).to(device)
    every = torch.arange(max(load.batch, 8 * load.classes), device=device) % load.classes
    if surrogate.needs_refresh:
        surrogate.refresh([(torch.rand(len(every), *load.shape, device=device), every)])
    z, y = torch.rand(load.batch, *load.shape, device=device), every[: load.batch].contiguous()
    own = [parameter for parameter in surrogate.parameters() if parameter.requires_grad]
    gradients = torch.zeros_like(z)

    def both_losses(z: Tensor, y: Tensor) -> None:
        leaf = z.detach().requires_grad_()
        output = surrogate(leaf, y)
        loss = output.loss if output.fit_loss is None else output.loss + output.fit_loss
        found = torch.autograd.grad(loss, [leaf, *own], allow_unused=True)
        gradients.add_(found[0])

    step = Step(
        both_losses,
        state=lambda: [gradients, *surrogate.buffers()],
        watched=[gradients],
        record=device.type == "cuda",
    )
    for _ in range(WARM_STEPS + 1 if device.type == "cuda" else 1):
        step(z, y)
    return step, z, y
