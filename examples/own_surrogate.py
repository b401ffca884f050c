"""A plugin: a surrogate of your own, the standard deviation inside a class in units of the noise (docs/plugins.md).

attncem train --plugin examples/own_surrogate.py --config demo surrogate.name=standard_deviation --out run
"""

from typing import Literal

from attncem.plugins import Surrogate, SurrogateOptions, moments, register


class StandardDeviationOptions(SurrogateOptions):
    """The standard deviation inside a class, in units of the noise."""

    name: Literal["standard_deviation"] = "standard_deviation"

    def relative_floor_key(self):
        """Name the option that a channel without noise contradicts."""
        return "surrogate.name=standard_deviation"


@register("surrogate", StandardDeviationOptions)
class StandardDeviation(Surrogate):
    """L_c = mean_d log(1 + s_{c,d} / σ); no weights of its own."""

    def _evaluate(self, z, y, noise):
        x = z.flatten(1)
        groups = moments.group_by_class(y, self.num_classes, x.dtype)
        _, variance = moments.class_moments(x, groups)
        deviation = variance.clamp_min(1e-12).sqrt() / self.noise_std  # the gradient of a root is infinite at 0
        keep = groups.counts >= 2
        active = moments.mean_over_kept((deviation.detach() > 1).to(x.dtype), keep)
        return self._output(deviation.log1p().mean(1), keep, groups, variance, extra={"active": active})
