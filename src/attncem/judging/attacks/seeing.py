"""Sight: what an adversary sees of images, one or several releases of each, of the same or nearly the same pixels."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat

import torch
from torch import Tensor, nn

from attncem.config.threats import ThreatModel
from attncem.models.channels import (
    Channel,
    ChannelChain,
    DropoutChannel,
    GaussianChannel,
    LaplaceChannel,
    Secrets,
    Source,
)
from attncem.models.split import SplitModel

Combine = Callable[[Iterable[Tensor]], Tensor]
"""Combines several releases of the same inputs into one."""


def mean_of(releases: Iterable[Tensor]) -> Tensor:
    """The mean of a stream of releases; a single release stays unchanged."""
    others = iter(releases)
    total, count = next(others), 1
    for released in others:
        total, count = total + released, count + 1
    return total if count == 1 else total / count


class Sight:
    """Draws as many releases of each image as the threat model says, one after the other, and combines them.

    Two short cuts keep the distribution. Releases that repeat, as with keyed noise, are drawn once. The mean of k
    releases through a channel that draws nothing before its last stage is drawn at once where its law is known: fresh
    Gaussian noise has σ/√k, Laplace noise is the difference of two gamma draws, a mean mask is binomial.
    """

    def __init__(self, model: SplitModel, threat: ThreatModel, combine: Combine = mean_of) -> None:
        self._model, self._threat, self._combine = model, threat, combine
        self._repeats = bool(getattr(model.channel, "repeats", False))
        self._quiet = quieter(model.channel, threat.releases_per_input) if combine is mean_of else None

    @torch.no_grad()
    def __call__(self, x: Tensor, noise: torch.Generator, z: Tensor | None = None) -> Tensor:
        """What the adversary sees of a batch of images; ``z``: their clean features, if already computed."""
        if self._threat.jitter:
            return self._combine(self._of_moved(x, noise))
        z = self._model.encode(x) if z is None else z
        if self._repeats:
            return self.repeated(self._model.transmit(z, x, noise))
        if self._quiet is not None:
            averaged: Tensor = self._quiet(z, x=x, generator=noise)
            return averaged
        return self._combine(self._model.transmit(z, x, noise) for _ in range(self._threat.releases_per_input))

    def repeated(self, released: Tensor) -> Tensor:
        """The combination of several releases that all equal `released`."""
        if self._combine is mean_of:
            return released
        return self._combine(repeat(released, self._threat.releases_per_input))

    def _of_moved(self, x: Tensor, noise: torch.Generator) -> Iterator[Tensor]:
        for _ in range(self._threat.releases_per_input):
            moved = jittered(x, self._threat.jitter, noise)
            yield self._model.transmit(self._model.encode(moved), moved, noise)


def jittered(x: Tensor, levels: int, noise: torch.Generator) -> Tensor:
    """Images with every pixel shifted by a whole number of grey levels, uniform in ±levels, clamped to [0, 1]."""
    off = torch.randint(-levels, levels + 1, x.shape, generator=noise, device=x.device)
    return (x + off / 255).clamp(0, 1)


def quieter(channel: nn.Module, count: int) -> Channel | None:
    """A channel whose one release is distributed like the mean of `count`; None: all releases must be drawn."""
    if count == 1 or not isinstance(channel, Channel):
        return None
    *before, last = copy.deepcopy(channel).single_stages()
    if last.repeats or not all(stage.repeats for stage in before):
        return None
    mean = _mean_of_draws(last, count)
    return mean if mean is None or not before else ChannelChain([*before, mean])


def _mean_of_draws(stage: Channel, count: int) -> Channel | None:
    """The mean of several draws of one stage, as a channel that draws once; None where no such law is known."""
    if isinstance(stage, GaussianChannel):
        stage.noise_std /= count**0.5
        return stage
    if type(stage) is LaplaceChannel:
        return MeanOfLaplace(stage.noise_std / 2**0.5, count)
    if type(stage) is DropoutChannel:
        return MeanOfDropout(stage.options.rate, count, rescaled=stage.options.rescale)
    return None


class MeanOfLaplace(Channel):
    """z plus the mean of `count` Laplace draws: the difference of two gamma draws, each a sum of exponentials."""

    def __init__(self, scale: float, count: int) -> None:
        super().__init__()
        self.scale, self.count = scale, count
        self.noise_std = scale * (2 / count) ** 0.5

    def forward(self, z: Tensor, *, x: Tensor | None = None, generator: Source = None) -> Tensor:
        """Release z with the mean of the noises."""
        assert not isinstance(generator, Secrets)
        shape = torch.full_like(z, self.count, dtype=torch.float32)
        one, other = (torch._standard_gamma(shape, generator=generator) for _ in range(2))
        return z + (self.scale / self.count * (one - other)).to(z.dtype)


class MeanOfDropout(Channel):
    """z times the part of `count` masks that keep each feature: a binomial draw."""

    def __init__(self, rate: float, count: int, *, rescaled: bool) -> None:
        super().__init__()
        self.rate, self.count = rate, count
        self.each = 1 / count / (1 - rate if rescaled else 1)

    def forward(self, z: Tensor, *, x: Tensor | None = None, generator: Source = None) -> Tensor:
        """Release z with the mean of the masks."""
        assert not isinstance(generator, Secrets)
        tries = torch.full_like(z, self.count, dtype=torch.float32)
        kept = torch.binomial(tries, torch.full_like(tries, 1 - self.rate), generator=generator)
        return z * (self.each * kept).to(z.dtype)
