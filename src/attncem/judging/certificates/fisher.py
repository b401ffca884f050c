"""Bounds on the error from Fisher information: dFIL, for unbiased attackers, and van Trees' form for all attackers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from attncem.base.seeding import make_generator
from attncem.base.texts import written
from attncem.base.types import NotApplicable, RunError
from attncem.config.options.certificates import FisherOptions
from attncem.judging.certificates.images import Components, components_of
from attncem.judging.certificates.making import INVISIBLE, Numbers, checked
from attncem.judging.certificates.passage import BATCH, Noise, assumptions_of, enter, noise_of, releases_of
from attncem.judging.judges import Certificate
from attncem.models.channels import QuantiseChannel
from attncem.records.bounds import Bound
from attncem.records.statistics import bootstrap_mean, mean_limit

if TYPE_CHECKING:
    from attncem.judging.case import Case

KINKED = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.RReLU, nn.Threshold, nn.Hardtanh, nn.Hardsigmoid, nn.Hardswish),
    *(nn.Hardshrink, nn.Softshrink, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AdaptiveMaxPool2d),
)
"""Modules that are not differentiable everywhere; the inequalities require a derivative."""
LARGEST = 1.0
"""The largest error of an image in [0, 1]."""


class Fisher(Certificate):
    """η = tr(JᵀJ) · Fisher information of the noise / d, J the derivative of the noise's input by the pixels.

    Unbiased attackers: MSE ≥ 1/η. All attackers, with a prior of the images (van Trees; Gill and Levit 1995):
    MSE ≥ k²/d / (E tr(P F Pᵀ) + tr(P I_prior Pᵀ)), P the first k components, the largest over k.
    """

    options_type = FisherOptions
    options: FisherOptions

    def bound(self, case: Case, *, seed: int) -> Mapping[str, Bound]:
        """`dfil`, `mse_unbiased` and `mse_van_trees`."""
        noise, found = noise_of(case.model.channel), components_of(case)
        if any(isinstance(stage, QuantiseChannel) for stage in noise.before):
            raise NotApplicable(written("reason.rounded"))
        kinks = kinks_of(case.model.encoder, noise)
        assumed = [*assumptions_of(noise), "not_smooth" if kinks else "smooth"]
        sharp = self._sharpness(case, noise, found, seed).times(noise.fisher * releases_of(case, noise))
        pixels = case.x[0].numel()
        each = sharp.total / pixels
        self.images = {"dfil": each}
        made = {
            "dfil": _dfil(each, assumed),
            "mse_unbiased": _unbiased(each, ["unbiased", *assumed], proven=not kinks),
            "mse_van_trees": _van_trees(sharp, found, pixels, [*assumed, "prior_normal"]),
        }
        return {name: replace(bound, by=", ".join(kinks)) for name, bound in made.items()}

    def _sharpness(self, case: Case, noise: Noise, found: Components, seed: int) -> Sharpness:
        drawn = make_generator(case.x.device, seed, "probes")
        axes = found.axes[: self.options.components]
        parts = list[Sharpness]()
        for x in case.x[: self.options.images].split(BATCH):
            self.progress("fisher", len(parts) * BATCH, min(self.options.images, len(case.x)), {})
            parts.append(sharpness(case.model.encoder, noise, x, axes, self.options.probes, drawn))
        return Sharpness(*(np.concatenate(column) for column in zip(*((p.total, p.along) for p in parts), strict=True)))


@dataclass(frozen=True)
class Sharpness:
    """The trace tr(JᵀJ) of each image, [n], and its part along each axis, [n, k]."""

    total: Numbers
    along: Numbers

    def times(self, factor: float) -> Sharpness:
        """Both numbers scaled by a factor."""
        return Sharpness(factor * self.total, factor * self.along)


def sharpness(
    encoder: nn.Module, noise: Noise, x: Tensor, axes: Tensor, probes: int, generator: torch.Generator
) -> Sharpness:
    """tr(JᵀJ) = E‖Jᵀw‖² over random signs w (Hutchinson), or the sum over all features if they are few."""
    x = x.detach().clone().requires_grad_()
    with torch.enable_grad():
        features = enter(noise, encoder(x), x, generator).flatten(1)
    if not features.requires_grad:
        raise NotApplicable(written("reason.no_gradient"))
    size = features.shape[1]
    exact = size <= probes
    total = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    along = torch.zeros(len(x), len(axes), dtype=torch.float64, device=x.device)
    for number in range(size if exact else probes):
        direction = _direction(features, number if exact else None, generator)
        (slope,) = torch.autograd.grad(features, x, direction, retain_graph=True)
        flat = slope.flatten(1)
        total += flat.double().square().sum(1)
        along += (flat @ axes.T).double().square()
    count = 1 if exact else probes
    if not bool(total.isfinite().all() and features.isfinite().all()):
        raise RunError("features, or their derivatives by the pixels, are not finite: nothing can be bounded")
    return Sharpness((total / count).cpu().numpy(), (along / count).cpu().numpy())


def _direction(features: Tensor, place: int | None, generator: torch.Generator) -> Tensor:
    """The unit vector of one feature, or random signs of all features."""
    if place is not None:
        chosen = torch.zeros_like(features)
        chosen[:, place] = 1
        return chosen
    signs = torch.randint(0, 2, features.shape, generator=generator, device=features.device)
    return 2 * signs.to(features.dtype) - 1


def kinks_of(encoder: nn.Module, noise: Noise) -> list[str]:
    """What is not smooth between the pixels and the noise: kinds of modules, and stages of the channel."""
    found = {type(module).__name__ for module in encoder.modules() if isinstance(module, KINKED)}
    stages = {type(stage).__name__ for stage in (*noise.before, noise.stage) if not noise.is_smooth}
    return sorted(found | stages)


def _dfil(each: Numbers, assumed: list[str]) -> Bound:
    found = bootstrap_mean(each)
    return Bound(found.mean, "1/MSE", found.low, found.high, "estimate", assumed, limit=mean_limit(each))


def _unbiased(each: Numbers, assumed: list[str], *, proven: bool) -> Bound:
    """1/E η, which is at most E[1/η]: the mean of reciprocals of noisy numbers would be too optimistic."""
    found = bootstrap_mean(each)
    value, low, high, limit = (
        checked(LARGEST if eta * LARGEST <= 1 else 1 / eta)
        for eta in (found.mean, found.high, found.low, mean_limit(each))
    )
    made = Bound(value, "MSE", low, high, "bound" if proven else "estimate", assumed, "mse", "at_least", limit)
    return replace(made, vacuous=made.claim < INVISIBLE)


def _van_trees(sharp: Sharpness, found: Components, pixels: int, assumed: list[str]) -> Bound:
    """The largest bound over k; the prior is normal, which has the least information of all laws with its variances."""
    prior = (1 / found.variances[: sharp.along.shape[1]]).cumsum(0).cpu().numpy()
    counts = np.arange(1, len(prior) + 1)
    along = sharp.along.cumsum(1)
    best = int(np.argmax(counts**2 / (along.mean(0) + prior)))
    spread, information = bootstrap_mean(along[:, best]), along[:, best]

    def least(mean: float) -> float:
        return checked(counts[best] ** 2 / pixels / (mean + prior[best]))

    value, low, high = least(spread.mean), least(spread.high), least(spread.low)
    limit = least(mean_limit(information))
    made = Bound(value, "MSE", low, high, "estimate", assumed, "mse", "at_least", limit)
    return replace(made, vacuous=made.claim < INVISIBLE)
