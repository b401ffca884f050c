"""Channels: what the client does to z before it leaves. One object serves training, accuracy, attack and server.

A channel works at inference as in training, with one difference: in training mode its draw is always fresh (a
network trained on repeated noise would learn the noise), in evaluation mode `noise: keyed` derives it from a key
and the input, so that asking again about the same input tells nothing new. docs/channels.md compares them.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from attncem.config.channels import (
    ChannelOptions,
    DropoutOptions,
    GaussianOptions,
    IdentityOptions,
    LaplaceOptions,
    LocalDPOptions,
    QuantiseOptions,
    RandomOptions,
    TopKOptions,
)

Fill = Callable[[Tensor, torch.Generator | None], object]
"""Fills a float32 tensor with random numbers, in place."""


class Channel(nn.Module):
    """z [B, …] → released, of the same shape and type. `x` are the inputs behind z (needed for keyed noise)."""

    options_type: ClassVar[type[ChannelOptions]]
    takes_context: ClassVar[bool] = True
    """Whether `forward` takes x and a generator beside z; a foreign module does not."""
    options: Any
    noise_std: float = 0.0
    """Standard deviation of the noise that is added to each feature."""
    bits_per_feature: int | None = None
    """Bits that one release holds of each feature at most; None: no such bound."""
    reads_input: bool = False
    """Whether a release depends on x otherwise than through z, as keyed noise does."""

    def __init__(self, options: ChannelOptions | None = None, *, key: bytes = b"") -> None:
        super().__init__()
        self.options = options
        self._key = key
        if options is not None:
            self.noise_std = options.added_noise_std

    def forward(self, z: Tensor, *, x: Tensor | None = None, generator: torch.Generator | None = None) -> Tensor:
        """Release z."""
        raise NotImplementedError


class IdentityChannel(Channel):
    """Releases z as it is, in training and at inference; gradient 1. Nothing to average: one release says all."""

    options_type = IdentityOptions

    def forward(self, z: Tensor, *, x: Tensor | None = None, generator: torch.Generator | None = None) -> Tensor:
        """Release z unchanged."""
        return z


class RandomChannel(Channel):
    """A channel that draws numbers: fresh ones, or at inference with `noise: keyed` those of the input."""

    options: RandomOptions

    def __init__(self, options: RandomOptions, *, key: bytes = b"") -> None:
        super().__init__(options, key=key)
        self.reads_input = options.noise == "keyed"
        if self.reads_input and not key:
            raise ValueError("noise=keyed needs a key")

    def draw(self, fill: Fill, z: Tensor, x: Tensor | None, generator: torch.Generator | None) -> Tensor:
        """Random float32 numbers shaped as z."""
        if self.reads_input and not self.training:
            if x is None:
                raise ValueError("keyed noise needs the inputs x beside z")
            return keyed_draw(self._key, x, z, fill)
        numbers = torch.empty_like(z, dtype=torch.float32)
        fill(numbers, generator)
        return numbers


class GaussianChannel(RandomChannel):
    """released = z + σ N(0, I), in training and at inference.

    Gradient 1. The mean of k fresh releases has σ/√k; keyed, k releases of one input tell what one tells.
    """

    options_type: ClassVar[type[ChannelOptions]] = GaussianOptions

    def forward(self, z: Tensor, *, x: Tensor | None = None, generator: torch.Generator | None = None) -> Tensor:
        """Release z with noise."""
        if self.noise_std == 0:
            return z
        return z + self.noise_std * self.draw(fill_normal, z, x, generator).to(z.dtype)


class LaplaceChannel(RandomChannel):
    """released = z + Laplace(0, b), b = noise_std/√2, in training and at inference.

    Gradient 1. Of k fresh releases the mean has noise_std/√k and the median, the better guess, about b/√k;
    keyed, k releases of one input tell what one tells.
    """

    options_type = LaplaceOptions

    def forward(self, z: Tensor, *, x: Tensor | None = None, generator: torch.Generator | None = None) -> Tensor:
        """Release z with noise."""
        if self.noise_std == 0:
            return z
        return z + self.noise_std / 2**0.5 * self.draw(fill_laplace, z, x, generator).to(z.dtype)


class LocalDPChannel(GaussianChannel):
    """released = z min(1, C/‖z‖) + σ N(0, I), ‖·‖ over one sample, in training and at inference.

    σ is the smallest for (ε, δ) at sensitivity 2C (analytic Gaussian mechanism). Gradient: of the clipping. k fresh
    releases spend what one with σ/√k does; keyed, k releases of one input tell what one tells, but the (ε, δ)
    then holds only against those without the key.
    """

    options_type = LocalDPOptions
    options: LocalDPOptions

    def forward(self, z: Tensor, *, x: Tensor | None = None, generator: torch.Generator | None = None) -> Tensor:
        """Release z clipped and with noise; in at least float32, so that rounding comes after the noise."""
        wide = z.to(torch.promote_types(z.dtype, torch.float32))
        return super().forward(clip_norm(wide, self.options.clip), x=x, generator=generator).to(z.dtype)


class DropoutChannel(RandomChannel):
    """released = z · mask, mask 0 with probability `rate`, else 1 (`rescale`: 1/(1 − rate)); at inference too.

    Gradient: the mask. k fresh releases hide a feature in all of them with probability rate^k only, and show z itself
    elsewhere; keyed, the mask of an input stays the same.
    """

    options_type = DropoutOptions
    options: DropoutOptions

    def forward(self, z: Tensor, *, x: Tensor | None = None, generator: torch.Generator | None = None) -> Tensor:
        """Release z with zeros in it."""
        if self.options.rate == 0:
            return z
        kept = z.masked_fill(self.draw(fill_uniform, z, x, generator) < self.options.rate, 0)
        return kept / (1 - self.options.rate) if self.options.rescale else kept


class TopKChannel(Channel):
    """released = z where it is among the round(keep · m) largest of the sample's m values, else 0; no randomness.

    The same in training and at inference; of equal values the first are kept. Gradient 1 where kept, else 0. Nothing to
    average: after random channels k releases are averaged as without it, except where values change places.
    """

    options_type = TopKOptions
    options: TopKOptions

    def forward(self, z: Tensor, *, x: Tensor | None = None, generator: torch.Generator | None = None) -> Tensor:
        """Release the largest values of each sample."""
        flat = z.flatten(1)
        count = max(1, round(self.options.keep * flat.shape[1]))
        largest = flat.detach().argsort(dim=1, descending=True, stable=True)[:, :count]
        dropped = torch.ones_like(flat, dtype=torch.bool).scatter(1, largest, False)
        return flat.masked_fill(dropped, 0).view_as(z)


class QuantiseChannel(Channel):
    """released = low + s round((clamp(z, low, high) − low)/s), s = (high − low)/(2^bits − 1); no randomness.

    The same in training and at inference. Gradient straight through: 1 inside the range, 0 outside. Nothing to average,
    and one release holds at most bits · m · ln 2 nats; after fresh noise, k releases up to k times that.
    """

    options_type = QuantiseOptions
    options: QuantiseOptions

    def __init__(self, options: QuantiseOptions, *, key: bytes = b"") -> None:
        super().__init__(options, key=key)
        self.bits_per_feature = options.bits

    def forward(self, z: Tensor, *, x: Tensor | None = None, generator: torch.Generator | None = None) -> Tensor:
        """Release the nearest levels."""
        low, high = self.options.low, self.options.high
        step = (high - low) / (2**self.options.bits - 1)
        inside = z.clamp(low, high)
        wide = inside.detach().to(torch.promote_types(z.dtype, torch.float32))
        levels = low + step * ((wide - low) / step).round()
        released: Tensor = levels.to(z.dtype) + (inside - inside.detach())
        return released


class ChannelChain(Channel):
    """Several channels in their given order, each with a draw of its own."""

    def __init__(self, stages: Sequence[Channel]) -> None:
        super().__init__()
        self.stages = nn.ModuleList(stages)
        self.noise_std = sum(stage.noise_std**2 for stage in stages) ** 0.5
        self.reads_input = any(stage.reads_input for stage in stages)
        self.bits_per_feature = _bits_of(stages)

    def forward(self, z: Tensor, *, x: Tensor | None = None, generator: torch.Generator | None = None) -> Tensor:
        """Release z through every stage."""
        for stage in self.stages:
            z = stage(z, x=x, generator=generator)
        return z


def _bits_of(stages: Sequence[Channel]) -> int | None:
    """The fewest bits of any stage; what follows cannot add information, unless it reads the input itself."""
    bits: int | None = None
    for stage in stages:
        known = [given for given in (None if stage.reads_input else bits, stage.bits_per_feature) if given is not None]
        bits = min(known, default=None)
    return bits


CHANNELS: dict[str, type[Channel]] = {
    "gaussian": GaussianChannel,
    "identity": IdentityChannel,
    "laplace": LaplaceChannel,
    "local_dp": LocalDPChannel,
    "dropout": DropoutChannel,
    "top_k": TopKChannel,
    "quantise": QuantiseChannel,
}
"""Channels by name."""


def build_channel(options: Sequence[ChannelOptions], *, key: bytes) -> Channel:
    """The channel that a list of options describes; each stage has a key of its own."""
    stages = [
        CHANNELS[stage.name](stage, key=hashlib.sha256(key + bytes([position])).digest())
        for position, stage in enumerate(options)
    ]
    return stages[0] if len(stages) == 1 else ChannelChain(stages)


def clip_norm(z: Tensor, limit: float) -> Tensor:
    """Each sample scaled down to the L2 norm `limit` where it is longer."""
    norm = torch.linalg.vector_norm(z.flatten(1), dim=1)
    factor: Tensor = limit / norm.clamp_min(limit)
    return z * factor.view(-1, *[1] * (z.ndim - 1))


def fill_normal(numbers: Tensor, generator: torch.Generator | None) -> None:
    """Standard normal."""
    numbers.normal_(generator=generator)


def fill_laplace(numbers: Tensor, generator: torch.Generator | None) -> None:
    """Laplace of scale 1: the difference of two exponentials."""
    other = torch.empty_like(numbers).exponential_(generator=generator)
    numbers.exponential_(generator=generator).sub_(other)


def fill_uniform(numbers: Tensor, generator: torch.Generator | None) -> None:
    """Uniform in [0, 1)."""
    numbers.uniform_(generator=generator)


def keyed_normal(key: bytes, x: Tensor, like: Tensor) -> Tensor:
    """Standard normal numbers shaped and typed as `like`, derived from the key and each input."""
    return keyed_draw(key, x, like, fill_normal).to(like.dtype)


def keyed_draw(key: bytes, x: Tensor, like: Tensor, fill: Fill) -> Tensor:
    """Float32 numbers shaped as `like`, row i filled by the generator of input i."""
    numbers = torch.empty(like.shape, dtype=torch.float32)
    for row, generator in zip(numbers, keyed_generators(key, x), strict=True):
        fill(row, generator)
    return numbers.to(like.device)


def keyed_generators(key: bytes, x: Tensor) -> Iterator[torch.Generator]:
    """A generator for each input, seeded with HMAC-SHA-256(key, its pixels as bytes).

    On the CPU: the same input gets the same numbers on every device and in every batch.
    """
    pixels = (x.detach().clamp(0, 1) * 255).round().to(torch.uint8).cpu()
    for image in pixels:
        digest = hmac.new(key, image.numpy().tobytes(), hashlib.sha256).digest()
        yield torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
