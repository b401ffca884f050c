"""Options of training: optimiser, schedules, penalty weight, precision."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from attncem.config.options.base import Options


class SGDOptions(Options):
    """Stochastic gradient descent with momentum (the baseline's optimiser)."""

    name: Literal["sgd"] = "sgd"
    lr: float = Field(0.05, gt=0)
    """Highest learning rate."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """Momentum."""
    weight_decay: float = Field(5e-4, ge=0)
    """Weight decay."""
    nesterov: bool = False
    """Nesterov momentum."""


class OneCycleOptions(Options):
    """Linear rise to the highest rate, then a cosine to zero."""

    name: Literal["one_cycle"] = "one_cycle"
    rise: float = Field(0.25, gt=0, lt=1)
    """Part of the training in which the rate rises."""
    start_factor: float = Field(0.04, gt=0, le=1)
    """First rate as a part of the highest."""


class MultiStepOptions(Options):
    """The baseline's schedule, scaled to any length: drops at 1/4, 1/2, 3/4 and 7/8."""

    name: Literal["multi_step"] = "multi_step"
    milestones: tuple[float, ...] = (0.25, 0.5, 0.75, 0.875)
    """Where the rate drops, as parts of the training."""
    factor: float = Field(0.2, gt=0, lt=1)
    """Each drop multiplies the rate by this."""
    warmup: float = Field(1 / 240, ge=0, lt=1)
    """Part of the training in which the rate rises from zero (the baseline meant one epoch of 240)."""


class ShuffledOptions(Options):
    """Every training image once an epoch, in a random order; what fills no batch waits for another epoch."""

    name: Literal["shuffled"] = "shuffled"


class BalancedOptions(Options):
    """As many images of every class: each batch holds batch_size / samples_per_class classes, drawn in turn.

    An epoch has as many batches as before, so images of large classes wait and those of small ones come again.
    """

    name: Literal["balanced"] = "balanced"
    samples_per_class: int = Field(4, ge=2)
    """Images of each class in a batch; divides batch_size."""


class ConstantRateOptions(Options):
    """The same learning rate throughout."""

    name: Literal["constant"] = "constant"


class ConstantWeightOptions(Options):
    """The penalty's full weight from the end of the warm-up on."""

    name: Literal["constant"] = "constant"


class LinearRampOptions(Options):
    """The penalty's weight rises linearly after the warm-up."""

    name: Literal["linear_ramp"] = "linear_ramp"
    ramp_epochs: float = Field(5.0, gt=0)
    """Epochs from zero to the full weight."""


class CemRateOptions(Options):
    """The baseline's weight: 1 when the learning rate is below the threshold, else numerator / rate.

    Always 1 in a run that starts from given weights (model.init_from).
    """

    name: Literal["cem_lr"] = "cem_lr"
    threshold: float = Field(4.1e-4, gt=0)
    """Learning rate below which the weight is 1 (the documents: 4.1e-4)."""
    numerator: float = Field(1e-3, gt=0)
    """Above it the weight is this over the learning rate."""


RateSchedule = Annotated[OneCycleOptions | MultiStepOptions | ConstantRateOptions, Field(discriminator="name")]
Batches = Annotated[ShuffledOptions | BalancedOptions, Field(discriminator="name")]
WeightSchedule = Annotated[ConstantWeightOptions | LinearRampOptions | CemRateOptions, Field(discriminator="name")]


class TrainingOptions(Options):
    """How the split model is trained."""

    epochs: int = Field(20, ge=1)
    """Passes over the training images."""
    batch_size: int = Field(128, ge=2)
    """Images per step."""
    batches: Batches = ShuffledOptions()
    """Which images come together in a step."""
    optimizer: SGDOptions = SGDOptions()
    """Optimiser of client and server."""
    schedule: RateSchedule = OneCycleOptions()
    """Learning rate over time."""
    penalty_weight: float = Field(0.0, ge=0)
    """Weight λ of the surrogate's penalty."""
    penalty_schedule: WeightSchedule = ConstantWeightOptions()
    """Penalty weight over time, as a factor of λ."""
    warmup_epochs: int | None = Field(None, ge=0)
    """Epochs without penalty; null: the surrogate's own default."""
    surrogate_lr: float = Field(1e-4, gt=0)
    """Adam's rate for the surrogate's own weights (003: 1e-4)."""
    refresh_features: Literal["trained", "second_pass"] = "trained"
    """What kmeans and gmm are refit on after an epoch: the features seen while training, or a second pass
    in evaluation mode as the baseline does."""
    precision: Literal["32-true", "bf16-mixed"] = "32-true"
    """Arithmetic of the networks; statistics stay in float32."""
    fast: Literal["auto", "off", "capture", "compile_surrogate", "compile"] = "auto"
    """How steps are taken on a GPU: off: one kernel after the other; capture: replayed from a CUDA graph;
    compile_surrogate: that with the surrogate compiled, some seconds (slot and hybrid half a minute); compile: the
    networks too, half a minute more; auto: capture, from 50,000 steps on compile. Each is checked against the plain
    step."""
    log_every: int = Field(10, ge=1)
    """Steps between two lines of metrics.jsonl."""
    track: Literal["tensorboard"] | None = None
    """Write what is logged for another program too: tensorboard, into the run's folder (extra `track`)."""
    gradient_ratio_every: int | None = Field(None, ge=0)
    """Steps between two measurements of the penalty's gradient against the cross entropy's (0: never; null: 200,
    on a GPU 2000, where a measurement takes as long as some twenty captured steps)."""
    checkpoint_every: int = Field(1, ge=1)
    """Epochs between two checkpoints."""
    selection_window: float = Field(1 / 6, gt=0, le=1)
    """Last part of the training among whose epochs the best by validation accuracy is kept (early epochs
    are accurate because the penalty has not acted yet)."""

    @model_validator(mode="after")
    def _divide_the_batch_into_classes(self) -> TrainingOptions:
        if isinstance(self.batches, BalancedOptions) and self.batch_size % self.batches.samples_per_class:
            raise ValueError(
                f"batch_size={self.batch_size} must be a multiple of "
                f"batches.samples_per_class={self.batches.samples_per_class}"
            )
        return self
