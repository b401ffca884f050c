"""Ladders of error: the pixel error that remains if a thumbnail, or some principal components, are known."""

from __future__ import annotations

import torch
from torch import Tensor

from attncem.base.seeding import make_generator
from attncem.data.batches import DeviceData
from attncem.records.units import Rung, Units

MOST_COMPONENTS = 256
_LEARNED_FROM = 4000
"""Largest number of evenly spaced training images from which mean and axes are computed."""
_SPARE = 16
"""Extra axes of the subspace iteration, for _ROUNDS rounds: the last wanted axis is then at most 1 % off."""
_ROUNDS = 3
_BATCH = 1000


@torch.no_grad()
def human_units(x: Tensor, train: DeviceData) -> Units:
    """Both ladders of these images; the components are learned from training images."""
    count = min(len(train), _LEARNED_FROM)
    spread = torch.linspace(0, len(train) - 1, count, device=x.device).round().long()
    return Units(thumbnails(x), components(x, train.get(spread)[0]))


def thumbnails(x: Tensor) -> list[Rung]:
    """MSE of the means over n×n blocks, n = 1, 2, 4 … below the shorter side; blocks differ by a pixel at most."""
    sizes = [2**step for step in range(min(x.shape[-2:]).bit_length()) if 2**step < min(x.shape[-2:])]
    return [Rung(size, _block_error(x, size)) for size in sizes or [1]]


def _block_error(x: Tensor, size: int) -> float:
    down, across = (_averaging(length, size, x) for length in x.shape[-2:])
    parts = ((part - down @ part @ across.T).square().sum(dtype=torch.float64) for part in x.split(_BATCH))
    return float(torch.stack(list(parts)).sum() / x.numel())


def _averaging(length: int, size: int, like: Tensor) -> Tensor:
    """The matrix that replaces each of `length` pixels by the mean of its block."""
    block = torch.arange(length, device=like.device) * size // length
    same = (block[:, None] == block).to(like.dtype)
    return same / same.sum(1, keepdim=True)


def components(x: Tensor, own: Tensor) -> list[Rung]:
    """MSE of the mean of `own` and the first k of its principal axes, where k is 0 or a power of two."""
    mean = own.flatten(1).mean(0)
    axes = principal_axes(own.flatten(1) - mean)
    left = torch.zeros(axes.shape[1] + 1, dtype=torch.float64, device=x.device)
    for part in x.split(_BATCH):
        away = part.flatten(1) - mean
        gone = (away @ axes).square().sum(0, dtype=torch.float64).cumsum(0)
        left += away.square().sum(dtype=torch.float64) - torch.cat([gone.new_zeros(1), gone])
    errors = (left / x.numel()).clamp_min(0).tolist()
    counts = [0, *(2**step for step in range(MOST_COMPONENTS.bit_length()) if 2**step < len(errors))]
    return [Rung(count, errors[count]) for count in counts]


def principal_axes(centred: Tensor) -> Tensor:
    """The first principal axes of centred rows, at most `MOST_COMPONENTS` of them, as columns [pixels, k].

    By subspace iteration from a fixed random start (Halko, Martinsson and Tropp 2011, 4.4).
    """
    rows, pixels = centred.shape
    width = min(MOST_COMPONENTS + _SPARE, rows, pixels)
    start = make_generator("cpu", 0, "principal axes")
    basis = torch.randn(pixels, width, generator=start).to(centred)
    for _ in range(_ROUNDS + 1):
        basis = torch.linalg.qr(centred.T @ (centred @ basis)).Q
    turned = torch.linalg.svd(centred @ basis, full_matrices=False).Vh.T
    axes: Tensor = (basis @ turned)[:, : min(MOST_COMPONENTS, rows - 1 or 1)]
    return axes
