"""Base of all penalties: a term of the loss that may train its own parts."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from attncem.base.types import StepView
from attncem.config.options.penalties import PenaltyOptions
from attncem.training.engine import Engine


class Penalty(nn.Module, abc.ABC):
    """A term of the loss in addition to the surrogate's.

    Shapes are static, all state is in parameters, buffers and ``optimizers``, and nothing waits for the host. The
    gradient of the term reaches z (or the release), never the penalty's weights; ``inner_step`` trains those on
    detached tensors and changes nothing else. ``noise_std`` is that of the Gaussian noise that z meets first, 0 if it
    meets something else.
    """

    options_type: ClassVar[type[PenaltyOptions]]
    options: Any

    def __init__(
        self,
        options: PenaltyOptions,
        *,
        feature_shape: tuple[int, ...],
        image_shape: tuple[int, int, int],
        engine: Engine,
        num_classes: int = 0,
        noise_std: float = 0.0,
    ) -> None:
        super().__init__()
        self.options = options
        self.engine = engine
        self.num_classes, self.noise_std = num_classes, noise_std
        self.optimizers: dict[str, Optimizer] = {}
        self.register_buffer("weight", torch.zeros((), device=engine.device), persistent=False)

    @property
    def static(self) -> bool:
        """Whether every step does the same on the device, so that one step can be captured and replayed."""
        return True

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        """Set the constants of an epoch, counted from 0; called before its first step."""
        self.get_buffer("weight").fill_(self.options.weight * (epoch >= self.options.warmup_epochs))

    def inner_step(self, step: StepView) -> None:
        """Train the penalty's own parts before the step of the model; most have none."""

    @abc.abstractmethod
    def evaluate(self, x: Tensor, feature: Tensor, y: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The term without its weight, and diagnostics."""

    def forward(self, step: StepView) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The weighted term and detached diagnostics."""
        value, diagnostics = self.evaluate(step.x.detach(), self.feature(step), step.y)
        told = {name: number.detach() for name, number in diagnostics.items()}
        return self.get_buffer("weight") * value, told

    def feature(self, step: StepView) -> Tensor:
        """The tensor that the penalty reads, in float32 or float64."""
        seen = step.z if self.options.reads == "clean" else step.released
        return seen.to(torch.promote_types(seen.dtype, torch.float32))
