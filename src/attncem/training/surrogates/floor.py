"""The variance floor τ: fixed, or moving over the epochs."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from attncem.config.options.surrogate_base import ScheduledFloorOptions, VarianceFloorOption


class VarianceFloor(nn.Module):
    """τ, the variance below which a class is compact enough: ``given``, else ``default``.

    A scheduled floor is in a buffer that ``set_epoch`` fills from the host, so a captured step reads it there.
    """

    current: Tensor

    def __init__(self, given: VarianceFloorOption, *, default: float, noise_std: float) -> None:
        super().__init__()
        self.schedule = given if isinstance(given, ScheduledFloorOptions) else None
        self.fixed = given if isinstance(given, float) else default
        self.unit = noise_std**2 if self.schedule is not None and self.schedule.unit == "noise" else 1.0
        if self.schedule is not None:
            self.register_buffer("current", torch.tensor(self.schedule.start * self.unit))

    def set_epoch(self, epoch: float) -> None:
        """Set a scheduled floor to its value ``epoch`` epochs after the warm-up."""
        if self.schedule is not None:
            self.current.fill_(self.schedule.at(epoch) * self.unit)

    @property
    def value(self) -> float | Tensor:
        """Current τ."""
        return self.fixed if self.schedule is None else self.current

    def log(self, added: float = 0.0) -> float | Tensor:
        """Log of τ + added."""
        return math.log(self.fixed + added) if self.schedule is None else (self.current + added).log()
