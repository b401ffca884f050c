"""The rate of a Gaussian release, as a penalty: a variational information bottleneck (VIB)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from attncem.base.types import StepView
from attncem.config.options.penalties import VibOptions
from attncem.training.engine import adam
from attncem.training.penalties.base import Penalty


class VariationalBottleneck(Penalty):
    """E KL(N(z, σ² I) ‖ r) in nats: an upper bound on I(x; z + noise) for any prior r, on I(x; z + noise | y) for r_y.

    The prior learns in the inner step on detached features; the term uses it as a constant.
    """

    options_type = VibOptions
    options: VibOptions
    mean: Tensor
    log_variance: Tensor

    def __init__(self, options: VibOptions, *, feature_shape: tuple[int, ...], **rest: Any) -> None:
        super().__init__(options, feature_shape=feature_shape, **rest)
        rows = self.num_classes if options.prior == "class" else 1
        for name in ("mean", "log_variance"):
            start = torch.zeros(rows, math.prod(feature_shape), device=self.engine.device)
            if options.prior == "standard":
                self.register_buffer(name, start, persistent=False)
            else:
                self.register_parameter(name, nn.Parameter(start))
        if options.prior != "standard":
            self.optimizers["prior"] = adam(self.parameters(), options.lr, self.engine.device)

    def inner_step(self, step: StepView) -> None:
        """Train the prior on this batch."""
        if self.optimizers:
            rates = gaussian_rate(self.feature(step).detach(), self.noise_std, *self._prior(step.y))
            self.engine.descend(rates.mean(), [self.optimizers["prior"]])

    def evaluate(self, x: Tensor, feature: Tensor, y: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The mean rate of the batch, in nats."""
        rate = gaussian_rate(feature, self.noise_std, *(part.detach() for part in self._prior(y))).mean()
        return rate, {"vib_rate": rate}

    def _prior(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance of the prior of each sample, [B, D] or [1, D]."""
        whole = self.mean, self.log_variance
        return (whole[0][y], whole[1][y]) if self.options.prior == "class" else whole


def gaussian_rate(feature: Tensor, noise_std: float, mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(feature, noise_std² I) ‖ N(mean, diag exp(log_variance))) of each sample in nats, summed over dimensions."""
    mean, log_variance = mean.to(feature.dtype), log_variance.to(feature.dtype)
    squares = noise_std**2 + (feature.flatten(1) - mean).square()
    return 0.5 * (squares * (-log_variance).exp() - 1 + log_variance - 2 * math.log(noise_std)).sum(1)
