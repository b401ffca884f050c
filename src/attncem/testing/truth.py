"""The truth test: features of a known law, frozen, on which a surrogate's own weights learn for 300 steps."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from attncem.training.surrogates.base import Surrogate

TRUTH_STEPS = 300
TRUTH_CLASSES = 2


def draw_law(
    ratio: float, components: int, *, seed: int = 0, samples: int = 256, classes: int = TRUTH_CLASSES
) -> tuple[Tensor, Tensor, Tensor]:
    """256 samples a class in 128 dimensions from a mixture of equal Gaussians: z, y, the law's variances [C, D].

    Noise 1, so ``ratio`` is the variance over the noise's of each component.
    """
    generator = torch.Generator().manual_seed(seed)
    size = 128
    centre = 3 * torch.randn(classes, 1, size, generator=generator)
    offsets = 2 * math.sqrt(ratio) * torch.randn(classes, components, size, generator=generator)
    offsets = offsets - offsets.mean(1, keepdim=True)
    chosen = torch.randint(components, (classes, samples), generator=generator)
    deviations = math.sqrt(ratio) * torch.randn(classes, samples, size, generator=generator)
    rows = torch.arange(classes).unsqueeze(1)
    z = centre + offsets[rows, chosen] + deviations
    return z.flatten(0, 1), torch.arange(classes).repeat_interleave(samples), ratio + offsets.square().mean(1)


def learn_on_frozen_features(
    surrogate: Surrogate, z: Tensor, y: Tensor, *, learning_rate: float = 1e-2
) -> tuple[float, float]:
    """The value reported before and after training the own weights."""
    start = float(surrogate(z, y).loss)
    trainable = [parameter for parameter in surrogate.parameters() if parameter.requires_grad]
    if trainable:
        optimiser = torch.optim.Adam(trainable, lr=learning_rate)
        for _ in range(TRUTH_STEPS):
            optimiser.zero_grad()
            fit_loss = surrogate(z, y).fit_loss
            assert fit_loss is not None
            fit_loss.backward()
            optimiser.step()
    return start, float(surrogate(z, y).loss)
