"""The penalty in the units of the theory: the capacity of the channel inside a class (ours)."""

from __future__ import annotations

from torch import Tensor

from attncem.base.types import SurrogateOutput
from attncem.config.options.surrogates import CapacityOptions
from attncem.training.surrogates import moments
from attncem.training.surrogates.base import Surrogate

ACTIVE_SHARE = 0.1
"""A dimension counts as active when its variance is above this fraction of the noise variance."""


def gaussian_capacity(variance: Tensor, noise_std: float) -> Tensor:
    """½ log(1 + variance/σ²): nats that a channel with noise σ carries about a Gaussian of that variance."""
    return 0.5 * (variance / noise_std**2).log1p()


class CapacityPenalty(Surrogate):
    """L_c = mean_d ½ log(1 + var_{c,d}/σ²) with the unbiased variance of raw z inside the class.

    No weights, no threshold. With the true variances of the distribution, D·L + H(y) bounds I(x; released) in nats; the
    batch value estimates it. ``per_dimension=False`` averages the dimensions before the log.
    """

    options_type = CapacityOptions
    options: CapacityOptions

    def _evaluate(self, z: Tensor, y: Tensor, noise: Tensor | None) -> SurrogateOutput:
        x = z.flatten(1)
        groups = self._groups(y, x.dtype)
        _, variance = moments.class_moments(x, groups)
        used = moments.unbiased(variance, groups)
        used = used if self.options.per_dimension else used.mean(1, keepdim=True)
        per_group = gaussian_capacity(used, self.noise_std).mean(1)
        keep = groups.counts >= 2
        above = (used.detach() > ACTIVE_SHARE * self.noise_std**2).to(x.dtype)
        extra = {
            "active": moments.mean_over_kept(above, keep),
            "class_samples": moments.mean_over_kept(groups.counts, keep),
        }
        return self._output(per_group, keep, groups, variance, extra=extra)
