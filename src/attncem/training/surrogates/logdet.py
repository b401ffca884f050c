"""Capacity of the channel inside a class with all covariances: the log-determinant (ours)."""

from __future__ import annotations

import torch
from torch import Tensor

from attncem.base.types import SurrogateOutput
from attncem.config.options.surrogates import LogDetOptions
from attncem.training.surrogates import moments
from attncem.training.surrogates.base import Surrogate
from attncem.training.surrogates.capacity import ACTIVE_SHARE
from attncem.training.surrogates.moments import Groups


class LogDetPenalty(Surrogate):
    """L_c = ½ logdet(I + Σ_c/σ²) / D with the unbiased covariance of raw z inside the class.

    By the batch Gram matrix: logdet(I_D + XᵀX/nσ²) = logdet(I_m + XXᵀ/nσ²) for the m centred samples X of a class, n =
    m − 1. It is at most ``capacity``, which ignores the covariances, and far too low when a class has fewer samples
    than dimensions: it sees only m − 1 directions.
    """

    options_type = LogDetOptions
    options: LogDetOptions

    def _evaluate(self, z: Tensor, y: Tensor, noise: Tensor | None) -> SurrogateOutput:
        x = z.flatten(1)
        groups = self._groups(y, x.dtype)
        per_group = class_logdets(x, groups, self.noise_std, correction=1) / (2 * self.num_features)
        keep = groups.counts >= 2
        _, variance = moments.class_moments(x.detach(), groups)
        above = (variance > ACTIVE_SHARE * self.noise_std**2).to(x.dtype)
        extra = {
            "active": moments.mean_over_kept(above, keep),
            "class_samples": moments.mean_over_kept(groups.counts, keep),
        }
        return self._output(per_group, keep, groups, variance, extra=extra)


def class_logdets(x: Tensor, groups: Groups, noise_std: float, *, correction: int = 0) -> Tensor:
    """The value logdet(I + Σ_c/σ²) of each group, [G], from one factorisation; nan where it fails.

    ``correction`` is that of torch.cov: 1 makes Σ_c unbiased. The [B, B] Gram matrix, restricted to pairs of one class,
    is block diagonal up to the order of the samples, so the rows of its Cholesky factor that belong to a class are the
    factor of that class's block.
    """
    # In float64: I + XXᵀ/nσ² has an eigenvalue 1 in every class, lost in float32 once the others pass 10⁷.
    exact = x.double()
    one_hot = groups.one_hot.double()
    counts = groups.counts.double().clamp_min(1)
    mean = (one_hot / counts).T @ exact
    # A sample without a class is a zero row: 1 on the diagonal, log 0.
    scale = (one_hot / (counts - correction).clamp_min(1).sqrt()).sum(1, keepdim=True) / noise_std
    scaled = (exact - one_hot @ mean) * scale
    same_class = one_hot @ one_hot.T
    matrix = torch.eye(len(x), dtype=scaled.dtype, device=x.device) + (scaled @ scaled.T) * same_class
    factor, failed = torch.linalg.cholesky_ex(matrix)
    log_diagonal = torch.where(failed == 0, 2 * factor.diagonal().log(), torch.nan)
    return (one_hot.T @ log_diagonal).to(x.dtype)
