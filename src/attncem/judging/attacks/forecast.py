"""Forecasts of an attack's run time on this machine: from trials on a few images, or from sizes and measured rates."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

_TRIAL = 0.1
"""Time limit in seconds for the repeats of a trial."""
_REPEATS = 20
_FIRST = 0.7
"""A first run is slower than later ones: a later run takes at least this share of its time."""
_SIDE = 384
"""Side of the matrices that measure rates: their product exceeds the processor's smaller caches."""


@dataclass(frozen=True)
class Seconds:
    """A duration between `least` and `most` seconds."""

    least: float = 0.0
    most: float = 0.0

    @property
    def middle(self) -> float:
        """The one number between both."""
        return (self.least + self.most) / 2

    def __add__(self, other: Seconds) -> Seconds:
        """The duration of both, one after the other."""
        return Seconds(self.least + other.least, self.most + other.most)

    def times(self, least: float, most: float | None = None) -> Seconds:
        """The duration of `least` repeats, or of `least` to `most` repeats."""
        return Seconds(self.least * least, self.most * (least if most is None else most))


def timed(action: Callable[[], object]) -> Seconds:
    """Duration of one run of an action after a warm-up run: from the fastest of several runs to their upper quartile.

    A single disturbed run must not distort the forecast. A long action runs once, without repeats.
    """
    first = _once(action)
    if first > _TRIAL:
        return Seconds(_FIRST * first, first)
    found = [_once(action)]
    while len(found) < _REPEATS and sum(found) < _TRIAL:
        found.append(_once(action))
    found.sort()
    return Seconds(found[0], found[3 * len(found) // 4])


def _once(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def products(operations: float, like: torch.Tensor) -> Seconds:
    """Time of this number of multiplications and additions in matrix products of the dtype and device of `like`."""
    square = torch.ones(_SIDE, _SIDE, dtype=like.dtype, device=like.device)
    return timed(lambda: square @ square).times(operations / (2 * _SIDE**3))


def eigenvectors(side: int, like: torch.Tensor) -> Seconds:
    """Time to decompose one symmetric matrix of the dtype and device of `like`; large ones by the cube of the side."""
    tried = min(side, _SIDE)
    matrix = torch.rand(tried, tried, dtype=like.dtype, device=like.device, generator=torch.Generator().manual_seed(0))
    found = timed(lambda: torch.linalg.eigh(matrix + matrix.T))
    return found.times((side / tried) ** 3)
