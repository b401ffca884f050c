"""The gradient ratio leaves no trace in a run and is the right number; the latch knows who was penalised."""

from __future__ import annotations

import json
import math
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attncem.base.progress import silent
from attncem.base.types import ConfigError
from attncem.config.loading.load import load_config
from attncem.records.runs import RunDirectory
from attncem.training.monitoring import Latch
from attncem.training.train import train
from attncem.training.trainer import Trainer

CPU = torch.device("cpu")


def weights(run: RunDirectory) -> dict[str, bytes]:
    last = run.path / "checkpoints" / run.checkpoint_name("last")
    return {file.name: file.read_bytes() for file in [*last.glob("*.safetensors"), last / "optimizer.pt"]}


def numbers(run: RunDirectory) -> list[dict[str, Any]]:
    """Everything logged but the ratio itself and what is said about it."""
    records = [record for record in run.records() if record.get("cause") not in ("dominates", "idle")]
    return [{key: value for key, value in record.items() if key != "gradient_ratio"} for record in records]


@pytest.mark.parametrize(
    "settings",
    [
        {"model.name": "vgg11_bn", "model.cut": 2, "surrogate.variant": "002", "surrogate.learn": "penalty"},
        {
            "surrogate.name": "slot",
            "surrogate.variant": "001",
            "surrogate.dropout": 0.2,
            "surrogate.early_shut_steps": 3,
        },
        {"surrogate.name": "kmeans", "channel": [{"name": "dropout"}, {"name": "gaussian", "noise_std": 0.1}]},
    ],
    ids=["batch norm", "slot noise, dropout, running gates", "random channels"],
)
def test_a_run_is_the_same_with_and_without_it(tmp_path: Path, tiny: dict[str, Any], settings: dict[str, Any]) -> None:
    common = {**tiny, "training.batch_size": 100, "training.warmup_epochs": 1, "training.log_every": 2, **settings}
    runs = [
        train("demo", {**common, "training.gradient_ratio_every": every}, out=tmp_path / str(every), progress=silent)
        for every in (0, 1)
    ]
    assert weights(runs[0]) == weights(runs[1])
    assert numbers(runs[0]) == numbers(runs[1])
    assert not any("gradient_ratio" in record for record in runs[0].records())
    measured = [record for record in runs[1].records() if "gradient_ratio" in record]
    trained = [record for record in runs[1].records() if record["kind"] == "train"]
    assert measured == [record for record in trained if record["penalty_weight"] > 0]


def test_it_is_measured_every_so_many_steps_and_the_last_is_shown(tmp_path: Path, tiny: dict[str, Any]) -> None:
    shown: dict[float, Any] = {}
    overrides = {**tiny, "training.gradient_ratio_every": 8, "training.log_every": 3}

    def report(stage: str, done: float, total: float, values: Any) -> None:
        shown[done] = dict(values)

    run = train("demo", overrides, out=tmp_path / "run", progress=report)
    measured = {record["step"]: record["gradient_ratio"] for record in run.records() if "gradient_ratio" in record}
    assert list(measured) == [3, 9, 18, 27], "the lines after steps 0, 8, 16 and 24"
    assert list(shown[6]) == ["epoch", "ce", "rob_loss", "train_accuracy", "active", "eff", "grad"]
    assert shown[6]["grad"] == measured[3]
    assert shown[9]["grad"] == measured[9]


def test_the_value(tiny: dict[str, Any]) -> None:
    """Against two whole backward passes of the model itself, without channel noise to differ in."""
    settings = {"surrogate.name": "capacity", "training.penalty_weight": 3.0, "channel.noise_std": 1e-6}
    trainer = Trainer(load_config("demo", {**tiny, **settings}).config, None)
    assert trainer.objective.gradient_ratio is not None
    x, y = trainer.data.train.get(slice(0, 64))
    trainer.model.train()
    trainer.objective.set_rates(0.0)
    found = trainer.objective.gradient_ratio.measure(x, y, trainer.objective.weight, 7)
    assert all(parameter.grad is None for parameter in trainer.model.parameters())

    def length(loss: Tensor) -> float:
        trainer.model.zero_grad()
        loss.backward()
        return (
            sum(float(p.grad.square().sum()) for p in trainer.model.encoder.parameters() if p.grad is not None) ** 0.5
        )

    ce = length(nn.functional.cross_entropy(trainer.model.predict(trainer.model.encode(x)), y))
    penalty = length(3.0 * trainer.surrogate(trainer.model.encode(x), y).loss)
    assert float(found) == pytest.approx(penalty / ce, rel=1e-3)


def test_it_grows_with_the_weight_and_is_absent_without_one(tiny: dict[str, Any]) -> None:
    trainer = Trainer(load_config("demo", tiny).config, None)
    assert trainer.objective.gradient_ratio is not None
    x, y = trainer.data.train.get(slice(0, 64))
    one, ten = (float(trainer.objective.gradient_ratio.measure(x, y, torch.tensor(w), 0)) for w in (1.0, 10.0))
    assert ten == pytest.approx(10 * one, rel=1e-3)
    assert float(trainer.objective.gradient_ratio.measure(x, y, torch.tensor(0.0), 0)) == 0
    for overrides in ({"training.gradient_ratio_every": 0}, {"training.penalty_weight": 0}):
        assert Trainer(load_config("demo", {**tiny, **overrides}).config, None).objective.gradient_ratio is None


class Uncopied(nn.Module):
    """A user's encoder that holds something which cannot be copied."""

    def __init__(self, *, learns: bool = True) -> None:
        super().__init__()
        self.layer = nn.Linear(784, 12).requires_grad_(learns)
        self.lock = threading.Lock()

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.layer(x.flatten(1)).sigmoid()
        return z


def test_networks_that_cannot_be_copied_are_refused_before_a_folder_is_made(
    tmp_path: Path, tiny: dict[str, Any]
) -> None:
    modules = (Uncopied(), nn.Linear(12, 10))
    with pytest.raises(ConfigError, match=r"training\.gradient_ratio_every .* cannot be copied .*: set it to 0"):
        train("demo", tiny, out=tmp_path / "run", modules=modules, progress=silent)
    assert not (tmp_path / "run").exists()
    overrides = {**tiny, "training.gradient_ratio_every": 0, "training.epochs": 1}
    assert (
        train("demo", overrides, out=tmp_path / "run", modules=modules, progress=silent).manifest["status"]
        == "finished"
    )
    frozen = (Uncopied(learns=False), nn.Linear(12, 10))
    assert Trainer(load_config("demo", tiny).config, frozen).objective.gradient_ratio is None


# which classes are penalised


def test_latch() -> None:
    latch = Latch(5, CPU)
    nan = torch.nan
    latch.add(torch.tensor([0.3, 0.0, nan, 0.0, nan]), torch.tensor(0.1))
    latch.add(torch.tensor([0.0, 0.0, 1e-9, 0.2, nan]), torch.tensor(0.1))
    assert latch.read() == {"latched": 0.5}, "of four classes seen, the second and the third had no penalty"
    latch.add(torch.tensor([0.3, 0.3, nan, nan, nan]), torch.tensor(0.0))
    assert latch.read() == {"latched": 1.0}, "shut off"
    latch.add(torch.full((5,), nan), torch.tensor(0.0))
    assert latch.read() == {}
    latch.add(torch.ones(5), torch.tensor(1.0))
    latch.clear()
    assert latch.read() == {}


@pytest.mark.parametrize(("open_steps", "latched"), [(4, 1.0), (9, 1.0), (10, 0.0), (50, 0.0)])
def test_a_class_that_is_hardly_ever_penalised_is_latched_too(open_steps: int, latched: float) -> None:
    """96 of 100 steps shut off were told nowhere while a single penalised batch counted as a sound epoch."""
    latch = Latch(3, CPU)
    for step in range(100):
        latch.add(torch.tensor([0.3, 0.2, torch.nan]), torch.tensor(float(step < open_steps)))
    assert latch.read() == {"latched": latched}


@pytest.mark.parametrize(
    ("settings", "summed"),
    [({}, False), ({"surrogate.variant": "004"}, True), ({"surrogate.name": "kmeans"}, False)],
    ids=["gated", "one variance", "kmeans"],
)
def test_the_log_has_the_plain_loss_in_all(
    tmp_path: Path, tiny: dict[str, Any], settings: dict[str, Any], summed: bool
) -> None:
    run = train("demo", {**tiny, **settings}, out=tmp_path / "run", progress=silent)
    variances = 1 if summed else math.prod(run.manifest["feature_shape"])
    lines = [record for record in run.records() if record["kind"] == "train"]
    assert lines and all(line["plain_total"] == variances * line["plain_loss"] for line in lines)


def test_a_shut_off_that_never_opens_is_told_after_an_epoch(tmp_path: Path, tiny: dict[str, Any]) -> None:
    shut = {"surrogate.name": "slot", "surrogate.variant": "001", "surrogate.early_hard_thresh": 0.0}
    run = train("demo", {**tiny, **shut, "training.warmup_epochs": 0}, out=tmp_path / "run", progress=silent)
    ends = [record for record in run.records() if "latched" in record]
    assert [(record["step"], record["latched"]) for record in ends] == [(15, 1.0), (30, 1.0)]
    warnings = [record for record in run.records() if record["kind"] == "warning"]
    assert [(record["cause"], record["step"]) for record in warnings] == [("latched", 15)]
    assert json.loads(json.dumps(warnings[0]))["begins"] is True
