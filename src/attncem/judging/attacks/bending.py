"""Bending a flow of images to releases: samples of p(x | release) by guidance, or a search for the flow's start.

Guidance: at each of several times t the flow gives the expected image x̂ behind its current point. Errors e of x̂ on the
attacker's images, with the changes f that they cause in the features, are an ensemble. The release corrects x̂ by

Cov(e, f) (Cov(f) + π S)⁻¹ (released − seen(x̂)),

the gain of a Kalman filter; seen and the variances S are those of `optimisation`. Gradient corrections may follow:
steps of Gauss and Newton, with the encoder's derivative in the place of f. x̂ and the release are disturbed by draws of
their own errors, so that the result is a sample, for a linear client and Gaussian errors an exact one. The next point
of the flow is that sample with fresh noise.

Search: the starting noise ε of the flow that minimises ½ Σ_d (seen_d(x(ε)) − released_d)² / s_d² + ½ π ‖ε‖².
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attncem.base.seeding import make_generator
from attncem.config.options.attacks import FlowPriorOptions
from attncem.judging.attacks.convergence import doubled
from attncem.judging.attacks.flow import STARTS
from attncem.judging.attacks.forecast import Seconds, eigenvectors
from attncem.judging.attacks.optimisation import View
from attncem.judging.attacks.seeing import mean_of
from attncem.models.flow import FIRST_TIME, FlowPrior
from attncem.records.findings import Finding, finding

_SOLVING = 8
"""Steps of conjugate gradients in each gradient correction."""
_WHITE = 0.1
"""Share of the errors' variance that a gradient correction takes as white: an ensemble spans too little."""
_FURTHEST = 5.0
"""Largest norm of a correction, in root mean squares of the errors' norm."""
_LR = 0.1
"""First learning rate of a search, in deviations of the starting noise; it decays to zero."""
_TINY = 1e-12
_BATCH = 250


@dataclass(frozen=True)
class Way:
    """The weight of the prior, and the number of gradient steps."""

    pull: float
    steps: int


class Client:
    """What the adversary expects to see of images, in units of the deviation of its noise."""

    def __init__(self, view: View, x: Tensor, released: Tensor) -> None:
        self._view, self._deviation = view, view.uncertainty(x, released).sqrt()

    def __call__(self, images: Tensor) -> Tensor:
        """The expected releases, [B, features]; gradients flow to the images."""
        seen = mean_of(self._view(images, self._view.generator("steps")))
        tied = 0 * images.flatten(1).sum(1, keepdim=True)  # an encoder may ignore its input: the gradient is then zero
        return self.scaled(seen) + tied

    def scaled(self, released: Tensor) -> Tensor:
        """Releases in the same units."""
        return (self._view.white(released.float()) / self._deviation).flatten(1)


class Bending(ABC):
    """Bends a flow to releases; the release selects the noise that it starts from."""

    def __init__(self, prior: FlowPrior, client: Client, options: FlowPriorOptions, seed: int) -> None:
        self.prior, self.client, self.options, self._seed = prior, client, options, seed

    @abstractmethod
    def ways(self) -> list[Way]:
        """The ways to try on held-out images."""

    @abstractmethod
    def draw(self, target: Tensor, first: Tensor, way: Way) -> Tensor:
        """Images for scaled releases and their marks, one for each row, [B, C, H, W]."""

    @abstractmethod
    def one(self, images: Tensor, target: Tensor, way: Way) -> Tensor:
        """One image for each scaled release from several, [S, B, …]."""

    def doubts(self, errors: dict[int, float]) -> list[Finding]:
        """Findings from the held-out error by number of steps."""
        return []

    def preparation(self, images: int) -> Seconds:
        """Time to measure on this number of images before the first release is read."""
        return Seconds()

    def noise(self, first: Tensor, size: int, *stream: str | int) -> Tensor:
        """Normal numbers, [B, size]: for each mark other ones."""
        draws = make_generator(first.device, self._seed, "bending", *stream)
        line = torch.randn(size + STARTS - 1, generator=draws, device=first.device)
        return line.unfold(0, size, 1)[first]

    def several(self, first: Tensor, size: int, *stream: str | int) -> Tensor:
        """The same for rows of several samples: sample after sample, each with its own numbers."""
        count = self.options.samples
        parts = first.view(count, -1)
        return torch.cat([self.noise(part, size, number, *stream) for number, part in enumerate(parts)])


class Ensemble:
    """Errors e of the flow's expected image at time t, and the changes f of scaled features that they cause."""

    def __init__(self, prior: FlowPrior, client: Client, x: Tensor, seen: Tensor, t: float, draws: torch.Generator):
        self.t = t
        noise = torch.randn(x.shape, generator=draws, device=x.device)
        points = t * prior.scaled(x) + (1 - t) * noise
        expected = torch.cat([prior.expected(part, t) for part in points.split(_BATCH)])
        root = math.sqrt(len(x))
        self.errors = (x - expected).flatten(1) / root
        self.changes = (seen - torch.cat([client(part) for part in expected.split(_BATCH)])) / root
        self._values, self._vectors = torch.linalg.eigh(self.changes @ self.changes.T)
        self._longest = _FURTHEST * float(self.errors.square().sum().sqrt())
        self._white = _WHITE * float(self.errors.square().sum()) / self.errors.shape[1]

    def gain(self, residual: Tensor, pull: float) -> Tensor:
        """The correction of images [B, pixels] by residuals of scaled features: Cov(e, f) (Cov(f) + π)⁻¹."""
        along = residual @ self.changes.T @ self._vectors
        return self.limited(along / (self._values.clamp_min(0) + pull) @ self._vectors.T @ self.errors)

    def limited(self, change: Tensor) -> Tensor:
        """Corrections with their norm limited, so that an odd release cannot throw an image far off."""
        length = change.square().sum(1, keepdim=True).sqrt().clamp_min(_TINY)
        return change * (self._longest / length).clamp_max(1)

    def covaried(self, images: Tensor, pull: float) -> Tensor:
        """Cov(e) / π times images [B, pixels]."""
        return ((1 - _WHITE) * images @ self.errors.T @ self.errors + self._white * images) / pull


class Guidance(Bending):
    """Samples of p(x | release); their mean is the one image."""

    def __init__(self, prior: FlowPrior, client: Client, options: FlowPriorOptions, seed: int, x: Tensor) -> None:
        super().__init__(prior, client, options, seed)
        times = torch.linspace(0, 1, options.times + 1)[:-1].clamp_min(FIRST_TIME).tolist()
        draws = make_generator(x.device, seed, "ensemble")
        with torch.no_grad():
            seen = torch.cat([client(part) for part in x.split(_BATCH)])
            self._ensembles = [Ensemble(prior, client, x, seen, t, draws) for t in times]

    def preparation(self, images: int) -> Seconds:
        """The decomposition of every ensemble, which takes the most."""
        return eigenvectors(images, self.prior.mean).times(len(self._ensembles))

    def ways(self) -> list[Way]:
        """Every weight with every number of gradient corrections."""
        return [Way(*pair) for pair in itertools.product(self.options.pulls, self.options.corrections)]

    def one(self, images: Tensor, target: Tensor, way: Way) -> Tensor:
        """Their mean."""
        return images.mean(0)

    def draw(self, target: Tensor, first: Tensor, way: Way) -> Tensor:
        """Samples; not limited to [0, 1]."""
        shape = (len(target), *self.prior.mean.shape)
        point, pixels = self.several(first, self.prior.mean.numel(), "start").view(shape), self.prior.mean.numel()
        seen = target + self.several(first, target.shape[1], "release")
        for ensemble, following in itertools.zip_longest(self._ensembles, self._ensembles[1:]):
            with torch.no_grad():
                expected = self.prior.expected(point, ensemble.t).flatten(1)
                mixed = self.several(first, len(ensemble.errors), "error", f"{ensemble.t:g}") / math.sqrt(way.pull)
                residual = seen - self.client(expected.view(shape)) - mixed @ ensemble.changes
                centre = expected + mixed @ ensemble.errors
                images = centre + ensemble.gain(residual, way.pull)
            for _ in range(way.steps):
                images = self._corrected(images.view(shape), centre, seen, ensemble, way.pull)
            if following is not None:
                fresh = self.several(first, pixels, "point", f"{following.t:g}").view(shape)
                point = (1 - following.t) * fresh + following.t * self.prior.scaled(images.view(shape))
        return images.view(shape)

    def _corrected(self, images: Tensor, centre: Tensor, seen: Tensor, ensemble: Ensemble, pull: float) -> Tensor:
        """One step of Gauss and Newton for ½ ‖seen − client(x)‖² + ½ π (x − centre)ᵀ Cov(e)⁻¹ (x − centre).

        With the client's derivative J at the image inside [0, 1] that is nearest, x = centre + C Jᵀ a with C = Cov(e) /
        π, and (J C Jᵀ + 1) a is what J leaves unexplained.
        """
        with torch.enable_grad():
            at = images.clamp(0, 1).requires_grad_()
            there = self.client(at)
            dummy = torch.zeros_like(there, requires_grad=True)
            (pulled,) = torch.autograd.grad(there, at, dummy, create_graph=True)

        def forward(change: Tensor) -> Tensor:
            return torch.autograd.grad(pulled, dummy, change.view_as(pulled), retain_graph=True)[0]

        def backward(weights: Tensor) -> Tensor:
            (gradient,) = torch.autograd.grad(there, at, weights, retain_graph=True)
            return ensemble.covaried(gradient.flatten(1), pull)

        left = (seen - there).detach() - forward(centre - at.detach().flatten(1))
        return centre + ensemble.limited(backward(_solved(lambda weights: forward(backward(weights)) + weights, left)))


def _solved(matrix: Callable[[Tensor], Tensor], right: Tensor) -> Tensor:
    """Conjugate gradients for each row: a with matrix(a) ≈ right, for a symmetric positive matrix."""
    answer, left = torch.zeros_like(right), right
    direction, power = left, left.square().sum(1, keepdim=True)
    for _ in range(_SOLVING):
        image = matrix(direction)
        step = power / (direction * image).sum(1, keepdim=True).clamp_min(_TINY)
        answer, left = answer + step * direction, left - step * image
        before, power = power, left.square().sum(1, keepdim=True)
        direction = left + power / before.clamp_min(_TINY) * direction
    return answer


class Search(Bending):
    """Searches for the starting noise, one for each sample; the best is the one image."""

    def ways(self) -> list[Way]:
        """Doubled numbers of steps with every weight."""
        steps = doubled(self.options.steps, self.options.max_steps)
        return [Way(pull, count) for count in steps for pull in self.options.pulls]

    def draw(self, target: Tensor, first: Tensor, way: Way) -> Tensor:
        """The images where the searches end."""
        shape = (len(target), *self.prior.mean.shape)
        start = self.several(first, self.prior.mean.numel(), "start").view(shape).clone().requires_grad_()
        adam = torch.optim.Adam([start])
        for step in range(way.steps):
            adam.param_groups[0]["lr"] = _LR * (1 - step / way.steps)
            with torch.enable_grad():
                misfit = self.misfit(self.prior.drawn(start, self.options.times), target).sum()
                loss = misfit + way.pull * start.square().sum() / 2
                (start.grad,) = torch.autograd.grad(loss, start)
            adam.step()
        with torch.no_grad():
            return self.prior.drawn(start, self.options.times)

    def misfit(self, images: Tensor, target: Tensor) -> Tensor:
        """Half the squared residual in units of the noise, [B]."""
        return (self.client(images) - target).square().sum(1) / 2

    @torch.no_grad()
    def one(self, images: Tensor, target: Tensor, way: Way) -> Tensor:
        """The image that explains its release best."""
        misfits = torch.stack([self.misfit(each.clamp(0, 1), target) for each in images])
        return images[misfits.argmin(0), torch.arange(len(target), device=target.device)]

    def doubts(self, errors: dict[int, float]) -> list[Finding]:
        """A finding if the last doubling of the steps gains, or none was tried."""
        *_, last = errors
        reached = len(errors) > 1 and errors[last] > (1 - self.options.tolerance) * errors[last // 2]
        return [] if reached else [finding("prior_not_converged", steps=last)]
