"""Engines: where the cells of a campaign run."""

from __future__ import annotations

from attncem.campaigns.engines.base import Ended, Engine, EngineOptions
from attncem.campaigns.engines.local import LocalEngine
from attncem.campaigns.engines.ray import RayEngine
from attncem.campaigns.engines.slurm import SlurmEngine

__all__ = ["ENGINES", "Ended", "Engine", "EngineOptions"]

ENGINES: dict[str, type[Engine]] = {"local": LocalEngine, "slurm": SlurmEngine, "ray": RayEngine}
"""Engines by name; the libraries of slurm and ray are imported when they are used."""
