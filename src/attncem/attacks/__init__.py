"""Attacks: they read what was released and try to recover x."""

from __future__ import annotations

from attncem.attacks.base import FittedAttack
from attncem.attacks.decoder import DecoderAttack
from attncem.attacks.floors import ClassMeanFloor, GreyFloor, MeanImageFloor, NearestNeighbour
from attncem.attacks.ridge import RidgeAttack
from attncem.config.base import Options
from attncem.progress import Report, silent

ATTACKS: dict[str, type[FittedAttack]] = {
    "grey": GreyFloor,
    "mean_image": MeanImageFloor,
    "class_mean": ClassMeanFloor,
    "nearest_neighbour": NearestNeighbour,
    "ridge": RidgeAttack,
    "decoder": DecoderAttack,
}
"""Attacks by name."""


def build_attack(options: Options, *, report: Report = silent) -> FittedAttack:
    """The attack that the options describe."""
    name: str = options.name  # type: ignore[attr-defined]
    return ATTACKS[name](options, report=report)
