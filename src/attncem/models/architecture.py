"""Interface between a network and the code that cuts it: named stages, a head, and the kind of its features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import nn

Stage = tuple[str, nn.Module, int]
"""(name, module, output channels)."""


@dataclass(frozen=True)
class Architecture:
    """A network as named stages; cut k is after stage k, so the last stage always belongs to the server."""

    stages: tuple[Stage, ...]
    """(name, module, output channels)."""
    head: nn.Module
    features: Literal["map", "tokens"] = "map"
    """Output of a stage: maps [B, C, H, W], narrowed by a convolution, or tokens [B, N, D], by a linear layer."""
    initialise_client: Callable[[nn.Module], None] | None = None
    """Applied to every module of the finished client, including its bottleneck; None: torch's initial weights."""

    def cut_names(self) -> list[str]:
        """Names of the stages after which the network can be cut."""
        return [name for name, _, _ in self.stages[:-1]]
