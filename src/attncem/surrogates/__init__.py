"""Surrogates: estimates of the spread of z inside a class, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attncem.config.load import load_config
from attncem.surrogates.base import Surrogate
from attncem.surrogates.capacity import CapacityPenalty
from attncem.surrogates.gated import GatedAttentionCEM
from attncem.surrogates.gmm import GaussianMixtureCEM
from attncem.surrogates.hybrid import HybridCEM
from attncem.surrogates.kmeans import KMeansCEM
from attncem.surrogates.logdet import LogDetPenalty
from attncem.surrogates.none import NoPenalty
from attncem.surrogates.slot import SlotCrossAttentionCEM

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
"""Every surrogate by the name it has in a configuration."""


def build_surrogate(
    name: str, *, feature_shape: Sequence[int], num_classes: int, noise_std: float, **options: Any
) -> Surrogate:
    """A surrogate by name: ``feature_shape`` is z's shape without the batch, ``options`` those of its options class.

    Raises ConfigError (a ValueError) for an unknown name, an unknown or invalid option, and noise_std=0 where a
    floor is measured in units of the noise: the same words as for a whole configuration.
    """
    data = {"surrogate": {"name": name, **options}, "channel": {"name": "gaussian", "noise_std": noise_std}}
    parsed = load_config(data).config.surrogate
    return SURROGATES[name](parsed, feature_shape=feature_shape, num_classes=num_classes, noise_std=noise_std)
