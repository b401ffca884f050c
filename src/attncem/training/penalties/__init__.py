"""Penalties: terms of the loss in addition to the surrogate's, by name."""

from __future__ import annotations

from attncem.config.plugins import open_table
from attncem.training.penalties.adversarial import AdversarialDecoder
from attncem.training.penalties.base import Penalty
from attncem.training.penalties.distance_correlation import DistanceCorrelation
from attncem.training.penalties.vib import VariationalBottleneck

__all__ = ["PENALTIES", "Penalty"]

PENALTIES: dict[str, type[Penalty]] = {
    "adversarial": AdversarialDecoder,
    "distance_correlation": DistanceCorrelation,
    "vib": VariationalBottleneck,
}
"""Every penalty by the name it has in a configuration."""
open_table("penalty", PENALTIES, Penalty)
