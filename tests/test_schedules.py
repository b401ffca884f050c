from __future__ import annotations

import pytest

from attncem.config.options.base import Options
from attncem.config.options.training import (
    CemRateOptions,
    ConstantRateOptions,
    ConstantWeightOptions,
    LinearRampOptions,
    MultiStepOptions,
    OneCycleOptions,
    TrainingOptions,
)
from attncem.training.schedules import penalty_weight, rate_factor, weight_factor

LR = 0.05


def baseline_lr(epoch: int) -> float:
    """The baseline's rate in epoch 2 … 240 of 240, as it was traced."""
    for end, lr in ((59, 0.05), (119, 0.01), (179, 0.002), (209, 4e-4), (240, 8e-5)):
        if epoch <= end:
            return lr
    raise AssertionError(epoch)


def test_one_cycle_rises_to_its_peak_and_falls_to_zero() -> None:
    schedule = OneCycleOptions(rise=0.25, start_factor=0.04)
    assert rate_factor(schedule, 0.0) == pytest.approx(0.04)
    assert rate_factor(schedule, 0.125) == pytest.approx(0.52)
    assert rate_factor(schedule, 0.25) == pytest.approx(1.0)
    assert rate_factor(schedule, 0.625) == pytest.approx(0.5)
    assert rate_factor(schedule, 1.0) == pytest.approx(0.0, abs=1e-12)


def test_one_cycle_has_one_peak() -> None:
    factors = [rate_factor(OneCycleOptions(), step / 400) for step in range(400)]
    assert factors[:101] == sorted(factors[:101])
    assert factors[100:] == sorted(factors[100:], reverse=True)
    assert max(factors) == factors[100] == 1.0
    assert min(factors) > 0


def test_multi_step_is_the_trace_of_the_baseline() -> None:
    for epoch in range(2, 240):
        assert LR * rate_factor(MultiStepOptions(), epoch / 240) == pytest.approx(baseline_lr(epoch)), epoch


@pytest.mark.parametrize("epochs", [8, 40, 120, 480])
def test_multi_step_scales_to_any_length(epochs: int) -> None:
    for eighth, lr in enumerate((0.05, 0.05, 0.01, 0.01, 0.002, 0.002, 4e-4, 8e-5)):
        first, last = eighth * epochs // 8, (eighth + 1) * epochs // 8 - 1
        assert LR * rate_factor(MultiStepOptions(warmup=0), first / epochs) == pytest.approx(lr)
        assert LR * rate_factor(MultiStepOptions(warmup=0), (last + 0.999) / epochs) == pytest.approx(lr)


def test_multi_step_warms_up_from_zero() -> None:
    schedule = MultiStepOptions(warmup=0.1)
    assert [rate_factor(schedule, p) for p in (0.0, 0.05, 0.1, 0.2)] == pytest.approx([0, 0.5, 1, 1])


def test_constant_rate() -> None:
    assert {rate_factor(ConstantRateOptions(), step / 10) for step in range(10)} == {1.0}


@pytest.mark.parametrize(("lr", "factor"), [(0.05, 0.02), (0.01, 0.1), (0.002, 0.5), (4e-4, 1.0), (8e-5, 1.0)])
def test_cem_lr_on_the_rates_of_the_baseline(lr: float, factor: float) -> None:
    assert weight_factor(CemRateOptions(), epochs_since_warmup=3, lr=lr) == pytest.approx(factor)


def test_cem_lr_along_the_trace() -> None:
    parts = [
        weight_factor(
            CemRateOptions(), epochs_since_warmup=epoch - 1, lr=LR * rate_factor(MultiStepOptions(), epoch / 240)
        )
        for epoch in (2, 59, 60, 119, 120, 179, 180, 209, 210, 239)
    ]
    assert parts == pytest.approx([0.02, 0.02, 0.1, 0.1, 0.5, 0.5, 1, 1, 1, 1])


def test_ramp_rises_from_zero_and_stays() -> None:
    ramp = LinearRampOptions(ramp_epochs=4)
    assert [weight_factor(ramp, epochs_since_warmup=e, lr=1) for e in (0, 1, 3, 4, 40)] == [0, 0.25, 0.75, 1, 1]


def test_constant_weight() -> None:
    assert weight_factor(ConstantWeightOptions(), epochs_since_warmup=0, lr=1) == 1


def test_a_schedule_without_a_rule_is_refused() -> None:
    with pytest.raises(TypeError, match="Options"):
        weight_factor(Options(), epochs_since_warmup=0, lr=1)  # type: ignore[arg-type]


def test_no_penalty_during_the_warm_up() -> None:
    options = TrainingOptions(penalty_weight=16)
    weights = [
        penalty_weight(options, warmup_epochs=2, loss_scale=1, epoch=epoch, lr=1) for epoch in (0, 1.99, 2, 2.5, 19)
    ]
    assert weights == [0, 0, 16, 16, 16]


def test_the_ramp_starts_after_the_warm_up() -> None:
    options = TrainingOptions(penalty_weight=16, penalty_schedule=LinearRampOptions(ramp_epochs=4))
    weights = [penalty_weight(options, warmup_epochs=2, loss_scale=1, epoch=epoch, lr=1) for epoch in (1, 2, 3, 6, 9)]
    assert weights == [0, 0, 4, 16, 16]


def test_weight_scale_and_schedule_multiply() -> None:
    options = TrainingOptions(penalty_weight=16, penalty_schedule=CemRateOptions())
    assert penalty_weight(options, warmup_epochs=1, loss_scale=2, epoch=5, lr=0.05) == pytest.approx(16 * 2 * 0.02)
    assert penalty_weight(TrainingOptions(), warmup_epochs=0, loss_scale=2, epoch=5, lr=0.05) == 0
