"""Parts of the slow surrogates that several of them have: projection, LayerNorm, floor, gate of the dimensions."""

from __future__ import annotations

import torch
from torch import Tensor

from attncem.config.options.surrogate_base import ScheduledFloorOptions
from attncem.training.surrogates.gated import DimensionGate, GatedAttentionCEM
from attncem.training.surrogates.gmm import GaussianMixtureCEM
from attncem.training.surrogates.kmeans import KMeansCEM
from attncem.training.surrogates.projection import (
    LinearProjection,
    PointwiseProjection,
    Projection,
    RandomProjection,
)
from attncem.training.surrogates.slot import SlotCrossAttentionCEM


def project(projection: Projection, sample: Tensor) -> Tensor:
    """The projection of one sample, vector by vector."""
    if isinstance(projection, PointwiseProjection):
        channels_first = sample.T if sample.dim() == 2 else sample
        positions = channels_first.reshape(channels_first.shape[0], -1)
        mixed = torch.stack([projection.channel_weight @ column for column in positions.T], 1)
        return projection.weight @ mixed.reshape(-1)
    x = sample.reshape(-1)
    if isinstance(projection, LinearProjection):
        for weight in projection.weights:
            x = weight @ x
    if isinstance(projection, RandomProjection):
        x = projection.weight @ x
    return x


def normalise(x: Tensor) -> Tensor:
    """LayerNorm without affine over the last dimension."""
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + 1e-5)


def floor_of(surrogate: GatedAttentionCEM | SlotCrossAttentionCEM | KMeansCEM | GaussianMixtureCEM) -> float:
    """τ from the options; a scheduled one from its buffer."""
    options = surrogate.options
    if isinstance(options.variance_floor, ScheduledFloorOptions):
        return float(surrogate.floor.current)
    if options.variance_floor is not None:
        return options.variance_floor
    relative = options.var_threshold * surrogate.noise_std**2
    if isinstance(surrogate, GaussianMixtureCEM):
        return relative + surrogate.options.gamma
    return max(relative, 1e-8) if isinstance(surrogate, SlotCrossAttentionCEM) else relative


def soft(excess: Tensor, softness: float | None) -> Tensor:
    """Each excess e as e / (1 + exp(−e/T))."""
    if softness is None:
        return excess
    return torch.stack([e / (1 + torch.exp(-e / softness)) for e in excess])


def dimension_gate(gate: DimensionGate, variance: Tensor, gamma: float) -> Tensor:
    """The gate of every dimension from the normalised logarithms of its variances."""
    hidden = torch.relu(gate.inner.weight @ normalise(torch.log(variance + gamma)) + gate.inner.bias)
    return torch.sigmoid(gate.outer.weight @ hidden + gate.outer.bias)
