"""Shared by all parts: the setting, synthetic data, configurations, and timing."""

from __future__ import annotations

import gc
import pickle
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attncem.config.loading.load import load_config
from attncem.config.options.run import RunConfig
from attncem.training.capture import WARM_STEPS
from attncem.training.engine import fastest_convolutions, limited_threads
from attncem.training.trainer import Trainer

Row = dict[str, Any]
NOISE_STD = 0.025
EPOCH_IMAGES = 55_560
"""Synthetic training images: 50,000 for training, an epoch of CIFAR-10; the rest for validation."""
FEW_IMAGES = 2_000
"""Number of images that suffices for single steps."""
Item = TypeVar("Item")


@dataclass(frozen=True)
class Case:
    """One way to train."""

    surrogate: str = "none"
    batch_size: int = 128
    precision: str = "bf16-mixed"
    fast: str = "capture"


@dataclass(frozen=True)
class Table:
    """A table of results: every row has its figures by name; the note describes the measurement."""

    title: str
    rows: Sequence[Row]
    note: str = ""


@dataclass
class Setting:
    """Device and size of the measurement. `measured` keeps results that several parts use."""

    device: torch.device
    folder: Path
    tiny: bool = False
    cifar10: str | None = None
    deadline: float = float("inf")
    left_out: int = 0
    measured: dict[tuple[str, Case], Row] = field(default_factory=dict)

    @property
    def on_gpu(self) -> bool:
        """Whether absolute times are meaningful."""
        return self.device.type == "cuda"

    @property
    def plain(self) -> Case:
        """The undefended model in a way that every device can train."""
        return Case(batch_size=128 if self.on_gpu else 32, precision="32-true", fast="off")

    def in_time(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items one by one until the time is over; the rest is counted as left out."""
        for item in items:
            if time.monotonic() > self.deadline:
                self.left_out += 1
            else:
                yield item

    def once(self, kind: str, case: Case, measure: Callable[[Setting, Case], Row]) -> Row:
        """The result of `measure` for the case, measured once per run."""
        if (kind, case) not in self.measured:
            self.measured[kind, case] = measure(self, case)
        return self.measured[kind, case]

    def data(self, images: int) -> dict[str, Any]:
        """Options of the data: synthetic CIFAR-10 with that many training images; tiny: a part of the embedded set."""
        if self.tiny:
            return {"data.name": "fashion_mnist_mini", "data.held_out_fraction": 0.85}
        folder = self.folder / f"cifar10-{images}"
        if not folder.exists():
            write_cifar10(folder, images, max(500, images // 6))
        augmented = {"data.crop_padding": 4, "data.horizontal_flip": True, "data.rotation_degrees": 15}
        return {"data.name": "cifar10", "data.root": str(folder), "data.held_out_fraction": 0, **augmented}

    def network(self) -> dict[str, Any]:
        """Options of the network: the baseline's on a GPU, a narrow one on a CPU."""
        if self.tiny:
            return {"model.name": "small_cnn", "model.width": 4}
        return {"model.name": "vgg11_bn", "model.cut": 4, **({} if self.on_gpu else {"model.width": 16})}

    def config(self, case: Case, images: int, **more: Any) -> RunConfig:
        """The configuration of a case; `more` holds options of the training."""
        values = {
            "name": "benchmark",
            "device": self.device.type,
            "channel.noise_std": NOISE_STD,
            "surrogate.name": case.surrogate,
            "training.batch_size": case.batch_size,
            "training.precision": case.precision,
            "training.fast": case.fast,
            "training.penalty_weight": 0.0 if case.surrogate == "none" else 0.1,
            "training.warmup_epochs": 1,
            "training.log_every": 100,
            **self.data(images),
            **self.network(),
            **{f"training.{name}": value for name, value in more.items()},
        }
        return load_config({}, values).config


def write_cifar10(folder: Path, train: int, test: int) -> None:
    """Synthetic images in the layout of CIFAR-10's Python version: one pattern per class, with noise."""
    place = folder / "cifar-10-batches-py"
    place.mkdir(parents=True)
    random = np.random.default_rng(0)
    patterns = random.integers(0, 128, (10, 3072), np.uint8)
    split = np.array_split(np.arange(train), 5)
    parts = {**{f"data_batch_{number}": part for number, part in enumerate(split, 1)}, "test_batch": np.arange(test)}
    for name, part in parts.items():
        labels = part % 10
        images: NDArray[np.uint8] = patterns[labels] + random.integers(0, 128, (len(part), 3072), np.uint8)
        content = pickle.dumps({"data": images, "labels": labels.tolist()}, protocol=4)
        (place / name).write_bytes(content)


@dataclass(frozen=True)
class Ready:
    """A trainer that has taken its first steps, and a batch for further ones."""

    trainer: Trainer
    images: Tensor
    labels: Tensor

    def step(self) -> Tensor:
        """One training step, as `training.fast` says."""
        z: Tensor = self.trainer.objective.step(self.images, self.labels)
        return z

    @property
    def parameters(self) -> list[Tensor]:
        """Weights of client, server and surrogate."""
        return [*self.trainer.model.parameters(), *self.trainer.surrogate.parameters()]


@contextmanager
def ready(setting: Setting, case: Case, options: Mapping[str, Any] = MappingProxyType({})) -> Iterator[Ready]:
    """The trainer of a case after its warm-up, its surrogate refit and its penalty switched on."""
    free_memory()
    config = load_config(setting.config(case, FEW_IMAGES, epochs=2), dict(options)).config
    with limited_threads(config.threads), fastest_convolutions(setting.device):
        trainer = Trainer(config, None)
        trainer.model.train()
        trainer.objective.weight.fill_(0.1)
        trainer.objective.fitting.fill_(1)
        part = slice(case.batch_size)
        now = Ready(trainer, trainer.data.train.images[part].clone(), trainer.data.train.labels[part].clone())
        for _ in range(WARM_STEPS):
            z = now.step().clone()
        if trainer.surrogate.needs_refresh:
            trainer.surrogate.refresh([(z, now.labels)])
        for _ in range(2):
            now.step()
        yield now


def free_memory() -> None:
    """Free the memory of earlier measurements, including the matrix library's workspaces (one per stream)."""
    if torch.cuda.is_available():
        gc.collect()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()


ROUND_MS = 300.0
"""Target time of a round of calls."""


def milliseconds(call: Callable[[], object], setting: Setting) -> float:
    """Time of one call: the median over rounds of consecutive calls."""
    fewest, most, rounds = (1, 2, 2) if setting.tiny else (10, 200, 5) if setting.on_gpu else (1, 20, 3)
    once = _round(call, fewest, setting.device)
    calls = min(most, max(fewest, round(ROUND_MS / once)))
    return statistics.median(_round(call, calls, setting.device) for _ in range(rounds))


def _round(call: Callable[[], object], calls: int, device: torch.device) -> float:
    if device.type != "cuda":
        began = time.perf_counter()
        for _ in range(calls):
            call()
        return 1000 * (time.perf_counter() - began) / calls
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(calls):
        call()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) / calls


def synchronise(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def bytes_kept(call: Callable[[], object], without: Iterable[Tensor]) -> int:
    """Bytes of the tensors that a call keeps for its backward pass, excluding those of `without`."""
    own = {tensor.untyped_storage().data_ptr() for tensor in without}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        call()
    return sum(size for place, size in kept.items() if place not in own)


def add_ratios(rows: Sequence[Row], figure: str) -> list[Row]:
    """Each row with its figure divided by that of the first row, and by that of `none` trained in the same way."""
    ways = [tuple(row[key] for key in ("batch_size", "precision", "fast")) for row in rows]
    plain = {way: row[figure] for way, row in zip(ways, rows, strict=True) if row["surrogate"] == "none"}
    return [
        {
            **row,
            "over_first": row[figure] / rows[0][figure],
            "over_none": row[figure] / plain[way] if way in plain else None,
        }
        for way, row in zip(ways, rows, strict=True)
    ]
