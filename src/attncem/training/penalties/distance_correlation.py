"""Distance correlation between images and features, as a penalty (NoPeek)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from attncem.config.options.penalties import DistanceCorrelationOptions
from attncem.training.penalties.base import Penalty


class DistanceCorrelation(Penalty):
    """dCor(x, z) of a batch: 0 for a constant z, 1 if distances in z are proportional to those in x."""

    options_type = DistanceCorrelationOptions
    options: DistanceCorrelationOptions

    def evaluate(self, x: Tensor, feature: Tensor, y: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The correlation; statistics outside autocast."""
        measure = distance_correlation if self.options.estimate == "biased" else corrected_distance_correlation
        with torch.autocast(x.device.type, enabled=False):
            value = measure(x.to(feature.dtype), feature)
        return value.relu(), {"distance_correlation": value}


def distance_correlation(x: Tensor, z: Tensor) -> Tensor:
    """√(dCov² / √(dVar²(x) dVar²(z))) of the batch (Székely et al., 2007), biased; 0 where x or z is constant."""
    return safe_sqrt(_correlation(*(_centred(distances(part)) for part in (x, z))))


def corrected_distance_correlation(x: Tensor, z: Tensor) -> Tensor:
    """The unbiased estimate of dCor² (Székely and Rizzo, 2013), from −1 to 1; needs at least 4 samples."""
    return _correlation(*(_centred_without_bias(distances(part)) for part in (x, z)))


def distances(x: Tensor) -> Tensor:
    """Distances between the samples [B, B], in units of their mean: changes no correlation, avoids underflow."""
    flat = x.flatten(1)
    found = torch.cdist(flat, flat, compute_mode="donot_use_mm_for_euclid_dist")
    return found / found.detach().mean().clamp_min(torch.finfo(x.dtype).tiny)


def _centred(d: Tensor) -> Tensor:
    return d - d.mean(0, keepdim=True) - d.mean(1, keepdim=True) + d.mean()


def _centred_without_bias(d: Tensor) -> Tensor:
    """Sums divided by n − 2 and (n − 1)(n − 2); the diagonal does not count."""
    n = len(d)
    centred = d - (d.sum(0, keepdim=True) + d.sum(1, keepdim=True)) / (n - 2) + d.sum() / ((n - 1) * (n - 2))
    return centred * (1 - torch.eye(n, dtype=d.dtype, device=d.device))


def _correlation(a: Tensor, b: Tensor) -> Tensor:
    variances = (a.square().mean() * b.square().mean()).clamp_min(torch.finfo(a.dtype).tiny)
    return (a * b).mean() / variances.sqrt()


def safe_sqrt(value: Tensor) -> Tensor:
    """Square root with value and gradient 0 for inputs that are not positive."""
    positive = value > 0
    return torch.where(positive, torch.where(positive, value, 1.0).sqrt(), 0.0)
