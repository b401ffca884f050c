"""Engines: where the cells of a campaign are worked on."""

from __future__ import annotations

from attncem.campaigning.engines.base import Ended, Engine, EngineOptions
from attncem.campaigning.engines.local import LocalEngine

__all__ = ["ENGINES", "Ended", "Engine", "EngineOptions"]

ENGINES: dict[str, type[Engine]] = {"local": LocalEngine}
"""Engines by name."""
