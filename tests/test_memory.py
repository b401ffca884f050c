"""The memory of recent features: what it holds, what it forgets, and how few samples are skipped with it."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from attncem.base.progress import silent
from attncem.base.types import ConfigError
from attncem.config.loading.load import load_config
from attncem.config.options.surrogate_base import MemoryOptions
from attncem.config.options.training import BalancedOptions, ShuffledOptions
from attncem.data.batches import DeviceData
from attncem.records.runs import RunDirectory
from attncem.training.build import check
from attncem.training.surrogates import SURROGATES, build_surrogate
from attncem.training.surrogates.base import Surrogate
from attncem.training.surrogates.memory import ClassMemory
from attncem.training.train import train

REMEMBERING = [name for name, kind in SURROGATES.items() if "memory" in kind.options_type.model_fields]
SIZE = 6


def random_batch(step: int, num_classes: int, count: int) -> tuple[Tensor, Tensor]:
    """Features and labels; some labels belong to no class."""
    generator = torch.Generator().manual_seed(step)
    y = torch.randint(-1, num_classes + 1, (count,), generator=generator)
    return torch.randn(count, SIZE, generator=generator), y


def remembered(memory: ClassMemory, label: int) -> set[tuple[float, ...]]:
    """What is recalled of a class, as a set of features."""
    rows, labels = memory.recall(torch.tensor([label]), torch.zeros(1))
    assert rows.shape == (min(1, memory.num_classes) * memory.per_class, SIZE)
    return {tuple(row.tolist()) for row, found in zip(rows, labels.tolist(), strict=True) if found == label}


@pytest.mark.parametrize(("num_classes", "count"), [(3, 20), (7, 4), (40, 16)])
@pytest.mark.parametrize(("per_class", "max_age"), [(1, 3), (4, 2), (3, 100)])
def test_it_holds_the_last_of_every_class(num_classes: int, count: int, per_class: int, max_age: int) -> None:
    options = MemoryOptions(per_class=per_class, max_age=max_age)
    memory = ClassMemory(options, num_classes=num_classes, num_features=SIZE)
    expected = [deque[tuple[int, tuple[float, ...]]](maxlen=per_class) for _ in range(num_classes)]
    for step in range(12):
        for label in range(num_classes):
            young = {feature for stored_at, feature in expected[label] if step - stored_at <= max_age}
            assert remembered(memory, label) == young, (step, label)
        x, y = random_batch(step, num_classes, count)
        memory.store(x, y)
        for feature, label in zip(x.tolist(), y.tolist(), strict=True):
            if 0 <= label < num_classes:
                expected[label].append((step, tuple(feature)))
    assert not memory.features[-1].any(), "the spare row is nobody's"


@pytest.mark.parametrize(("num_classes", "count"), [(3, 20), (20, 20), (40, 16)])
def test_the_batchs_own_rows_are_known(num_classes: int, count: int) -> None:
    memory = ClassMemory(MemoryOptions(per_class=3), num_classes=num_classes, num_features=SIZE)
    x, y = random_batch(0, num_classes, count)
    rows, labels = memory.recall(y, x)
    assert len(rows) == len(labels) == min(num_classes, count) * 3
    assert memory.num_own(count + len(rows)) == count


def build(name: str, *, num_classes: int = 200, **options: Any) -> Surrogate:
    torch.manual_seed(0)
    options = {"slot_dim": 8, "num_heads": 2, "num_slots": 2, **options} if name == "slot" else options
    surrogate = build_surrogate(name, feature_shape=(SIZE,), num_classes=num_classes, noise_std=0.1, **options)
    if surrogate.needs_refresh:
        surrogate.refresh([features(torch.arange(10 * num_classes) % num_classes, 99)])
    return surrogate


def features(y: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return y.unsqueeze(1) + torch.randn(len(y), SIZE, generator=generator), y


def skipped(surrogate: Surrogate, order: Tensor, labels: Tensor) -> list[float]:
    """Share of each batch's samples that is skipped, from the first step on."""
    return [float(surrogate(*features(labels[row], step)).diagnostics["skipped"]) for step, row in enumerate(order)]


@pytest.mark.parametrize("name", REMEMBERING)
def test_at_most_five_percent_is_skipped_at_200_classes(name: str) -> None:
    labels = torch.arange(200).repeat_interleave(26)
    data = DeviceData(torch.zeros(len(labels), 1, 1, 1, dtype=torch.uint8), labels)
    generator = torch.Generator().manual_seed(0)
    order = data.epoch_order(128, generator, ShuffledOptions())
    assert order.shape == (40, 128)
    assert min(skipped(build(name), order[:10], labels)) > 0.3
    with_memory = skipped(build(name, memory={}), order, labels)
    assert with_memory[0] > 0.3, "nothing is remembered in the first step"
    assert max(with_memory[15:]) <= 0.05
    balanced = data.epoch_order(128, generator, BalancedOptions())
    assert max(skipped(build(name), balanced, labels)) < 1e-6


def test_single_samples_are_penalised_by_what_is_remembered() -> None:
    surrogate = build("capacity", num_classes=3, memory={"per_class": 2})
    z, y = features(torch.tensor([0, 1, 2]), 0)
    first = surrogate(z, y)
    assert first.loss == 0 and first.diagnostics["skipped"] == 1 and first.diagnostics["recalled"] == 0
    later = z + torch.tensor([[1.0], [2.0], [0.0]])
    second = surrogate(later, y)
    variances = torch.stack([later, z]).var(0, unbiased=True)
    expected = 0.5 * (variances / 0.01).log1p().mean(1)
    torch.testing.assert_close(second.per_class, expected)
    torch.testing.assert_close(second.loss, expected.mean())
    torch.testing.assert_close(second.diagnostics["skipped"], torch.tensor(0.0))
    torch.testing.assert_close(second.diagnostics["recalled"], torch.tensor(1.0))


@pytest.mark.parametrize("name", REMEMBERING)
def test_only_the_batch_has_a_gradient(name: str) -> None:
    surrogate = build(name, num_classes=4, memory={})
    y = torch.arange(4)
    before = features(y, 0)[0].requires_grad_()
    surrogate(before, y)
    now = features(y, 1)[0].requires_grad_()
    surrogate(now, y).loss.backward()
    assert before.grad is None
    assert now.grad is not None and bool(now.grad.any(1).all())
    assert not any(value.requires_grad for value in surrogate.buffers())


def test_evaluation_stores_nothing() -> None:
    surrogate = build("capacity", num_classes=4, memory={}).eval()
    surrogate(*features(torch.arange(4), 0))
    assert surrogate.memory is not None and int(surrogate.memory.step) == 0


@pytest.mark.parametrize("name", REMEMBERING)
def test_without_a_memory_there_is_no_state(name: str) -> None:
    surrogate = build(name)
    assert surrogate.memory is None
    assert not any("memory" in key for key in surrogate.state_dict())


# runs


def test_a_small_batch_is_accepted_with_a_memory() -> None:
    with pytest.raises(ConfigError, match=r"training\.batches\.name=balanced, surrogate\.memory\.per_class=4, or"):
        check(load_config("demo", ["training.batch_size=8"]).config)
    check(load_config("demo", ["training.batch_size=8", "surrogate.memory.per_class=2"]).config)
    check(load_config("demo-kmeans", ["training.batch_size=8"]).config)


def test_a_memory_is_saved_and_resumed(tmp_path: Path, tiny: dict[str, Any]) -> None:
    settings = {**tiny, "training.batch_size": 8, "surrogate.memory": {"per_class": 2, "max_age": 30}}
    whole = train("demo", settings, out=tmp_path / "whole", progress=silent)
    steps = [record for record in whole.records() if record["kind"] == "train"]
    assert steps[-1]["skipped"] < 0.05 < steps[0]["skipped"]
    assert steps[-1]["recalled"] > 0.5
    state = whole.load("last").weights["surrogate"]
    assert int(state["memory.step"]) == 2 * (500 // 8)
    assert state["memory.features"].shape == (11, 2, 8 * 4 * 4)

    def interrupt(stage: str, done: float, total: float, numbers: Any) -> None:
        if done >= 500 // 8 + 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train("demo", settings, out=tmp_path / "run", progress=interrupt)
    resumed = train(resume=tmp_path / "run", progress=silent)
    assert fingerprint(resumed) == fingerprint(whole)


def fingerprint(run: RunDirectory) -> dict[str, bytes]:
    last = run.path / "checkpoints" / run.checkpoint_name("last")
    weights = {file.name: file.read_bytes() for file in last.glob("*.safetensors")}
    return {"metrics": (run.path / "metrics.jsonl").read_bytes(), **weights}
