"""What every attack shares: its verdict on its own fit, and features standardised from its own images."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

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
    """An attack: `fit` once on the attacker's own images, then `reconstruct` any release.

    Built from its options object, or from its options by name: ``DecoderAttack(size="strong")``.
    """

    options_type: ClassVar[type[Options]]
    kind: ClassVar[Literal["floor", "attack"]]
    options: Options
    fit_report: FitReport = FitReport()

    def __init__(self, options: Options | None = None, *, report: Report = silent, **by_name: Any) -> None:
        self.options = options or self.options_type(**by_name)
        self.report = report

    @abstractmethod
    def fit(self, oracle: ReleaseOracle, *, seed: int) -> None:
        """Learn from what the oracle grants."""

    @abstractmethod
    def reconstruct(self, released: Tensor) -> Tensor:
        """Images in [0, 1] for a batch of releases; each image depends on its own release alone."""


class Standardiser:
    """Centres and scales a release by the statistics of the attacker's own releases.

    Without it a defence that only shrinks z would look private to the decoder. An entry that hardly varies
    is divided by a tenth of the mean deviation instead of its own, so that it cannot blow up.
    """

    def __init__(self, released: Tensor) -> None:
        released = released.float()
        self.mean = released.mean(0)
        std = released.std(0) if len(released) > 1 else torch.ones_like(self.mean)
        self.std = torch.maximum(std, 0.1 * std.mean()).clamp_min(1e-8)

    def __call__(self, released: Tensor) -> Tensor:
        """(released - mean) / std."""
        return (released.float() - self.mean) / self.std


class OwnImages:
    """The attacker's own images x, labels y and fresh releases of them, from any oracle."""

    def __init__(self, oracle: ReleaseOracle) -> None:
        given = oracle.auxiliary()
        pairs = [given] if isinstance(given, tuple) and isinstance(given[0], Tensor) else list(given)
        self.x: Tensor = torch.cat([x for x, _ in pairs])
        self.y: Tensor = torch.cat([y for _, y in pairs])
        self._oracle = oracle
        self._by_index = getattr(oracle, "release_auxiliary", None)

    def release(self, index: Tensor, generator: torch.Generator) -> Tensor:
        """One fresh release of each image at `index`."""
        if self._by_index is None:
            return self._oracle.release(self.x[index])
        released: Tensor = self._by_index(index, generator=generator)
        return released

    def release_all(self, generator: torch.Generator, batch: int = 1000) -> Tensor:
        """One fresh release of every image."""
        index = torch.arange(len(self.x), device=self.x.device)
        return torch.cat([self.release(part, generator) for part in index.split(batch)])


def divide(count: int, fraction: float, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Indices of the attacker's training and validation images, at least one each."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    held = min(max(1, round(fraction * count)), count - 1)
    return order[held:].to(device), order[:held].to(device)
