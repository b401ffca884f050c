"""Distance correlation between images and features, as a penalty (NoPeek)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from attncem.config.penalties import DistanceCorrelationOptions
from attncem.penalties.base import Penalty


class DistanceCorrelation(Penalty):
    """dCor(x, z) of a batch: 0 for a constant z, 1 where distances in z are proportional to those in x."""

    options_type = DistanceCorrelationOptions

    def evaluate(self, x: Tensor, feature: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The correlation; statistics outside autocast."""
        with torch.autocast(x.device.type, enabled=False):
            value = distance_correlation(x.to(feature.dtype), feature)
        return value, {"distance_correlation": value}


def distance_correlation(x: Tensor, z: Tensor) -> Tensor:
    """√(dCov² / √(dVar²(x) dVar²(z))) of the batch (Székely et al., 2007: the biased form); 0 where either is constant.

    Distances are divided by their mean first, which changes no value but keeps small features from underflow.
    """
    a, b = centred_distances(x), centred_distances(z)
    covariance = (a * b).mean()
    variances = (a.square().mean() * b.square().mean()).clamp_min(torch.finfo(z.dtype).tiny)
    return safe_sqrt(covariance / variances.sqrt())


def centred_distances(x: Tensor) -> Tensor:
    """Distances between the samples [B, B], in units of their mean, rows and columns centred."""
    flat = x.flatten(1)
    distances = torch.cdist(flat, flat, compute_mode="donot_use_mm_for_euclid_dist")
    distances = distances / distances.detach().mean().clamp_min(torch.finfo(x.dtype).tiny)
    return distances - distances.mean(0, keepdim=True) - distances.mean(1, keepdim=True) + distances.mean()


def safe_sqrt(value: Tensor) -> Tensor:
    """Square root whose value and gradient are 0 where there is nothing above 0."""
    positive = value > 0
    return torch.where(positive, torch.where(positive, value, 1.0).sqrt(), 0.0)
