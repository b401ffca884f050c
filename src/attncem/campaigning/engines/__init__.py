"""Engines: where the cells of a campaign are worked on."""

from __future__ import annotations

from attncem.campaigning.engines.base import Ended, Engine, EngineOptions
from attncem.campaigning.engines.local import LocalEngine
from attncem.campaigning.engines.ray import RayEngine
from attncem.campaigning.engines.slurm import SlurmEngine

__all__ = ["ENGINES", "Ended", "Engine", "EngineOptions"]

ENGINES: dict[str, type[Engine]] = {"local": LocalEngine, "slurm": SlurmEngine, "ray": RayEngine}
"""Engines by name; what slurm and ray need is imported when they are asked for."""
