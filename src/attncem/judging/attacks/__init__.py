"""Attacks: they try to recover the image x from its release."""

from __future__ import annotations

from attncem.base.progress import Progress, silent
from attncem.config.options.base import Options
from attncem.config.plugins import open_table
from attncem.judging.attacks.base import Attack
from attncem.judging.attacks.decoder import DecoderAttack
from attncem.judging.attacks.family import FamilyAttack
from attncem.judging.attacks.floors import ClassMeanFloor, GreyFloor, MeanImageFloor, NearestNeighbour
from attncem.judging.attacks.flow import FlowAttack
from attncem.judging.attacks.flow_prior import FlowPriorAttack
from attncem.judging.attacks.gan import GanAttack
from attncem.judging.attacks.image_prior import ImagePriorAttack
from attncem.judging.attacks.informed import InformedAttack
from attncem.judging.attacks.noise_guess import NoiseGuessAttack
from attncem.judging.attacks.optimisation import OptimisationAttack
from attncem.judging.attacks.published import PublishedAttack
from attncem.judging.attacks.rewhitening import RewhiteningAttack
from attncem.judging.attacks.ridge import RidgeAttack
from attncem.judging.attacks.substitute import SubstituteAttack

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
    "flow_prior": FlowPriorAttack,
    "optimisation": OptimisationAttack,
    "rewhitening": RewhiteningAttack,
    "noise_guess": NoiseGuessAttack,
    "substitute": SubstituteAttack,
    "image_prior": ImagePriorAttack,
}
"""Attacks by name."""
open_table("attack", ATTACKS, Attack)


def build_attack(options: Options, *, progress: Progress = silent) -> Attack:
    """The attack that the options describe."""
    name: str = options.name  # type: ignore[attr-defined]
    return ATTACKS[name](options, progress=progress)
