"""What every attack shares: its verdict on its own fit, and features standardised from its own images."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from attncem.config.base import Options
from attncem.progress import Report, silent
from attncem.types import BudgetPoint, ReleaseOracle


@dataclass(frozen=True)
class FitReport:
    """How an attack's fit went. `reliable` is False when a larger budget would still gain."""

    reliable: bool = True
    gain_of_doubling: float | None = None
    curve: list[BudgetPoint] = field(default_factory=list)
    num_parameters: int = 0
    warnings: list[str] = field(default_factory=list)


class FittedAttack(ABC):
    """An attack: `fit` once on the attacker's own images, then `reconstruct` any release."""

    options_type: ClassVar[type[Options]]
    kind: ClassVar[Literal["floor", "attack"]]
    fit_report: FitReport = FitReport()

    def __init__(self, options: Options, *, report: Report = silent) -> None:
        self.report = report

    @abstractmethod
    def fit(self, oracle: ReleaseOracle, *, seed: int) -> None:
        """Learn from what the oracle grants."""

    @abstractmethod
    def reconstruct(self, released: Tensor) -> Tensor:
        """Images in [0, 1] for a batch of releases; each image depends on its own release alone."""


class Standardiser:
    """Centres and scales a release by the statistics of the attacker's own releases.

    Without it a defence that only shrinks z would look private to the decoder. Entries that hardly vary
    are scaled by a tenth of the mean deviation at most, so that they cannot blow up.
    """

    def __init__(self, released: Tensor) -> None:
        released = released.float()
        self.mean = released.mean(0)
        std = released.std(0) if len(released) > 1 else torch.ones_like(self.mean)
        self.std = torch.maximum(std, 0.1 * std.mean()).clamp_min(1e-8)

    def __call__(self, released: Tensor) -> Tensor:
        """(released - mean) / std."""
        return (released.float() - self.mean) / self.std


def release_all(oracle: ReleaseOracle, count: int, *, generator: torch.Generator, batch: int = 1000) -> Tensor:
    """One release of each of the first `count` auxiliary images."""
    device = oracle.auxiliary()[1].device
    index = torch.arange(count, device=device)
    return torch.cat([oracle.release_auxiliary(part, generator=generator) for part in index.split(batch)])


def divide(count: int, fraction: float, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Indices of the attacker's training and validation images, at least one each."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    held = min(max(1, round(fraction * count)), count - 1)
    return order[held:].to(device), order[:held].to(device)
