"""Flows: samples of the images behind a release, and their mean in one step; samples of images of any kind."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attncem.models.decoders import ImageShape, ToGrid, WholeView, group_norm

FIRST_TIME = 1e-3
"""Start time of sampling: at exactly 0 the field has learned only the mean."""
_WAVES = 16
"""Number of sines and cosines of the time in the network's input."""


class FlowDecoder(nn.Module):
    """p(x | released) around the mean M(z) of a trained decoder, which does not change.

    r = (x − M(z)) / s moves from noise ε along r_t = (1 − t) ε + t r, with the velocity E[r − ε | r_t, z]. With q = t²
    + (1 − t)² the network F(r_t / √q, t, z) learns E[((1 − t) r − t ε) / √q | r_t, z], a target of about unit variance
    at all times, and the velocity is (2t − 1) / q · r_t + F / √q. At t = 0 r_t contains nothing of x: the velocity is
    E[r | z] − ε, F learns E[r | z] for any ε, and the mean of all possible images is M(z) + s F(0, 0, z), in one step.
    ``refined`` says whether that mean is used, or M(z) alone.
    """

    scale: Tensor
    refined: Tensor

    def __init__(self, mean: nn.Module, network: nn.Module) -> None:
        super().__init__()
        self.mean = mean.eval().requires_grad_(False)
        self.network = network
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("refined", torch.ones(()))

    def train(self, mode: bool = True) -> FlowDecoder:
        """The decoder of the mean never enters training mode."""
        super().train(mode)
        self.mean.eval()
        return self

    def forward(self, released: Tensor) -> Tensor:
        """The mean of the possible images, in [0, 1]."""
        mean = self.mean(released)
        nothing, start = torch.zeros_like(mean), torch.zeros(len(mean), device=mean.device)
        images: Tensor = mean + self.refined * self.scale * self.network(nothing, start, released, mean)
        return images.clamp(0, 1)

    def loss(self, released: Tensor, x: Tensor, time: Tensor, noise: Tensor) -> Tensor:
        """Squared error of F for each image, [B]; `time` is [B] in [0, 1], `noise` is ε, and 0 where the time is 0."""
        with torch.no_grad():
            mean = self.mean(released)
        return flow_loss(self.network, (x - mean) / self.scale, time, noise, released, mean)

    def sample(self, released: Tensor, noise: Tensor, steps: int) -> Tensor:
        """The images at the end of the flow from this noise (Heun's method), in [0, 1]."""
        mean: Tensor = self.mean(released)
        return (mean + self.scale * flowed(self.network, noise, steps, released, mean)).clamp(0, 1)


class FlowPrior(nn.Module):
    """p(x) of a kind of images: a flow from noise ε to r = (x − mean) / scale, without a release.

    It is that of `FlowDecoder` with a fixed mean image in the place of M(z).
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, network: nn.Module, mean: Tensor, scale: float) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean", mean)
        self.register_buffer("scale", torch.tensor(scale))

    def loss(self, x: Tensor, time: Tensor, noise: Tensor) -> Tensor:
        """Squared error of F for each image, [B]; `time` is [B] in [0, 1], `noise` is ε."""
        return flow_loss(self.network, self.scaled(x), time, noise)

    def scaled(self, x: Tensor) -> Tensor:
        """Images as r."""
        return (x - self.mean) / self.scale

    def expected(self, r: Tensor, t: float) -> Tensor:
        """The mean of the images that lead through r at time t, in one step; not limited to [0, 1]."""
        return self.mean + self.scale * (r + (1 - t) * velocity(self.network, r, t))

    def drawn(self, noise: Tensor, steps: int) -> Tensor:
        """The images at the end of the flow from this noise; not limited to [0, 1]."""
        return self.mean + self.scale * flowed(self.network, noise, steps)


def flow_loss(network: nn.Module, r: Tensor, time: Tensor, noise: Tensor, *condition: Tensor) -> Tensor:
    """Squared error of F for each image, [B], at r_t = (1 − t) ε + t r."""
    t = time.view(-1, 1, 1, 1)
    root = (t.square() + (1 - t).square()).sqrt()
    seen, wanted = ((1 - t) * noise + t * r) / root, ((1 - t) * r - t * noise) / root
    errors: Tensor = (network(seen, time, *condition) - wanted).square().flatten(1).mean(1)
    return errors


def velocity(network: nn.Module, r: Tensor, t: float, *condition: Tensor) -> Tensor:
    """(2t − 1) / q · r_t + F / √q."""
    q = t * t + (1 - t) * (1 - t)
    time = torch.full((len(r),), t, device=r.device)
    field: Tensor = network(r / math.sqrt(q), time, *condition)
    return (2 * t - 1) / q * r + field / math.sqrt(q)


def flowed(network: nn.Module, noise: Tensor, steps: int, *condition: Tensor) -> Tensor:
    """The end of the flow from this noise (Heun's method)."""
    r = noise
    for now, following in pairwise(torch.linspace(FIRST_TIME, 1, steps + 1).tolist()):
        first = velocity(network, r, now, *condition)
        second = velocity(network, r + (following - now) * first, following, *condition)
        r = r + (following - now) * (first + second) / 2
    return r


class PriorNetwork(nn.Module):
    """F without a release: residual blocks at half and at a quarter of the image's resolution, conditioned on the time.

    Four neighbouring pixels are one position, so that nothing is lost.
    """

    def __init__(self, colours: int, *, width: int, blocks: int) -> None:
        super().__init__()
        self._add_trunk(4 * colours, colours, width, blocks)

    def _add_trunk(self, inputs: int, colours: int, width: int, blocks: int) -> None:
        """Add the layers that do not see the release."""
        self.clock = nn.Sequential(nn.Linear(2 * _WAVES, 2 * width), nn.SiLU(), nn.Linear(2 * width, 2 * width))
        self.stem = nn.Conv2d(inputs, width, 3, padding=1)
        self.before = _blocks(width, 2 * width, blocks)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.deep = _blocks(2 * width, 2 * width, 2 * blocks)
        self.up = nn.Conv2d(2 * width, width, 3, padding=1)
        self.after = _blocks(width, 2 * width, blocks)
        self.end = nn.Sequential(group_norm(width), nn.SiLU(), _silent(nn.Conv2d(width, 4 * colours, 3, padding=1)))

    def forward(self, seen: Tensor, time: Tensor) -> Tensor:
        """F for every pixel, in float32; `seen` is r_t / √q."""
        return self._through(self.stem(_folded(seen)), F.silu(self.clock(_waves(time))), seen)

    def _through(self, fine: Tensor, condition: Tensor, seen: Tensor) -> Tensor:
        fine = _passed(self.before, fine, condition)
        deep = _passed(self.deep, self.down(fine), condition)
        fine = _passed(self.after, fine + _at_size(self.up(deep), fine), condition)
        height, width = seen.shape[-2:]
        return F.pixel_shuffle(self.end(fine).float(), 2)[..., :height, :width]


class FlowNetwork(PriorNetwork):
    """F with a release: it enters as a grid at every position, and as a vector.

    The vector shifts and scales the normalised values of each block, as the time does.
    """

    def __init__(self, feature_shape: tuple[int, ...], image_shape: ImageShape, *, width: int, blocks: int) -> None:
        nn.Module.__init__(self)
        self.to_grid = ToGrid(feature_shape, image_shape)
        self.view = WholeView(self.to_grid, feature_shape)
        self.release = nn.Conv2d(self.to_grid.grid[0], width, 3, padding=1)
        self.whole = nn.Linear(self.view.length, 2 * width)
        self._add_trunk(8 * image_shape[0], image_shape[0], width, blocks)

    def forward(self, seen: Tensor, time: Tensor, released: Tensor, mean: Tensor) -> Tensor:  # type: ignore[override]
        """F for every pixel, in float32; `seen` is r_t / √q, `mean` is M(z)."""
        condition = F.silu(self.clock(_waves(time)) + self.whole(self.view(released)))
        fine = self.stem(_folded(torch.cat([seen, 2 * mean - 1], 1)))
        return self._through(fine + _at_size(self.release(self.to_grid(released)), fine), condition, seen)


class ToldBlock(nn.Module):
    """Pre-activation residual block, shifted and scaled by its condition; no statistics shared between images."""

    def __init__(self, width: int, told: int) -> None:
        super().__init__()
        self.first = nn.Sequential(group_norm(width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1))
        self.norm = group_norm(width)
        self.told = nn.Linear(told, 2 * width)
        self.second = nn.Sequential(nn.SiLU(), _silent(nn.Conv2d(width, width, 3, padding=1)))

    def forward(self, x: Tensor, told: Tensor) -> Tensor:
        """X + second((1 + scale) · norm(first(x)) + shift)."""
        scale, shift = self.told(told)[:, :, None, None].chunk(2, 1)
        out: Tensor = x + self.second(self.norm(self.first(x)) * (1 + scale) + shift)
        return out


def _silent(layer: nn.Conv2d) -> nn.Module:
    """The layer with weights 0, so that its output is 0 before training."""
    nn.init.zeros_(layer.weight)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


def _blocks(width: int, told: int, count: int) -> nn.ModuleList:
    return nn.ModuleList(ToldBlock(width, told) for _ in range(count))


def _passed(blocks: nn.ModuleList, x: Tensor, told: Tensor) -> Tensor:
    for block in blocks:
        x = block(x, told)
    return x


def _waves(time: Tensor) -> Tensor:
    """The time [B] as sines and cosines of rising frequency."""
    frequencies = torch.logspace(0, 2, _WAVES, device=time.device)
    angles = time[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], 1)


def _folded(images: Tensor) -> Tensor:
    """Four neighbouring pixels as one position; an odd side is padded with zeros."""
    height, width = images.shape[-2:]
    return F.pixel_unshuffle(F.pad(images, (0, width % 2, 0, height % 2)), 2)


def _at_size(maps: Tensor, other: Tensor) -> Tensor:
    """Maps resampled to the resolution of others."""
    return F.interpolate(maps, size=other.shape[-2:], mode="bilinear", align_corners=False)
