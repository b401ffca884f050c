"""Learning rate and penalty weight over time: pure functions of the training's progress."""

from __future__ import annotations

import math

from attncem.config.options.training import (
    CemRateOptions,
    ConstantWeightOptions,
    LinearRampOptions,
    MultiStepOptions,
    OneCycleOptions,
    RateSchedule,
    TrainingOptions,
    WeightSchedule,
)


def rate_factor(schedule: RateSchedule, progress: float) -> float:
    """Learning rate as a fraction of the maximum, at `progress` in [0, 1) of the training."""
    if isinstance(schedule, OneCycleOptions):
        return _one_cycle(schedule, progress)
    if isinstance(schedule, MultiStepOptions):
        drops = sum(progress >= milestone for milestone in schedule.milestones)
        return schedule.factor**drops * min(1.0, progress / schedule.warmup if schedule.warmup else 1.0)
    return 1.0


def _one_cycle(schedule: OneCycleOptions, progress: float) -> float:
    if progress < schedule.rise:
        return schedule.start_factor + (1 - schedule.start_factor) * progress / schedule.rise
    return 0.5 * (1 + math.cos(math.pi * (progress - schedule.rise) / (1 - schedule.rise)))


def weight_factor(
    schedule: WeightSchedule, *, epochs_since_warmup: float, lr: float, fine_tuning: bool = False
) -> float:
    """Penalty weight as a fraction of λ; `w_lr` of the documents is the schedule cem_lr."""
    if isinstance(schedule, ConstantWeightOptions):
        return 1.0
    if isinstance(schedule, LinearRampOptions):
        return min(1.0, epochs_since_warmup / schedule.ramp_epochs)
    if isinstance(schedule, CemRateOptions):
        return 1.0 if fine_tuning or lr < schedule.threshold else schedule.numerator / lr
    raise TypeError(f"no rule for {type(schedule).__name__}")


def penalty_weight(
    options: TrainingOptions,
    *,
    warmup_epochs: int,
    loss_scale: float,
    epoch: float,
    lr: float,
    fine_tuning: bool = False,
) -> float:
    """λ · w(t) · scale at a (fractional) epoch; 0 during the warm-up. `fine_tuning`: the run has initial weights."""
    if epoch < warmup_epochs or options.penalty_weight == 0:
        return 0.0
    since = epoch - warmup_epochs
    factor = weight_factor(options.penalty_schedule, epochs_since_warmup=since, lr=lr, fine_tuning=fine_tuning)
    return options.penalty_weight * loss_scale * factor
