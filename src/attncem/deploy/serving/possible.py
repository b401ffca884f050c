"""Which numbers a client of a channel can send: their range, and the grid that they lie on.

This finds mistakes: another bundle, another scaling, pixels instead of z. It does not stop an attacker, who can send
any z that is possible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from attncem_edge.errors import BundleError
from attncem_edge.manifest import Manifest

Numbers = NDArray[np.float32]

_TAILS = {"laplace": 25.0, "shaped": 16.0}
"""Standard deviations that noise reaches with the probability of 8 for normal noise, 1e-15. Laplace noise has longer
tails; shaped noise has up to twice its mean strength at the edge of a map."""
_TAIL = 8.0
_SLACK = 1e-4
"""Share of the range for what two runtimes compute differently."""
_ROUNDING = 4 * float(np.finfo(np.float32).eps)
"""Relative distance from a level that counts as that level."""


class Grid(Protocol):
    """Values that a channel rounds to."""

    def off(self, z: NDArray[np.float64]) -> int:
        """How many numbers are none of these values."""
        ...


@dataclass(frozen=True)
class Multiples:
    """The multiples of a power of two."""

    step: float

    def off(self, z: NDArray[np.float64]) -> int:
        """How many numbers are no multiple; exact, as is the division by a power of two."""
        scaled = z / self.step
        return int(np.count_nonzero(scaled != np.rint(scaled)))


@dataclass(frozen=True)
class Levels:
    """The 2^bits levels from low to high, and 0 where a later stage sets values to it."""

    low: float
    high: float
    bits: int
    zero: bool = False

    def off(self, z: NDArray[np.float64]) -> int:
        """How many numbers are no level, up to the rounding of float32."""
        last = 2**self.bits - 1
        step = (self.high - self.low) / last
        nearest = self.low + step * np.clip(np.rint((z - self.low) / step), 0, last)
        away = np.abs(z - nearest) > _ROUNDING * max(abs(self.low), abs(self.high))
        return int(np.count_nonzero(away & (z != 0) if self.zero else away))


@dataclass(frozen=True)
class Possible:
    """The range of every number, and the grid, or None."""

    low: float = -np.inf
    high: float = np.inf
    grid: Grid | None = None

    def problem(self, z: Numbers) -> str | None:
        """Why no client of this channel sends such numbers; None: one can."""
        if not self._fits(z):
            return self._outside(z)
        if self.grid is not None and (off := self.grid.off(z.astype(np.float64))):
            return f"{off} of {z.size} numbers of z are not on the grid of this model's channel"
        return None

    def _fits(self, z: Numbers) -> bool:
        """Whether all numbers are finite and in the range: two passes, where counting those that are not needs five."""
        least, most = z.min(), z.max()
        return bool(-np.inf < least and most < np.inf and self.low <= least and most <= self.high)

    def _outside(self, z: Numbers) -> str:
        if not np.isfinite(z).all():
            return f"{int(np.count_nonzero(~np.isfinite(z)))} of {z.size} numbers of z are not finite"
        outside = int(np.count_nonzero((z < self.low) | (z > self.high)))
        return f"{outside} of {z.size} numbers of z are outside [{self.low:.6g}, {self.high:.6g}]"


Stage = Mapping[str, Any]


def _noisy(before: Possible, stage: Stage) -> Possible:
    reach = _TAILS.get(stage["name"], _TAIL) * float(stage["noise_std"])
    return before if reach == 0 else Possible(before.low - reach, before.high + reach)


def _clipped(before: Possible, stage: Stage) -> Possible:
    clip = float(stage["clip"])
    shorter = Possible(max(min(before.low, 0.0), -clip), min(max(before.high, 0.0), clip))
    grid = float(stage["grid"])
    noisy = _noisy(shorter, stage)
    return Possible(noisy.low - grid, noisy.high + grid, Multiples(grid))


def _with_zeros(before: Possible, stage: Stage) -> Possible:
    grid = replace(before.grid, zero=True) if isinstance(before.grid, Levels) else before.grid
    return Possible(min(before.low, 0.0), max(before.high, 0.0), grid)


def _dropped(before: Possible, stage: Stage) -> Possible:
    zeros = _with_zeros(before, stage)
    kept = 1 - float(stage["rate"])
    return Possible(zeros.low / kept, zeros.high / kept) if stage.get("rescale") else zeros


def _quantised(before: Possible, stage: Stage) -> Possible:
    low, high = float(stage["low"]), float(stage["high"])
    return Possible(low, high, Levels(low, high, int(stage["bits"])))


STAGES: dict[str, Callable[[Possible, Stage], Possible]] = {
    "identity": lambda before, stage: before,
    "gaussian": _noisy,
    "laplace": _noisy,
    "shaped": _noisy,
    "local_dp": _clipped,
    "dropout": _dropped,
    "top_k": _with_zeros,
    "quantise": _quantised,
}
"""What each channel makes of the possible numbers."""


def possible_numbers(manifest: Manifest) -> Possible:
    """What clients of a bundle can send; BundleError where a stage is unknown or incomplete."""
    now = Possible(*_clean(manifest.feature.low, manifest.feature.high))
    for stage in manifest.channel:
        try:
            now = STAGES[stage["name"]](now, stage)
        except (KeyError, TypeError, ValueError, ArithmeticError) as error:
            raise BundleError(
                f"bundle {manifest.name}: this version cannot serve the channel stage {stage.get('name')!r}: "
                f"{type(error).__name__} {error}"
            ) from error
    return _wider(now)


def _clean(low: float | None, high: float | None) -> tuple[float, float]:
    return -np.inf if low is None else low, np.inf if high is None else high


def _wider(exact: Possible) -> Possible:
    """The range with its slack."""
    ends = [abs(end) for end in (exact.low, exact.high) if np.isfinite(end)]
    slack = _SLACK * max(ends, default=0.0)
    return Possible(exact.low - slack, exact.high + slack, exact.grid)
