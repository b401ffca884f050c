"""How long an attack will take on this machine: from trials on a few images, or from sizes and measured rates."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

_TRIAL = 0.1
"""Seconds for which a trial is repeated at most."""
_REPEATS = 20
_FIRST = 0.7
"""A first run is slower than later ones, by no more than this part leaves."""
_SIDE = 384
"""Side of the matrices by which rates are measured: their product leaves the processor's smaller caches."""


@dataclass(frozen=True)
class Seconds:
    """A duration that is not known exactly."""

    least: float = 0.0
    most: float = 0.0

    def __add__(self, other: Seconds) -> Seconds:
        """One after the other."""
        return Seconds(self.least + other.least, self.most + other.most)

    def times(self, least: float, most: float | None = None) -> Seconds:
        """So many times, or so many at least and at most."""
        return Seconds(self.least * least, self.most * (least if most is None else most))


def timed(action: Callable[[], object]) -> Seconds:
    """One run of an action, after one that warms up: the fastest of some, and their upper quartile.

    One that was disturbed must not count for all that follow. Of a long action the first run is all there is.
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
    """So many multiplications and additions in products of matrices with numbers as these."""
    square = torch.ones(_SIDE, _SIDE, dtype=like.dtype, device=like.device)
    return timed(lambda: square @ square).times(operations / (2 * _SIDE**3))


def eigenvectors(side: int, like: torch.Tensor) -> Seconds:
    """Of one symmetric matrix with numbers as these; large ones from a small one, by the cube of the side."""
    tried = min(side, _SIDE)
    matrix = torch.rand(tried, tried, dtype=like.dtype, device=like.device, generator=torch.Generator().manual_seed(0))
    found = timed(lambda: torch.linalg.eigh(matrix + matrix.T))
    return found.times((side / tried) ** 3)
