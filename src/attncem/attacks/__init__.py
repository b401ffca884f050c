"""Attacks: they read what was released and try to recover x."""

from __future__ import annotations

from attncem.attacks.base import Attack
from attncem.attacks.decoder import DecoderAttack
from attncem.attacks.family import FamilyAttack
from attncem.attacks.floors import ClassMeanFloor, GreyFloor, MeanImageFloor, NearestNeighbour
from attncem.attacks.flow import FlowAttack
from attncem.attacks.gan import GanAttack
from attncem.attacks.image_prior import ImagePriorAttack
from attncem.attacks.informed import InformedAttack
from attncem.attacks.noise_guess import NoiseGuessAttack
from attncem.attacks.optimisation import OptimisationAttack
from attncem.attacks.published import PublishedAttack
from attncem.attacks.rewhitening import RewhiteningAttack
from attncem.attacks.ridge import RidgeAttack
from attncem.attacks.substitute import SubstituteAttack
from attncem.config.base import Options
from attncem.progress import Progress, silent

ATTACKS: dict[str, type[Attack]] = {
    "grey": GreyFloor,
    "mean_image": MeanImageFloor,
    "class_mean": ClassMeanFloor,
    "nearest_neighbour": NearestNeighbour,
    "ridge": RidgeAttack,
    "decoder": DecoderAttack,
    "published": PublishedAttack,
    "gan": GanAttack,
    "family": FamilyAttack,
    "informed": InformedAttack,
    "flow": FlowAttack,
    "optimisation": OptimisationAttack,
    "rewhitening": RewhiteningAttack,
    "noise_guess": NoiseGuessAttack,
    "substitute": SubstituteAttack,
    "image_prior": ImagePriorAttack,
}
"""Attacks by name."""


def build_attack(options: Options, *, progress: Progress = silent) -> Attack:
    """The attack that the options describe."""
    name: str = options.name  # type: ignore[attr-defined]
    return ATTACKS[name](options, progress=progress)
