"""RunConfig: all options of a run in one validated object."""

from __future__ import annotations

import math
from itertools import takewhile
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from attncem.config.options.base import Options
from attncem.config.options.channels import Channel, GaussianOptions, RandomOptions
from attncem.config.options.data import DataOptions
from attncem.config.options.model import ModelOptions
from attncem.config.options.penalties import Penalty
from attncem.config.options.release import ReleaseOptions
from attncem.config.options.surrogates import NoneOptions, Surrogate
from attncem.config.options.training import TrainingOptions


class RunConfig(Options):
    """One training run. The run folder, the checkpoint and the report contain the same object."""

    packaged = "runs"
    name: str = Field("run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)
    """Name of the run, used for its folder and in reports."""
    seed: int = Field(0, ge=0)
    """One seed; generators for data, initial weights, noise and attacks are derived from it."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device; auto: the GPU if there is one."""
    threads: int = Field(1, ge=1, le=1024)
    """Torch threads on the CPU, in every process."""
    processes: int = Field(1, ge=1, le=1024)
    """Processes that share every batch: on one machine, each with its own GPU or on the CPU. Under torchrun, torchrun
    sets the number."""
    data: DataOptions = DataOptions()
    """Data set, split and augmentation."""
    model: ModelOptions = ModelOptions()
    """Network and cut."""
    channel: list[Channel] = Field([GaussianOptions()], min_length=1, max_length=32)
    """Stages that change z before it leaves, in this order."""
    release: ReleaseOptions = ReleaseOptions()
    """Which images are sent at all."""
    surrogate: Surrogate = NoneOptions()
    """Penalty on the spread of z inside a class."""
    penalties: list[Penalty] = Field([])
    """Further terms of the loss, each at most once."""
    training: TrainingOptions = TrainingOptions()
    """Optimiser, schedules, penalty weight."""

    on_device: bool = False
    """Whether the whole network runs on the client: its trunk with a head of its own, nothing is released. `attncem
    train --on-device` sets this and what follows from it."""

    @field_validator("channel", "penalties", mode="before")
    @classmethod
    def _one_is_a_list_of_one(cls, value: Any) -> Any:
        return [value] if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _refuse_what_cannot_work_together(self) -> RunConfig:
        key = self.surrogate.relative_floor_key()
        if key is not None and self.noise_std == 0:
            raise ValueError(
                f"{key} is measured in units of {self._missing_noise()}, or the surrogate an absolute variance_floor"
            )
        if self.training.penalty_weight > 0 and self.surrogate.name == "none":
            raise ValueError(
                "training.penalty_weight is above 0 but surrogate.name is none: nothing would be penalised"
            )
        if self.warmup_epochs >= self.training.epochs and self.training.penalty_weight > 0:
            raise ValueError(
                f"training.warmup_epochs={self.warmup_epochs} leaves no epoch of training.epochs="
                f"{self.training.epochs} with the penalty"
            )
        self._check_penalties()
        self._check_pruning()
        self._check_processes()
        self._check_on_device()
        self._check_release()
        return self

    def _check_on_device(self) -> None:
        """Nothing is released, so nothing may be asked for that changes or protects a release."""
        if not self.on_device:
            return
        defences: dict[str, bool] = {
            "surrogate={name: none}": self.surrogate.name == "none",
            "penalties=[]": not self.penalties,
            "channel={name: identity}": [stage.name for stage in self.channel] == ["identity"],
            "model.sparse_coding=null": self.model.sparse_coding is None,
            "model.pruning=null": self.model.pruning is None,
            "release.when=always": not self.release.selective,
        }
        if missing := [wanted for wanted, there in defences.items() if not there]:
            raise ValueError(
                f"on_device=true releases nothing, so a defence has no effect: it needs {', '.join(missing)} "
                "(attncem train --on-device sets all of these)"
            )

    def _check_release(self) -> None:
        """A head needs a trunk that does not change under it, and a penalty that follows its doubt needs the head."""
        weighed = getattr(self.surrogate, "sample_weights", "uniform")
        if not self.release.selective:
            if weighed == "doubt":
                raise ValueError(
                    "surrogate.sample_weights=doubt follows the doubt of the client's head, and release.when=always "
                    "has none: set release.when=unsure"
                )
            return
        if self.model.pruning is not None:
            raise ValueError("release.when=unsure cannot be combined with model.pruning: it would cut under the head")
        if self.release.learn == "jointly":
            return
        if self.model.init_from is None or self.model.init_parts != "both":
            raise ValueError(
                "release.learn=head adds a head to a finished client: model.init_from must name its run or weights, "
                "and model.init_parts must be both"
            )
        if self.training.penalty_weight or self.penalties:
            raise ValueError(
                "release.learn=head changes no feature, so a penalty has no effect: it needs "
                "training.penalty_weight=0 and penalties=[]"
            )

    def _check_processes(self) -> None:
        if self.training.batch_size % self.processes or self.training.batch_size < 2 * self.processes:
            raise ValueError(
                f"training.batch_size={self.training.batch_size} cannot be shared by processes={self.processes}: "
                "each takes the same number of images, at least 2"
            )
        if self.processes > 1 and self.model.pruning is not None:
            raise ValueError(
                f"model.pruning cannot be combined with processes={self.processes}: each would prune by its own images"
            )

    def _check_penalties(self) -> None:
        names = [penalty.name for penalty in self.penalties]
        for position, penalty in enumerate(self.penalties):
            if penalty.name in names[:position]:
                raise ValueError(f"penalties.{position}.name={penalty.name}: it is already in the list")
            if penalty.warmup_epochs >= self.training.epochs:
                raise ValueError(
                    f"penalties.{position}.warmup_epochs={penalty.warmup_epochs} leaves no epoch of training.epochs="
                    f"{self.training.epochs} with the {penalty.name} penalty"
                )
            if penalty.name == "distance_correlation" and self.training.batch_size < 4 * self.processes:
                raise ValueError(
                    f"training.batch_size={self.training.batch_size} with processes={self.processes}: distance "
                    "correlation takes 4 or more images in each process"
                )
            if penalty.name == "vib" and self.first_gaussian_std == 0:
                order = " → ".join(stage.name for stage in self.channel)
                raise ValueError(
                    f"penalties.{position}.name=vib bounds what passes Gaussian noise, but z meets none first in this "
                    f"channel ({order}): put channel.name=gaussian with noise_std above 0 before every other stage"
                )

    def _check_pruning(self) -> None:
        opens = int(self.training.epochs * (1 - self.training.selection_window))
        if self.model.pruning is not None and not 1 <= (epoch := self.pruning_epoch or 0) <= opens:
            raise ValueError(
                f"model.pruning.after={self.model.pruning.after} of training.epochs={self.training.epochs} is after "
                f"epoch {epoch}; it must be 1 to {opens}: later, the best checkpoint could be from before it"
            )

    @property
    def pruning_epoch(self) -> int | None:
        """Epochs before the client is pruned; None: no pruning."""
        return None if self.model.pruning is None else round(self.model.pruning.after * self.training.epochs)

    @property
    def noise_std(self) -> float:
        """Standard deviation σ of all noise of the channel; 0 without noise."""
        return math.hypot(*(stage.added_noise_std for stage in self.channel))

    @property
    def first_gaussian_std(self) -> float:
        """Standard deviation of the Gaussian noise that z meets before any other stage; 0 if it meets none first."""
        first = takewhile(lambda stage: stage.name in ("gaussian", "identity"), self.channel)
        return math.hypot(*(stage.added_noise_std for stage in first))

    @property
    def channel_options(self) -> list[dict[str, Any]]:
        """The options of the channel's stages as plain data."""
        return [stage.model_dump(mode="json") for stage in self.channel]

    @property
    def front_end_options(self) -> dict[str, Any]:
        """The options of the front end as plain data."""
        return self.model.front_end.model_dump(mode="json")

    @property
    def keyed(self) -> bool:
        """Whether any stage of the channel draws its noise from a key at inference."""
        return any(isinstance(stage, RandomOptions) and stage.noise == "keyed" for stage in self.channel)

    @property
    def defence(self) -> str:
        """The surrogate with its variant, front end, penalties, layers and label smoothing, in a few words."""
        variant = getattr(self.surrogate, "variant", None)
        surrogate = f"{self.surrogate.name}-{variant}" if variant not in (None, "ours") else self.surrogate.name
        further: list[str] = [] if self.model.front_end.name == "none" else [self.model.front_end.name]
        further += [penalty.name for penalty in self.penalties]
        further += [name for name in ("sparse_coding", "pruning") if getattr(self.model, name) is not None]
        further += ["label_smoothing"] * (self.training.label_smoothing > 0)
        return " + ".join([surrogate, *(name.replace("_", " ") for name in further)])

    @property
    def channel_order(self) -> str:
        """The order of the channel's stages, and the documents' order if it differs."""
        placed = [stage for stage in self.channel if stage.place is not None]
        usual = sorted(placed, key=lambda stage: stage.place or 0)
        order = " → ".join(stage.name for stage in self.channel)
        return order if usual == placed else f"{order}; the documents: {' → '.join(stage.name for stage in usual)}"

    def _missing_noise(self) -> str:
        """What a relative floor lacks if noise_std is 0, and what to set."""
        if any(stage.adds_noise for stage in self.channel):
            return "channel.noise_std, which is 0: give channel.noise_std a value above 0"
        order = self.channel_order
        noisy = "gaussian, laplace, shaped or local_dp"
        return f"the channel's noise, but this channel ({order}) adds no noise: give it {noisy}"

    @property
    def warmup_epochs(self) -> int:
        """Epochs without penalty: the option, or the surrogate's default."""
        epochs = self.training.warmup_epochs
        return self.surrogate.default_warmup_epochs if epochs is None else epochs
