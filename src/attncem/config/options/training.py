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
    """Linear rise to the highest learning rate, then a cosine to zero."""

    name: Literal["one_cycle"] = "one_cycle"
    rise: float = Field(0.25, gt=0, lt=1)
    """Part of the training in which the rate rises."""
    start_factor: float = Field(0.04, gt=0, le=1)
    """First rate as a fraction of the highest."""


class MultiStepOptions(Options):
    """The baseline's schedule, scaled to any length: drops at 1/4, 1/2, 3/4 and 7/8."""

    name: Literal["multi_step"] = "multi_step"
    milestones: tuple[float, ...] = (0.25, 0.5, 0.75, 0.875)
    """Drops of the rate, as fractions of the training."""
    factor: float = Field(0.2, gt=0, lt=1)
    """Each drop multiplies the rate by this."""
    warmup: float = Field(1 / 240, ge=0, lt=1)
    """Part of the training in which the rate rises from zero (the baseline intended one epoch of 240)."""


class ShuffledOptions(Options):
    """Every training image once per epoch, in a random order; an incomplete last batch is dropped."""

    name: Literal["shuffled"] = "shuffled"


class BalancedOptions(Options):
    """The same number of images of every class: each batch holds batch_size / samples_per_class classes, drawn in turn.

    An epoch has the same number of batches, so images of large classes wait and those of small ones repeat.
    """

    name: Literal["balanced"] = "balanced"
    samples_per_class: int = Field(4, ge=2)
    """Images of each class in a batch; divides batch_size."""


class ConstantRateOptions(Options):
    """The same learning rate throughout."""

    name: Literal["constant"] = "constant"


class ConstantWeightOptions(Options):
    """The full penalty weight after the warm-up."""

    name: Literal["constant"] = "constant"


class LinearRampOptions(Options):
    """The penalty weight rises linearly after the warm-up."""

    name: Literal["linear_ramp"] = "linear_ramp"
    ramp_epochs: float = Field(5.0, gt=0)
    """Epochs from zero to the full weight."""


class CemRateOptions(Options):
    """The baseline's weight: 1 if the learning rate is below the threshold, else numerator / rate.

    Always 1 in a run with initial weights (model.init_from).
    """

    name: Literal["cem_lr"] = "cem_lr"
    threshold: float = Field(4.1e-4, gt=0)
    """Learning rate below which the weight is 1 (the documents: 4.1e-4)."""
    numerator: float = Field(1e-3, gt=0)
    """Above it the weight is this divided by the learning rate."""


RateSchedule = Annotated[OneCycleOptions | MultiStepOptions | ConstantRateOptions, Field(discriminator="name")]
Batches = Annotated[ShuffledOptions | BalancedOptions, Field(discriminator="name")]
WeightSchedule = Annotated[ConstantWeightOptions | LinearRampOptions | CemRateOptions, Field(discriminator="name")]


class TrainingOptions(Options):
    """Training of the split model."""

    epochs: int = Field(20, ge=1)
    """Passes over the training images."""
    batch_size: int = Field(128, ge=2)
    """Images per step."""
    batches: Batches = ShuffledOptions()
    """Composition of batches."""
    optimizer: SGDOptions = SGDOptions()
    """Optimiser of client and server."""
    schedule: RateSchedule = OneCycleOptions()
    """Learning rate over time."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Share s of each training label that is spread over all classes in the cross-entropy of the training loss;
    validation, test and audits use the labels themselves (Szegedy et al., 2016)."""
    penalty_weight: float = Field(0.0, ge=0)
    """Weight λ of the surrogate's penalty."""
    penalty_schedule: WeightSchedule = ConstantWeightOptions()
    """Penalty weight over time, as a factor of λ."""
    warmup_epochs: int | None = Field(None, ge=0)
    """Epochs without penalty; null: the surrogate's default."""
    surrogate_lr: float = Field(1e-4, gt=0)
    """Adam's learning rate for the surrogate's weights (003: 1e-4)."""
    refresh_features: Literal["trained", "second_pass"] = "trained"
    """Features for the refit of kmeans and gmm after an epoch: those of training, or a second pass in evaluation mode
    as in the baseline."""
    precision: Literal["32-true", "bf16-mixed"] = "32-true"
    """Precision of the networks; statistics use float32."""
    fast: Literal["auto", "off", "capture", "compile_surrogate", "compile"] = "auto"
    """Steps on a GPU: off: kernels one by one; capture: replay a CUDA graph; compile_surrogate: also compile the
    surrogate, some seconds (slot and hybrid half a minute); compile: also the networks, half a minute more; auto:
    capture, and compile from 50,000 steps. Each is checked against the plain step."""
    log_every: int = Field(10, ge=1)
    """Steps between two lines of metrics.jsonl."""
    track: Literal["tensorboard"] | None = None
    """Also write the log for another program: tensorboard, into the run's folder (extra `track`)."""
    gradient_ratio_every: int | None = Field(None, ge=0)
    """Steps between two measurements of the penalty's gradient relative to the cross entropy's (0: never; null: 200, on
    a GPU 2000, where a measurement takes as long as about twenty captured steps)."""
    checkpoint_every: int = Field(1, ge=1)
    """Epochs between two checkpoints."""
    selection_window: float = Field(1 / 6, gt=0, le=1)
    """Last part of the training; the epoch with the best validation accuracy in it is kept (early epochs are accurate
    because the penalty has not acted yet)."""

    @model_validator(mode="after")
    def _divide_the_batch_into_classes(self) -> TrainingOptions:
        if isinstance(self.batches, BalancedOptions) and self.batch_size % self.batches.samples_per_class:
            raise ValueError(
                f"batch_size={self.batch_size} must be a multiple of "
                f"batches.samples_per_class={self.batches.samples_per_class}"
            )
        return self
