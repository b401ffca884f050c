"""No penalty: the undefended model."""

from __future__ import annotations

from torch import Tensor

from attncem.base.types import SurrogateOutput
from attncem.config.options.surrogates import NoneOptions
from attncem.training.surrogates import moments
from attncem.training.surrogates.base import Surrogate


class NoPenalty(Surrogate):
    """Loss 0 on every batch; the monitors (intra_mse, skipped) are kept, so that runs can be compared."""

    options_type = NoneOptions

    def _evaluate(self, z: Tensor, y: Tensor, noise: Tensor | None) -> SurrogateOutput:
        x = z.flatten(1)
        groups = self._groups(y, x.dtype)
        _, variance = moments.class_moments(x.detach(), groups)
        nothing = x[:, 0].sum() * 0 + groups.counts * 0
        return self._output(nothing, groups.counts >= 2, groups, variance, extra={"active": nothing.sum()})
