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

    No weights that learn, no threshold. With the true variances of the distribution, D·L + H(y) bounds I(x; released)
    in nats; the batch value estimates it. ``per_dimension=False`` averages the dimensions before the log.

    ``sample_weights=doubt`` computes the variance, and the shares of the classes, with weights that grow with the doubt
    of the client's head: the spread of what will be sent. ``worst`` takes the weights with the largest capacity. Both
    are mixed with equal weights, carry no gradient, and leave at least ``uniform_mix`` of the plain variance.
    """

    options_type = CapacityOptions
    options: CapacityOptions

    def _evaluate(self, z: Tensor, y: Tensor, noise: Tensor | None) -> SurrogateOutput:
        x = z.flatten(1)
        groups = self._groups(y, x.dtype)
        _, plain = moments.class_moments(x, groups)
        if self.options.sample_weights == "uniform":
            return self._of_variance(moments.unbiased(plain, groups), plain, groups)
        weights = moments.largest_capacity(x, self.noise_std, self.options.uniform_mix, groups)
        _, variance = moments.weighted_moments(x, weights, groups)
        return self._of_variance(moments.unbiased(variance, groups), plain, groups, weights)

    def _evaluate_weighted(self, z: Tensor, y: Tensor, noise: Tensor | None, doubts: Tensor | None) -> SurrogateOutput:
        assert doubts is not None
        x, share = z.flatten(1), self.options.uniform_mix
        groups = self._groups(y, x.dtype)
        _, plain = moments.class_moments(x.detach(), groups)
        weights = moments.doubtful_weights(doubts, share, groups)
        _, variance = moments.weighted_moments(x, weights, groups)
        sent = moments.shares_by_doubt(doubts, share, groups)
        return self._of_variance(moments.unbiased_for_weights(variance, weights), plain, sent, weights)

    def _explain(self, z: Tensor, y: Tensor) -> dict[str, Tensor]:
        if self.options.sample_weights == "uniform":
            return {}
        x = z.flatten(1)
        groups = moments.group_by_class(y, self.num_classes, x.dtype)
        return {"attention": moments.largest_capacity(x, self.noise_std, self.options.uniform_mix, groups).sum(1)}

    def _explain_weighted(self, z: Tensor, y: Tensor, doubts: Tensor | None) -> dict[str, Tensor]:
        groups = moments.group_by_class(y, self.num_classes, z.dtype)
        doubts = z.new_ones(len(z)) if doubts is None else doubts
        return {"attention": moments.doubtful_weights(doubts, self.options.uniform_mix, groups).sum(1)}

    def _of_variance(
        self, used: Tensor, plain: Tensor, groups: moments.Groups, weights: Tensor | None = None
    ) -> SurrogateOutput:
        """The capacity of the classes' variances; ``plain`` are the unweighted ones."""
        used = used if self.options.per_dimension else used.mean(1, keepdim=True)
        per_group = gaussian_capacity(used, self.noise_std).mean(1)
        keep = groups.counts >= 2
        above = (used.detach() > ACTIVE_SHARE * self.noise_std**2).to(used.dtype)
        extra = {
            "active": moments.mean_over_kept(above, keep),
            "class_samples": moments.mean_over_kept(groups.counts, keep),
        }
        if weights is not None:
            per_sample = (weights.square().sum(0) * groups.counts).clamp_min(1)
            extra["effective_samples"] = moments.mean_over_kept(1 / per_sample, keep)
        return self._output(per_group, keep, groups, plain, extra=extra)
