"""Channels change z before it leaves the client. Training, accuracy, attack and server use one object.

A channel works the same in training and at inference, with one difference: in training mode its draw is always fresh (a
network trained on repeated noise would learn the noise); in evaluation mode `noise: keyed` derives it from a key and
the input, so repeated releases of one input reveal nothing new. docs/channels.md compares the channels. Training and
audits use torch's fast generators, which are not cryptographic; noise that leaves a device comes from `noise`, keyed or
with the source SYSTEM.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from attncem.base.types import ConfigError, RunError
from attncem.config.options.channels import (
    ChannelOptions,
    DropoutOptions,
    GaussianOptions,
    IdentityOptions,
    LaplaceOptions,
    LocalDPOptions,
    QuantiseOptions,
    RandomOptions,
    ShapedOptions,
    TopKOptions,
)
from attncem.config.plugins import open_table
from attncem_edge import noise
from attncem_edge.channel import coloured


class Secrets:
    """Noise that leaves a device: every sample of a batch has a separate secret at every random stage."""

    def fresh(self) -> bytes:
        """The next 256-bit secret, from the operating system."""
        return noise.fresh_secret()


SYSTEM = Secrets()
"""The source of noise that leaves a device."""
Source = torch.Generator | Secrets | None
"""Source of fresh noise: a torch generator, None for torch's global one, or secrets."""
_MAPS = 4
"""Dimensions of a batch of maps, [B, C, H, W]."""


@dataclass(frozen=True)
class Binding:
    """The inputs of keyed noise at one stage besides the image: a secret key, the model's fingerprint, the position."""

    key: bytes = field(repr=False)
    fingerprint: str
    position: int
    scheme: int


class Channel(nn.Module):
    """z [B, …] → released, of the same shape and type. `x` are the inputs of the encoder (for keyed noise)."""

    options_type: ClassVar[type[ChannelOptions]]
    takes_context: ClassVar[bool] = True
    """Whether `forward` also takes x and a generator; a foreign module does not."""
    options: Any
    noise_std: float = 0.0
    """Standard deviation of the noise on each feature."""
    bits_per_feature: int | None = None
    """Largest number of bits per feature in one release; None: unbounded."""
    reads_input: bool = False
    """Whether a release depends on x directly and not only through z, as with keyed noise."""
    draws_nothing: ClassVar[bool] = False
    """Whether z alone determines the release."""
    _binding: Binding | None = None

    def __init__(self, options: ChannelOptions | None = None) -> None:
        super().__init__()
        self.options = options
        if options is not None:
            self.noise_std = options.added_noise_std

    def bind(self, key: bytes, fingerprint: str, scheme: int = noise.SCHEME) -> Self:
        """Make `noise: keyed` use this key in evaluation mode; without a key it draws like `fresh`.

        Scheme 0 is for reading old runs only: see `weak_draw`.
        """
        if scheme not in (0, noise.SCHEME):
            raise ValueError(f"noise of scheme {scheme} is not known: this version knows 0 and {noise.SCHEME}")
        if not key or (scheme and len(key) != noise.SECRET_BYTES):
            raise ValueError(f"keyed noise needs a key of {noise.SECRET_BYTES} bytes, got {len(key)}")
        for position, stage in enumerate(self.single_stages()):
            stage._binding = Binding(key, fingerprint, position, scheme)
        return self

    def unbind(self) -> Self:
        """Forget the key: `noise: keyed` draws like `fresh` again."""
        for stage in self.single_stages():
            stage._binding = None
        return self

    @property
    def repeats(self) -> bool:
        """Whether the same z and input always give the same release, as with keyed noise."""
        return all(stage.draws_nothing or stage._binding_in_use() for stage in self.single_stages())

    @property
    def draws_weakly(self) -> bool:
        """Whether a key of scheme 0 determines its draws, through one of 2³² seeds."""
        return self.reads_input and self._binding is not None and self._binding.scheme == 0

    def _binding_in_use(self) -> Binding | None:
        return self._binding if self.reads_input and not self.training else None

    def single_stages(self) -> Iterator[Channel]:
        """The channels that z passes, in order."""
        yield self

    def whitened(self, z: Tensor) -> Tensor:
        """Features or releases in coordinates in which the channel's noise is independent and of equal strength."""
        return z

    def forward(self, z: Tensor, *, x: Tensor | None = None, generator: Source = None) -> Tensor:
        """Release z."""
        raise NotImplementedError


class IdentityChannel(Channel):
    """Releases z unchanged, in training and at inference; gradient 1. One release contains all of z."""

    options_type = IdentityOptions
    draws_nothing = True

    def forward(self, z: Tensor, *, x: Tensor | None = None, generator: Source = None) -> Tensor:
        """Release z unchanged."""
        return z


class RandomChannel(Channel):
    """A channel that draws numbers: fresh ones, or at inference with `noise: keyed` and a key those of the input."""

    options: RandomOptions

    def __init__(self, options: RandomOptions) -> None:
        super().__init__(options)
        self.reads_input = options.noise == "keyed"

    def draw(self, law: noise.Law, z: Tensor, x: Tensor | None, generator: Source) -> Tensor:
        """Random float32 numbers in the shape of z."""
        if (numbers := self.strong_draw(law, z, x, generator)) is not None:
            return numbers.float().to(z.device)
        binding = self._binding_in_use()
        if binding is not None and isinstance(generator, Secrets):
            raise RunError(
                "keyed noise of scheme 0 can be removed by anyone who knows the seed: it may not be released"
            )
        if binding is not None:
            return weak_draw(binding, law, z, _known(x))
        assert not isinstance(generator, Secrets)
        numbers = torch.empty_like(z, dtype=torch.float32)
        FILLS[law](numbers, generator)
        return numbers

    def strong_draw(self, law: noise.Law, z: Tensor, x: Tensor | None, generator: Source) -> Tensor | None:
        """Float64 numbers in the shape of z, on the CPU, with one secret per sample; None if torch draws instead."""
        binding = self._binding_in_use()
        if binding is not None and binding.scheme:
            key = (binding.key, binding.fingerprint, binding.position)
            secrets = [noise.keyed_secret(*key, pixels) for pixels in pixels_of(_known(x))]
        elif binding is None and isinstance(generator, Secrets):
            secrets = [generator.fresh() for _ in range(len(z))]
        else:
            return None
        if len(secrets) != len(z):
            raise ValueError(f"keyed noise needs one input for each sample: {len(secrets)} for {len(z)}")
        return drawn(secrets, law, z.shape, self._binding.position if self._binding else 0)


class GaussianChannel(RandomChannel):
    """released = z + σ N(0, I), in training and at inference. Gradient 1.

    The mean of k fresh releases has σ/√k; keyed, k releases of one input reveal no more than one.
    """

    options_type: ClassVar[type[ChannelOptions]] = GaussianOptions

    def forward(self, z: Tensor, *, x: Tensor | None = None, generator: Source = None) -> Tensor:
        """Release z with noise."""
        if self.noise_std == 0:
            return z
        return z + self.noise_std * self.draw("normal", z, x, generator).to(z.dtype)


class ShapedChannel(GaussianChannel):
    """released = z + σ C⁻¹(g ∘ N(0, I)), C the cosine transform of each map, in training and at inference.

    g ∝ (1 + f)^−tilt for waves of f half periods, mean square 1. Gradient 1. As with `gaussian`, the mean of k fresh
    releases has σ/√k; keyed, k releases of one input reveal no more than one. Tokens and vectors get white noise.
    """

    options_type = ShapedOptions
    options: ShapedOptions

    def draw(self, law: noise.Law, z: Tensor, x: Tensor | None, generator: Source) -> Tensor:
        """Random float32 numbers of this colour in the shape of z; separate for each sample if they leave a device."""
        if z.ndim != _MAPS:
            return super().draw(law, z, x, generator)
        numbers = self.strong_draw(law, z, x, generator)
        if numbers is None:
            return self._coloured(super().draw(law, z, x, generator))
        shaded = [torch.from_numpy(coloured(each.numpy(), self.options.tilt)) for each in numbers]
        return torch.stack(shaded).float().to(z.device)

    def _coloured(self, white: Tensor) -> Tensor:
        rows, columns, gains = self._waves(white)
        return rows.T @ (gains * white) @ columns

    def whitened(self, z: Tensor) -> Tensor:
        """The cosine transform of each map, divided by the strength of the noise on each wave."""
        if z.ndim != _MAPS:
            return z
        wide = z.to(torch.promote_types(z.dtype, torch.float32))
        rows, columns, gains = self._waves(wide)
        return rows @ wide @ columns.T / gains

    def _waves(self, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        height, width = like.shape[-2:]
        return waves(height, width, self.options.tilt, like.dtype, like.device)


class LaplaceChannel(RandomChannel):
    """released = z + Laplace(0, b), b = noise_std/√2, in training and at inference. Gradient 1.

    The mean of k fresh releases has noise_std/√k; the median is a better estimate with about b/√k; keyed, k releases of
    one input reveal no more than one.
    """

    options_type = LaplaceOptions

    def forward(self, z: Tensor, *, x: Tensor | None = None, generator: Source = None) -> Tensor:
        """Release z with noise."""
        if self.noise_std == 0:
            return z
        return z + self.noise_std / 2**0.5 * self.draw("laplace", z, x, generator).to(z.dtype)


class LocalDPChannel(GaussianChannel):
    """released = z min(1, C/‖z‖) + σ N(0, I), ‖·‖ over one sample, in training and at inference.

    σ is the smallest for (ε, δ), each reduced by a slack, at sensitivity 2C (analytic Gaussian mechanism). On a device
    the release is computed in float64 and rounded to a grid, so (ε, δ) holds for the actual draws. Gradient: that of
    the clipping. k fresh releases spend the ε of one with σ/√k; keyed, k releases of one input reveal no more than one,
    but (ε, δ) then holds only against adversaries without the key.
    """

    options_type = LocalDPOptions
    options: LocalDPOptions

    def forward(self, z: Tensor, *, x: Tensor | None = None, generator: Source = None) -> Tensor:
        """Release z clipped and with noise, in at least float32, so that rounding follows the noise."""
        if problem := self.options.problem_with(z.shape[1:].numel()):
            raise ConfigError(f"channel local_dp: {problem}")
        clipped = clip_norm(z.to(torch.promote_types(z.dtype, torch.float32)), self.options.clip)
        numbers = self.strong_draw("normal", z, x, generator)
        if numbers is None:
            return super().forward(clipped, x=x, generator=generator).to(z.dtype)
        released = self._on_grid(z, numbers).to(z.dtype).to(z.device)
        follows = torch.is_grad_enabled() and z.requires_grad
        return released + (clipped - clipped.detach()).to(z.dtype) if follows else released

    def _on_grid(self, z: Tensor, numbers: Tensor) -> Tensor:
        """The release that leaves a device, in float64; computed on the CPU, each sample alone."""
        wide = z.detach().to("cpu", torch.float64).flatten(1)
        settings = {"clip": self.options.clip, "noise_std": self.noise_std, "grid": self.options.grid}
        return torch.from_numpy(noise.noisy_on_grid(wide.numpy(), numbers.flatten(1).numpy(), **settings)).view(z.shape)


class DropoutChannel(RandomChannel):
    """released = z · mask, mask 0 with probability `rate`, else 1 (`rescale`: 1/(1 − rate)); at inference too.

    Gradient: the mask. A feature is hidden in all of k fresh releases only with probability rate^k, otherwise z itself
    is visible; keyed, the mask of an input does not change.
    """

    options_type = DropoutOptions
    options: DropoutOptions

    def forward(self, z: Tensor, *, x: Tensor | None = None, generator: Source = None) -> Tensor:
        """Release z with some features set to 0."""
        if self.options.rate == 0:
            return z
        kept = z.masked_fill(self.draw("uniform", z, x, generator) < self.options.rate, 0)
        return kept / (1 - self.options.rate) if self.options.rescale else kept


class TopKChannel(Channel):
    """released = z where it is among the round(keep · m) largest of the sample's m values, else 0; no randomness.

    The same in training and at inference; of equal values the first are kept. Gradient 1 where kept, else 0. Several
    releases add nothing; after random channels they average as without it, except where values change rank.
    """

    options_type = TopKOptions
    draws_nothing = True
    options: TopKOptions

    def forward(self, z: Tensor, *, x: Tensor | None = None, generator: Source = None) -> Tensor:
        """Release the largest values of each sample."""
        flat = z.flatten(1)
        count = max(1, round(self.options.keep * flat.shape[1]))
        largest = flat.detach().argsort(dim=1, descending=True, stable=True)[:, :count]
        dropped = torch.ones_like(flat, dtype=torch.bool).scatter(1, largest, False)
        return flat.masked_fill(dropped, 0).view_as(z)


class QuantiseChannel(Channel):
    """released = low + s round((clamp(z, low, high) − low)/s), s = (high − low)/(2^bits − 1); no randomness.

    The same in training and at inference. Gradient straight through: 1 inside the range, 0 outside. Averaging gains
    nothing, and one release holds at most bits · m · ln 2 nats; after fresh noise, k releases hold up to k times that.
    """

    options_type = QuantiseOptions
    draws_nothing = True
    options: QuantiseOptions

    def __init__(self, options: QuantiseOptions) -> None:
        super().__init__(options)
        self.bits_per_feature = options.bits

    def forward(self, z: Tensor, *, x: Tensor | None = None, generator: Source = None) -> Tensor:
        """Release the nearest levels."""
        inside = z.clamp(self.options.low, self.options.high)
        nearest = nearest_levels(inside.detach(), self.options)
        released: Tensor = levels(nearest, self.options, z.dtype) + (inside - inside.detach())
        return released


class ChannelChain(Channel):
    """Several channels in order, each with a separate draw."""

    def __init__(self, stages: Sequence[Channel]) -> None:
        super().__init__()
        self.stages = nn.ModuleList(stages)
        self.noise_std = sum(stage.noise_std**2 for stage in stages) ** 0.5
        self.reads_input = any(stage.reads_input for stage in stages)
        self.bits_per_feature = _bits_of(stages)

    def single_stages(self) -> Iterator[Channel]:
        """The single channels of every stage."""
        for stage in self.stages:
            assert isinstance(stage, Channel)
            yield from stage.single_stages()

    def forward(self, z: Tensor, *, x: Tensor | None = None, generator: Source = None) -> Tensor:
        """Release z through every stage."""
        for stage in self.stages:
            z = stage(z, x=x, generator=generator)
        return z


def _bits_of(stages: Sequence[Channel]) -> int | None:
    """The smallest number of bits of any stage; later stages add no information, unless they read the input."""
    bits: int | None = None
    for stage in stages:
        known = [given for given in (None if stage.reads_input else bits, stage.bits_per_feature) if given is not None]
        bits = min(known, default=None)
    return bits


CHANNELS: dict[str, type[Channel]] = {
    "gaussian": GaussianChannel,
    "identity": IdentityChannel,
    "laplace": LaplaceChannel,
    "shaped": ShapedChannel,
    "local_dp": LocalDPChannel,
    "dropout": DropoutChannel,
    "top_k": TopKChannel,
    "quantise": QuantiseChannel,
}
"""Channels by name."""
open_table("channel", CHANNELS, Channel)


def build_channel(options: Sequence[ChannelOptions]) -> Channel:
    """The channel for a list of options; `bind` sets the key of its keyed noise."""
    stages = [CHANNELS[stage.name](stage) for stage in options]
    return stages[0] if len(stages) == 1 else ChannelChain(stages)


@cache
def waves(
    height: int, width: int, tilt: float, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Orthonormal cosine transforms of columns and rows, and the gain of each pair of waves, [height, width]."""
    from scipy.fft import dct  # its import takes a fifth of a second, which other channels avoid

    lines = [dct(np.eye(size), axis=0, norm="ortho") for size in (height, width)]
    gains = (1 + np.hypot(*np.ogrid[:height, :width])) ** -tilt
    gains /= np.sqrt(np.square(gains).mean())
    rows, columns, strength = (torch.tensor(each, dtype=dtype, device=device) for each in (*lines, gains))
    return rows, columns, strength


def clip_norm(z: Tensor, limit: float) -> Tensor:
    """Each sample, scaled down to the L2 norm `limit` if its norm is larger."""
    norm = torch.linalg.vector_norm(z.flatten(1), dim=1)
    factor: Tensor = limit / norm.clamp_min(limit)
    return z * factor.view(-1, *[1] * (z.ndim - 1))


def nearest_levels(z: Tensor, options: QuantiseOptions) -> Tensor:
    """The index of the level that is nearest to each value, 0 to 2^bits − 1, in floating point: NaN stays NaN."""
    wide = z.clamp(options.low, options.high).to(torch.promote_types(z.dtype, torch.float32))
    return ((wide - options.low) / _step(options)).round()


def levels(index: Tensor, options: QuantiseOptions, dtype: torch.dtype) -> Tensor:
    """The values low + s · index, computed in at least float32."""
    return (options.low + _step(options) * index.to(torch.promote_types(dtype, torch.float32))).to(dtype)


def _step(options: QuantiseOptions) -> float:
    return (options.high - options.low) / float(2**options.bits - 1)


def fill_laplace(numbers: Tensor, generator: torch.Generator | None) -> None:
    """Laplace of scale 1: the difference of two exponentials."""
    other = torch.empty_like(numbers).exponential_(generator=generator)
    numbers.exponential_(generator=generator).sub_(other)


FILLS: dict[str, Callable[[Tensor, torch.Generator | None], object]] = {
    "normal": lambda numbers, generator: numbers.normal_(generator=generator),
    "laplace": fill_laplace,
    "uniform": lambda numbers, generator: numbers.uniform_(generator=generator),
}
"""Torch's in-place function for the float32 numbers of each distribution."""


def drawn(secrets: Sequence[bytes], law: noise.Law, shape: Sequence[int], stage: int) -> Tensor:
    """Float64 numbers of that shape, row i drawn from secret i."""
    numbers = torch.empty(tuple(shape), dtype=torch.float64)
    for row, secret in zip(numbers, secrets, strict=True):
        row.copy_(torch.from_numpy(noise.draw(secret, law, row.numel(), stage)).view(row.shape))
    return numbers


def pixels_of(x: Tensor) -> Iterator[bytes]:
    """The pixels of each input as bytes, from any device."""
    pixels = (x.detach().clamp(0, 1) * 255).round().to(torch.uint8).cpu()
    return (image.numpy().tobytes() for image in pixels)


def weak_draw(binding: Binding, law: noise.Law, z: Tensor, x: Tensor) -> Tensor:
    """Keyed numbers of scheme 0, only for reading old runs: weak, and no differential privacy.

    Their key follows from the run's public seed, torch uses 32 of the 63 bits of each seed HMAC-SHA-256(SHA-256(key,
    position), pixels), and its normal numbers end at 5.77 standard deviations.
    """
    key = hashlib.sha256(binding.key + bytes([binding.position])).digest()
    numbers = torch.empty(z.shape, dtype=torch.float32)
    for row, pixels in zip(numbers, pixels_of(x), strict=True):
        seed = int.from_bytes(hmac.digest(key, pixels, "sha256")[:8], "big") >> 1
        FILLS[law](row, torch.Generator().manual_seed(seed))
    return numbers.to(z.device)


def _known(x: Tensor | None) -> Tensor:
    if x is None:
        raise ValueError("keyed noise needs the inputs x as well as z")
    return x
