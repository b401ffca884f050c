"""Surrogates by name: estimates of the spread of z inside a class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attncem.config.loading.load import load_config
from attncem.config.options.surrogate_base import SurrogateOptions
from attncem.config.plugins import open_table
from attncem.training.risk import class_risks, read_risk_audit
from attncem.training.surrogates.base import Surrogate
from attncem.training.surrogates.capacity import CapacityPenalty
from attncem.training.surrogates.gated import GatedAttentionCEM
from attncem.training.surrogates.gmm import GaussianMixtureCEM
from attncem.training.surrogates.hybrid import HybridCEM
from attncem.training.surrogates.kmeans import KMeansCEM
from attncem.training.surrogates.logdet import LogDetPenalty
from attncem.training.surrogates.none import NoPenalty
from attncem.training.surrogates.slot import SlotCrossAttentionCEM

__all__ = ["SURROGATES", "Surrogate", "build_surrogate"]

SURROGATES: dict[str, type[Surrogate]] = {
    "none": NoPenalty,
    "kmeans": KMeansCEM,
    "gmm": GaussianMixtureCEM,
    "capacity": CapacityPenalty,
    "logdet": LogDetPenalty,
    "gated": GatedAttentionCEM,
    "slot": SlotCrossAttentionCEM,
    "hybrid": HybridCEM,
}
"""Every surrogate by its name in a configuration."""
open_table("surrogate", SURROGATES, Surrogate)


def build_surrogate(
    name: str, *, feature_shape: Sequence[int], num_classes: int, noise_std: float, **options: Any
) -> Surrogate:
    """A surrogate by name: ``feature_shape`` is z's shape without the batch, ``options`` those of its options class.

    Raises ConfigError (a ValueError) for an unknown name, an unknown or invalid option, and for noise_std=0 where the
    floor is in units of the noise. The messages are those of a whole configuration.
    """
    data = {"surrogate": {"name": name, **options}, "channel": {"name": "gaussian", "noise_std": noise_std}}
    parsed = load_config({**data, "release": {"when": "unsure"}}).config.surrogate  # the caller gives any doubts
    return construct(name, parsed, feature_shape=feature_shape, num_classes=num_classes, noise_std=noise_std)


def construct(
    name: str, options: SurrogateOptions, *, feature_shape: Sequence[int], num_classes: int, noise_std: float
) -> Surrogate:
    """The surrogate of these options; with `risk_audit`, it gets the risks of the classes from that audit."""
    surrogate = SURROGATES[name](options, feature_shape=feature_shape, num_classes=num_classes, noise_std=noise_std)
    if isinstance(surrogate, HybridCEM) and surrogate.options.risk_audit is not None:
        audit = read_risk_audit(surrogate.options.risk_audit)
        risks = class_risks(audit, num_classes, surrogate.options.risk_by)
        surrogate.mark_for_good(risks, on_test_images=audit.plan.evaluation == "test")
    return surrogate
