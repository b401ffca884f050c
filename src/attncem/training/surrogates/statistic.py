"""From a variance to a penalty: the statistics that the attention surrogates share."""

from __future__ import annotations

import torch
from torch import Tensor

from attncem.config.options.attention import GatedOptions, SlotOptions
from attncem.training.surrogates.capacity import ACTIVE_SHARE, gaussian_capacity


def variance_statistic(
    variance: Tensor,
    options: GatedOptions | SlotOptions,
    log_floor: float | Tensor,
    noise_std: float,
    *,
    beta: float | Tensor,
    margin: float | Tensor,
) -> Tensor:
    """Hinge, softplus, difference or capacity of each variance; ``beta`` and ``margin`` are the softplus's own.

    ``log_floor`` is log(τ + γ). With e = log(σ² + γ) − log(τ + γ) difference is max(e, bound), or with ``softness`` T
    max(e·sigmoid(e/T), bound).
    """
    if options.statistic == "capacity":
        return gaussian_capacity(variance, noise_std)
    excess = (variance + options.gamma).log() - log_floor
    if options.statistic == "hinge":
        return excess.relu()
    if options.statistic == "difference":
        soft = excess if options.softness is None else excess * (excess / options.softness).sigmoid()
        return soft.clamp_min(options.difference_bound)
    sharpened = beta * (excess - margin)
    return torch.logaddexp(sharpened, torch.zeros_like(sharpened)) / beta


def above_floor(
    variance: Tensor, options: GatedOptions | SlotOptions, floor: float | Tensor, noise_std: float
) -> Tensor:
    """Which variances are above the floor; for capacity, which has none, above a fraction of the noise variance."""
    return variance > (ACTIVE_SHARE * noise_std**2 if options.statistic == "capacity" else floor)


def above_noise(variance: Tensor, noise_std: float) -> Tensor:
    """Which classes [G] have a mean raw variance [G, D] that the noise does not hide."""
    return variance.mean(1) > ACTIVE_SHARE * noise_std**2
