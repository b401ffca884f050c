"""Deep image prior: an untrained convolutional network, one for each image, is fitted to explain the release.

x̂ = g_θ(u) with θ = argmin ½ mean_d (seen_d(g_θ(u)) − released_d)² / s_d², by Adam from random θ, u fixed. θ contains
nothing of other images: the only prior is that g is convolutional and goes from coarse to fine. The descent must stop
before the image follows the noise: an image is frozen once its misfit has fallen to that of the noise alone. s_d is as
in `optimisation`; without noise no image is frozen. The number of steps is chosen on the attacker's images.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from attncem.base.seeding import derive_seed, make_generator
from attncem.config.options.attacks import ImagePriorOptions
from attncem.judging.attacks.base import Attack, OwnImages, Standardiser, divide
from attncem.judging.attacks.convergence import doubled
from attncem.judging.attacks.optimisation import BLUR, View
from attncem.judging.oracle import Oracle
from attncem.records.audit import BudgetPoint, Verdict
from attncem.records.findings import finding
from attncem.records.metrics import mse

_TOGETHER = 25
"""Images in one descent. Smaller batches are filled up, so that no result depends on the number of images."""
_HELD = 0.2
"""Largest share of the attacker's images that is held out."""
_TELL_EVERY = 20
Told = Callable[[int], None]


class ImagePriorAttack(Attack):
    """Fits a network to each release; `steps` is chosen on the attacker's images."""

    options_type = ImagePriorOptions
    options: ImagePriorOptions
    needs = frozenset({"images", "queries", "gradient"})
    must_beat = ("mean_image",)
    steps: int

    def fit(self, oracle: Oracle, *, seed: int) -> None:
        """Measure the noise, and choose the number of steps on the attacker's images."""
        own, options = OwnImages(oracle), self.options
        fraction = min(_HELD, options.tuning_images / len(own.x))
        known, held = divide(len(own.x), fraction, derive_seed(seed, "image prior split"), own.x.device)
        released = own.release_all(make_generator(own.x.device, seed, "image prior noise"))
        self._view = View(oracle, options.draws, seed)
        self._uncertainty = self._view.uncertainty(own.x[known], released[known])
        blur = (BLUR * Standardiser.of(released[known]).std).square()
        self._enough = (1 - blur / self._uncertainty).mean()
        self._net = Net(oracle.image_shape, options.width, oracle.device, seed)
        self._choose(own.x[held], released[held])

    def reconstruct(self, released: Tensor) -> Tensor:
        """The network's image of each release."""
        parts = released.split(_TOGETHER)
        found = (self._descend(part, [self.steps], self._teller(i, len(parts))) for i, part in enumerate(parts))
        return torch.cat([images for (images,) in found])

    def _choose(self, x: Tensor, released: Tensor) -> None:
        """Try doubled numbers of steps along one descent, and keep the number with the lowest MSE."""
        budgets = doubled(self.options.steps, self.options.max_steps)
        parts = [self._descend(part, budgets, lambda _: None) for part in released.split(_TOGETHER)]
        errors = [float(mse(torch.cat(images), x).mean()) for images in zip(*parts, strict=True)]
        self.steps = budgets[min(range(len(budgets)), key=errors.__getitem__)]
        gain = None if len(errors) < 2 else 1 - errors[-1] / errors[-2]
        reliable = gain is not None and gain < self.options.tolerance
        curve = [BudgetPoint(*point) for point in zip(budgets, errors, strict=True)]
        self.verdict = Verdict(reliable, gain, curve, chosen={"steps": self.steps})
        self.findings = [] if reliable else [finding("prior_not_converged", steps=budgets[-1])]

    def _descend(self, released: Tensor, budgets: list[int], told: Told) -> list[Tensor]:
        """The images after each of these numbers of steps."""
        count = len(released)
        target = released[torch.arange(_TOGETHER, device=released.device) % count].float()
        weights = [weight.clone().requires_grad_() for weight in self._net.weights]
        adam, noise = torch.optim.Adam(weights, self.options.lr), self._view.generator("steps")
        kept, found = self._net(weights).detach(), list[Tensor]()
        running = torch.ones(_TOGETHER, dtype=torch.bool, device=released.device)
        for step in range(1, budgets[-1] + 1):
            with torch.enable_grad():
                images = self._net(weights)
                misfit = self._misfit(images, target, noise)
                gradients = torch.autograd.grad(misfit.sum(), weights)
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.grad = gradient
            adam.step()
            kept = torch.where(running[:, None, None, None], images.detach(), kept)
            running = running & (misfit.detach() > self._enough)
            told(step)
            if step in budgets:
                found.append(kept[:count])
        return found

    def _misfit(self, images: Tensor, target: Tensor, noise: torch.Generator) -> Tensor:
        """Mean squared residual in units of the noise variance, [B]."""
        off = [(seen - target).square() / self._uncertainty for seen in self._view(images, noise)]
        tied = 0 * images.flatten(1).sum(1)  # an encoder may ignore its input: the gradient is then zero
        return torch.stack([each.flatten(1).mean(1) for each in off]).mean(0) + tied

    def _teller(self, part: int, parts: int) -> Told:
        def told(step: int) -> None:
            if step % _TELL_EVERY == 0:
                self.progress("image prior", part * self.steps + step, parts * self.steps, {})

        return told


class Net:
    """Untrained networks, from coarse to fine, in parallel as grouped convolutions; all start with equal weights."""

    def __init__(self, image_shape: tuple[int, ...], width: int, device: torch.device, seed: int) -> None:
        channels, height, w = image_shape
        self._sizes = [(-(-height // part), -(-w // part)) for part in (4, 2, 1)]
        draws = make_generator(device, seed, "image prior")
        self._input = torch.randn(1, width, *self._sizes[0], generator=draws, device=device).repeat(1, _TOGETHER, 1, 1)
        self._width, self._channels = width, channels
        sides = [(width, width, 3)] * 4 + [(channels, width, 1)]
        self.weights = [
            (torch.randn(out, into, k, k, generator=draws, device=device) / math.sqrt(into * k * k)).repeat(
                _TOGETHER, 1, 1, 1
            )
            for out, into, k in sides
        ]

    def __call__(self, weights: list[Tensor]) -> Tensor:
        """One image of each network, in (0, 1)."""
        z = self._input
        for number, weight in enumerate(weights[:-1]):
            z = F.conv2d(z, weight, padding=1, groups=_TOGETHER)
            z = F.leaky_relu(F.group_norm(z, _TOGETHER * math.gcd(self._width, 4)), 0.1)
            if number < len(self._sizes) - 1:
                z = F.interpolate(z, size=self._sizes[number + 1], mode="bilinear", align_corners=False)
        images = torch.sigmoid(F.conv2d(z, weights[-1], groups=_TOGETHER))
        return images.view(_TOGETHER, self._channels, *self._sizes[-1])
