"""The fraction of a blind guess's error that an attack leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from attncem.records.metrics import PERFECT

_NO_ERROR = 1e-9
"""Errors below this are rounding."""


@dataclass(frozen=True)
class Remaining:
    """The fraction of a blind guess's error that an attack leaves in one measure; a similarity s has the error 1 − s.

    ``floor`` is the best blind guess in this measure, ``blind`` its value. ``share`` is 0 for a perfect copy and 1
    where the attack is no better than the guess; it may be larger.
    """

    value: float
    floor: str
    blind: float
    share: float


def remaining(name: str, value: float, blind: Mapping[str, float]) -> Remaining | None:
    """What a value of a measure leaves of the best of these blind guesses.

    None where there is no guess, where a blind guess is already perfect, and for measures without a perfect value.
    """
    if name not in PERFECT:
        return None
    errors = {guess: abs(mean - PERFECT[name]) for guess, mean in blind.items()}
    best = min(errors, key=errors.__getitem__, default=None)
    if best is None or errors[best] < _NO_ERROR:
        return None
    return Remaining(value, best, blind[best], abs(value - PERFECT[name]) / errors[best])
