"""Maps of z to a short vector, so that attention over a large feature stays small."""

from __future__ import annotations

import abc
import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.init import kaiming_uniform_

from attncem.base.types import ConfigError
from attncem.config.options.attention import GatedOptions, SlotOptions
from attncem.training.surrogates.base import own_weight

UNPROJECTED_LIMIT = 2048
"""Largest feature that enters the attention without a projection under projection=auto."""
WEIGHT_BUDGET = 150_000
"""Weights of a learned projection: with the gates of 002, 512×7×7 stays below a million in total."""


class Projection(nn.Module, abc.ABC):
    """A map z [B, *feature_shape] → [B, out_dim]; ``live=False`` treats its weights as constants."""

    out_dim: int

    @abc.abstractmethod
    def forward(self, z: Tensor, *, live: bool = True) -> Tensor:
        """The projected features, [B, out_dim]."""


class Flatten(Projection):
    """z itself as one vector."""

    def __init__(self, feature_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.out_dim = math.prod(feature_shape)

    def forward(self, z: Tensor, *, live: bool = True) -> Tensor:
        """The flat z."""
        return z.flatten(1)


class PointwiseProjection(Projection):
    """A 1×1 convolution to few channels, then a linear map of all positions (``conv1x1``).

    At 512×7×7 with 16 channels and 128 outputs it has 0.11 M weights; a dense map has 3.2 M. Tokens [N, D] are N
    positions of D channels.
    """

    def __init__(self, feature_shape: tuple[int, ...], channels: int, out_dim: int) -> None:
        super().__init__()
        self.out_dim = out_dim
        self.tokens = len(feature_shape) == 2
        in_channels, positions = _channels_and_positions(feature_shape)
        self.channel_weight = nn.Parameter(_linear_init(channels, in_channels))
        self.weight = nn.Parameter(_linear_init(out_dim, channels * positions))

    def forward(self, z: Tensor, *, live: bool = True) -> Tensor:
        """The channels mixed at each position, then all positions together."""
        positions_last = z.transpose(1, 2) if self.tokens else z.flatten(2)
        mixed = own_weight(self.channel_weight, live=live, like=z) @ positions_last
        return mixed.flatten(1) @ own_weight(self.weight, live=live, like=z).T


class PositionProjection(Projection):
    """A 1×1 convolution of every position separately, z [B, *feature_shape] → [B · positions, out_dim]."""

    def __init__(self, feature_shape: tuple[int, ...], out_dim: int) -> None:
        super().__init__()
        if len(feature_shape) not in (2, 3):
            raise ConfigError(
                f"surrogate.tokens=spatial needs features [C, H, W] or tokens [N, D], got feature_shape {feature_shape}"
            )
        self.out_dim = out_dim
        self.tokens = len(feature_shape) == 2
        channels, self.positions = _channels_and_positions(feature_shape)
        self.weight = nn.Parameter(_linear_init(out_dim, channels))

    def forward(self, z: Tensor, *, live: bool = True) -> Tensor:
        """The positions of all samples, one after the other."""
        channels_last = z if self.tokens else z.flatten(2).transpose(1, 2)
        return channels_last.flatten(0, 1) @ own_weight(self.weight, live=live, like=z).T


class LinearProjection(Projection):
    """One linear map of the flat z; above WEIGHT_BUDGET, two factors through the widest layer that fits."""

    def __init__(self, feature_shape: tuple[int, ...], out_dim: int) -> None:
        super().__init__()
        self.out_dim = out_dim
        size = math.prod(feature_shape)
        rank = WEIGHT_BUDGET // (size + out_dim)
        widths = [size, out_dim] if size * out_dim <= WEIGHT_BUDGET else [size, max(rank, 1), out_dim]
        self.weights = nn.ParameterList(nn.Parameter(_linear_init(after, before)) for before, after in pairwise(widths))

    def forward(self, z: Tensor, *, live: bool = True) -> Tensor:
        """The product of the factors with the flat z."""
        x = z.flatten(1)
        for weight in self.weights:
            x = x @ own_weight(weight, live=live, like=z).T
        return x


class RandomProjection(Projection):
    """A fixed Gaussian map of the flat z (distances are kept on average); never trained."""

    weight: Tensor

    def __init__(self, feature_shape: tuple[int, ...], out_dim: int) -> None:
        super().__init__()
        self.out_dim = out_dim
        size = math.prod(feature_shape)
        self.register_buffer("weight", torch.randn(out_dim, size) / math.sqrt(size))

    def forward(self, z: Tensor, *, live: bool = True) -> Tensor:
        """The fixed map of the flat z."""
        return z.flatten(1) @ self.weight.to(z.dtype).T


def build_projection(options: GatedOptions | SlotOptions, feature_shape: tuple[int, ...]) -> Projection:
    """The projection that ``options.projection`` names; auto picks by the size and shape of the feature."""
    if isinstance(options, SlotOptions) and options.tokens == "spatial":
        return PositionProjection(feature_shape, options.slot_dim)
    name = _automatic(options, feature_shape) if options.projection == "auto" else options.projection
    if name == "none":
        return _unprojected(options, feature_shape)
    if name == "linear":
        return LinearProjection(feature_shape, options.projection_dim)
    if name == "random":
        return RandomProjection(feature_shape, options.projection_dim)
    if len(feature_shape) not in (2, 3):
        raise ConfigError(
            f"surrogate.projection=conv1x1 needs features [C, H, W] or tokens [N, D], got feature_shape "
            f"{feature_shape}; allowed here: auto, none, linear, random"
        )
    return PointwiseProjection(feature_shape, options.projection_channels, options.projection_dim)


def _unprojected(options: GatedOptions | SlotOptions, feature_shape: tuple[int, ...]) -> Flatten:
    size = math.prod(feature_shape)
    if isinstance(options, SlotOptions) and size != options.slot_dim:
        raise ConfigError(
            f"surrogate.projection=none needs surrogate.slot_dim equal to the size of z, {size}, got {options.slot_dim}"
        )
    return Flatten(feature_shape)


def _automatic(options: GatedOptions | SlotOptions, feature_shape: tuple[int, ...]) -> str:
    """The choice of auto: none or linear for small features, conv1x1 where it fits the budget, else random."""
    size = math.prod(feature_shape)
    if isinstance(options, SlotOptions):
        if size == options.slot_dim:
            return "none"
        if size * options.slot_dim <= WEIGHT_BUDGET:
            return "linear"
    elif size <= UNPROJECTED_LIMIT:
        return "none"
    if len(feature_shape) not in (2, 3):
        return "random"
    channels, positions = _channels_and_positions(feature_shape)
    weights = options.projection_channels * (channels + positions * options.projection_dim)
    return "conv1x1" if weights <= WEIGHT_BUDGET else "random"


def _channels_and_positions(feature_shape: tuple[int, ...]) -> tuple[int, int]:
    if len(feature_shape) == 2:
        return feature_shape[1], feature_shape[0]
    return feature_shape[0], math.prod(feature_shape[1:])


def _linear_init(out_features: int, in_features: int) -> Tensor:
    """The initial weights of nn.Linear: uniform within 1/√in_features."""
    return kaiming_uniform_(torch.empty(out_features, in_features), a=math.sqrt(5))
