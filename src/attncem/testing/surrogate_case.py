"""A surrogate under test: how it is made, fitted and called, and batches of features for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from attncem.base.types import SurrogateOutput
from attncem.testing.laws import holds
from attncem.training.surrogates.base import Surrogate

SHAPE = (4, 2, 2)
NUM_CLASSES = 5
NOISE_STD = 0.1
Reference = Callable[..., tuple[Tensor, Tensor]]
"""reference(surrogate, z, y, noise) → loss and per-class values, the same with plain loops."""


@dataclass(frozen=True)
class SurrogateCase:
    """A surrogate's class with its options and its formula with plain loops.

    ``noise`` makes the draws of one that takes them as an argument.
    """

    kind: type[Surrogate]
    options: Mapping[str, Any] = field(default_factory=dict)
    reference: Reference | None = None
    noise: Callable[[Surrogate], Tensor | None] = lambda _: None
    called_first: bool = True
    """Whether it sees a batch before its first `refresh`, as in training."""

    def build(
        self, shape: tuple[int, ...] = SHAPE, num_classes: int = NUM_CLASSES, noise_std: float = NOISE_STD
    ) -> Surrogate:
        """A new surrogate."""
        options: Any = self.kind.options_type.model_validate(dict(self.options))
        return self.kind(options, feature_shape=shape, num_classes=num_classes, noise_std=noise_std)

    def make(
        self,
        *,
        shape: tuple[int, ...] = SHAPE,
        num_classes: int = NUM_CLASSES,
        dtype: torch.dtype = torch.float32,
        noise_std: float = NOISE_STD,
    ) -> Surrogate:
        """A surrogate ready for use: fitted, classes marked, its memory filled, where it has any of these."""
        torch.manual_seed(0)
        surrogate = self.build(shape, num_classes, noise_std).to(dtype)
        features = batch(40 * num_classes, shape=shape, num_classes=num_classes, seed=0, dtype=dtype)
        if self.called_first:
            self.call(surrogate, *features)
        surrogate.refresh([features])
        if surrogate.memory is not None:
            for size in (num_classes, 11):
                self.call(surrogate, *batch(size, shape=shape, num_classes=num_classes, dtype=dtype))
            surrogate.eval()
        return surrogate

    def call(self, surrogate: Surrogate, z: Tensor, y: Tensor) -> SurrogateOutput:
        """One batch, with the same draws at every call."""
        torch.manual_seed(5)
        output = surrogate(z, y, noise=self.noise(surrogate))
        holds(isinstance(output, SurrogateOutput), f"forward returned {type(output).__name__}, not SurrogateOutput")
        return output  # type: ignore[no-any-return]


def batch(
    num_samples: int = 30,
    *,
    shape: tuple[int, ...] = SHAPE,
    num_classes: int = NUM_CLASSES,
    spread: float = 1.0,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """Features and labels: class means of size 2, deviations of size ``spread``."""
    generator = torch.Generator().manual_seed(seed)
    means = 2 * torch.randn(num_classes, *shape, generator=generator, dtype=torch.float64)
    y = torch.randint(num_classes, (num_samples,), generator=generator)
    z = means[y] + spread * torch.randn(num_samples, *shape, generator=generator, dtype=torch.float64)
    return z.to(dtype), y
