"""Engines: where the cells of a campaign are worked on."""

from __future__ import annotations

from attncem.campaigns.engines.base import Ended, Engine, EngineOptions
from attncem.campaigns.engines.local import LocalEngine
from attncem.campaigns.engines.ray import RayEngine
from attncem.campaigns.engines.slurm import SlurmEngine

__all__ = ["ENGINES", "Ended", "Engine", "EngineOptions"]

ENGINES: dict[str, type[Engine]] = {"local": LocalEngine, "slurm": SlurmEngine, "ray": RayEngine}
"""Engines by name; what slurm and ray need is imported when they are asked for."""
