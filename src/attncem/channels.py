"""Channels: what the client does to z before it leaves. One object serves training, accuracy, attack and server.

In training mode noise is always fresh: a network trained on repeated noise would learn the noise. In
evaluation mode `noise: keyed` derives it from a key and the input, so that asking again about the same
input tells nothing new.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from attncem.config.base import Options
from attncem.config.channels import GaussianOptions, IdentityOptions


class Channel(nn.Module):
    """z [B, …] → released, of the same shape. `x` are the inputs behind z (needed for keyed noise)."""

    options_type: ClassVar[type[Options]]
    takes_context: ClassVar[bool] = True
    """Whether `forward` takes x and a generator beside z; a foreign module does not."""
    noise_std: float = 0.0

    def forward(self, z: Tensor, *, x: Tensor | None = None, generator: torch.Generator | None = None) -> Tensor:
        """Release z."""
        raise NotImplementedError


class IdentityChannel(Channel):
    """Releases z as it is."""

    options_type = IdentityOptions

    def __init__(self, options: IdentityOptions, *, key: bytes = b"") -> None:
        super().__init__()

    def forward(self, z: Tensor, *, x: Tensor | None = None, generator: torch.Generator | None = None) -> Tensor:
        """Release z unchanged."""
        return z


class GaussianChannel(Channel):
    """released = z + noise_std · N(0, I); at inference fresh or keyed."""

    options_type = GaussianOptions

    def __init__(self, options: GaussianOptions, *, key: bytes = b"") -> None:
        super().__init__()
        if options.noise == "keyed" and not key:
            raise ValueError("noise=keyed needs a key")
        self.noise_std = options.noise_std
        self.noise = options.noise
        self._key = key

    def forward(self, z: Tensor, *, x: Tensor | None = None, generator: torch.Generator | None = None) -> Tensor:
        """Release z with noise."""
        if self.noise_std == 0:
            return z
        if self.noise == "keyed" and not self.training:
            if x is None:
                raise ValueError("keyed noise needs the inputs x beside z")
            return z + self.noise_std * keyed_normal(self._key, x, z)
        draw = torch.empty_like(z, dtype=torch.float32).normal_(generator=generator)
        return z + self.noise_std * draw.to(z.dtype)


class ChannelChain(Channel):
    """Several channels in their given order."""

    def __init__(self, stages: Sequence[Channel]) -> None:
        super().__init__()
        self.stages = nn.ModuleList(stages)
        self.noise_std = sum(stage.noise_std**2 for stage in stages) ** 0.5

    def forward(self, z: Tensor, *, x: Tensor | None = None, generator: torch.Generator | None = None) -> Tensor:
        """Release z through every stage."""
        for stage in self.stages:
            z = stage(z, x=x, generator=generator)
        return z


CHANNELS: dict[str, type[GaussianChannel] | type[IdentityChannel]] = {
    "gaussian": GaussianChannel,
    "identity": IdentityChannel,
}
"""Channels by name."""


def build_channel(options: Sequence[Options], *, key: bytes) -> Channel:
    """The channel that a list of options describes; each stage has a key of its own."""
    stages = []
    for position, stage in enumerate(options):
        name: str = stage.name  # type: ignore[attr-defined]
        stages.append(CHANNELS[name](stage, key=hashlib.sha256(key + bytes([position])).digest()))  # type: ignore[arg-type]
    return stages[0] if len(stages) == 1 else ChannelChain(stages)


def keyed_normal(key: bytes, x: Tensor, like: Tensor) -> Tensor:
    """Standard normal numbers shaped as `like`, derived from the key and each input.

    Input i gives HMAC-SHA-256(key, its pixels as bytes), which seeds a generator on the CPU: the same
    input gets the same noise on every device and in every batch.
    """
    pixels = (x.detach().clamp(0, 1) * 255).round().to(torch.uint8).cpu()
    noise = torch.empty(like.shape, dtype=torch.float32)
    for row, image in zip(noise, pixels, strict=True):
        digest = hmac.new(key, image.numpy().tobytes(), hashlib.sha256).digest()
        row.normal_(generator=torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1))
    return noise.to(like.device, like.dtype)
