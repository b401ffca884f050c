"""The variance floor: relative, absolute or moving over the epochs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from attncem.base.progress import silent
from attncem.base.types import ConfigError
from attncem.config.options.surrogate_base import ScheduledFloorOptions
from attncem.training.surrogates import Surrogate, build_surrogate
from attncem.training.surrogates.floor import VarianceFloor
from attncem.training.train import train

SLOT = {"slot_dim": 8, "num_heads": 2, "num_slots": 2}
HINGED: dict[str, dict[str, Any]] = {
    "kmeans": {},
    "gmm": {},
    "gated": {"statistic": "hinge"},
    "slot": {"statistic": "hinge", **SLOT},
}
"""Every surrogate with a floor, with a penalty that is log variance less log floor where that is positive."""


def build(name: str, **options: Any) -> Surrogate:
    torch.manual_seed(0)
    settings = {"feature_shape": (6,), "num_classes": 3, "noise_std": 0.5, **HINGED.get(name, {}), **options}
    surrogate = build_surrogate(name, **settings).double()
    surrogate.refresh([samples()])
    return surrogate.eval()


def samples() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(90, 6, generator=generator, dtype=torch.float64), torch.arange(90) % 3


def scheduled(**options: Any) -> dict[str, Any]:
    return {"name": "scheduled", "start": 0.8, "end": 0.05, "ramp_epochs": 4, "unit": "absolute", **options}


def test_the_floor_moves_evenly_in_its_log_and_stays() -> None:
    schedule = ScheduledFloorOptions(**scheduled(start=1.0, end=0.01))
    expected = {-3: 1.0, 0: 1.0, 1: 10**-0.5, 2: 0.1, 4: 0.01, 100: 0.01}
    assert {epoch: schedule.at(epoch) for epoch in expected} == pytest.approx(expected)


@pytest.mark.parametrize("name", HINGED)
@pytest.mark.parametrize("epoch", [0.0, 1.0, 9.0])
def test_a_scheduled_floor_equals_the_fixed_one_of_that_moment(name: str, epoch: float) -> None:
    moving = build(name, variance_floor=scheduled())
    moving.set_epoch(epoch)
    now = 0.8 ** (1 - min(epoch / 4, 1)) * 0.05 ** min(epoch / 4, 1)
    fixed = build(name, variance_floor=now)
    z, y = samples()
    output = moving(z, y)
    torch.testing.assert_close(output.loss, fixed(z, y).loss, rtol=1e-6, atol=1e-7)
    assert float(output.diagnostics["variance_floor"]) == pytest.approx(now, rel=1e-6)
    assert "variance_floor" not in fixed(z, y).diagnostics


@pytest.mark.parametrize("name", HINGED)
def test_a_falling_floor_strengthens_the_penalty(name: str) -> None:
    surrogate, losses = build(name, variance_floor=scheduled()), []
    for epoch in (0, 1, 2, 3, 4):
        surrogate.set_epoch(epoch)
        losses.append(float(surrogate(*samples()).loss))
    assert losses == sorted(losses)
    assert losses[-1] > losses[0] + 1


@pytest.mark.parametrize("name", HINGED)
def test_units_of_the_noise_are_its_variance(name: str) -> None:
    relative = build(name, variance_floor=scheduled(start=0.4, end=0.4, unit="noise"))
    absolute = build(name, variance_floor=0.4 * 0.5**2)
    torch.testing.assert_close(relative(*samples()).loss, absolute(*samples()).loss, rtol=1e-6, atol=0)


def test_both_parts_of_the_hybrid_follow() -> None:
    parts = {name: {**HINGED[name], "variance_floor": scheduled()} for name in ("gated", "slot")}
    surrogate = build("hybrid", **parts)
    surrogate.set_epoch(4)
    floors = [float(module.current) for module in surrogate.modules() if isinstance(module, VarianceFloor)]
    assert floors == pytest.approx([0.05, 0.05])
    diagnostics = surrogate(*samples()).diagnostics
    assert {"variance_floor", "slot_variance_floor"} <= diagnostics.keys()


@pytest.mark.parametrize("name", HINGED)
def test_a_floor_in_units_of_no_noise_is_refused_and_an_absolute_one_is_not(name: str) -> None:
    with pytest.raises(ConfigError, match=r"surrogate\.variance_floor\.unit=noise is measured in units of"):
        build(name, noise_std=0.0, variance_floor={"name": "scheduled"})
    assert build(name, noise_std=0.0, variance_floor=scheduled())(*samples()).loss >= 0
    assert build(name, noise_std=0.0, variance_floor=0.1)(*samples()).loss > 0


@pytest.mark.parametrize(
    ("floor", "words"),
    [
        (-1, r"surrogate\.variance_floor=-1.*number > 0 or null or a mapping with keys: name, start, end"),
        ({"start": -1}, r"^surrogate\.variance_floor\.start=-1: must be a number > 0$"),
        ({"ends": 1}, r"^surrogate\.variance_floor\.ends: unknown key; did you mean surrogate\.variance_floor\.end\?"),
        ({"name": "sched"}, r"^surrogate\.variance_floor\.name=sched: must be one of: scheduled"),
    ],
)
def test_a_wrong_floor_is_named(floor: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build("gated", variance_floor=floor)


def test_a_run_moves_the_floor_after_the_warm_up_and_resumes_to_the_bit(tmp_path: Path, tiny: dict[str, Any]) -> None:
    floor = {"surrogate.statistic": "hinge", "surrogate.variance_floor": scheduled(start=2, end=0.02, ramp_epochs=2)}
    settings = {**tiny, **floor, "training.epochs": 4, "training.warmup_epochs": 1, "training.log_every": 1}
    whole = train("demo", settings, out=tmp_path / "whole", progress=silent)
    logged = [record["variance_floor"] for record in whole.records() if record["kind"] == "train"]
    steps = len(logged) // 4
    assert logged[:steps] == pytest.approx([2.0] * steps)
    ratios = [math.log(b / a) for a, b in zip(logged[steps : 3 * steps], logged[steps + 1 : 3 * steps], strict=False)]
    assert ratios == pytest.approx([math.log(0.01) / (2 * steps)] * len(ratios), rel=1e-3)
    assert logged[3 * steps :] == pytest.approx([0.02] * steps)

    def interrupt(stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
        if done >= 2.5 * steps:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train("demo", settings, out=tmp_path / "run", progress=interrupt)
    run = train(resume=tmp_path / "run", progress=silent)
    assert run.records() == whole.records()
    for part, weights in whole.load("last").weights.items():
        resumed = run.load("last").weights[part]
        assert all(torch.equal(resumed[key], weights[key]) for key in weights)
