"""Interface between a network and the code that cuts it: named stages, a head, and the kind of its features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import nn

Stage = tuple[str, nn.Module, int]
"""(name, module, output channels)."""


def channels_last(feature: Sequence[int], image: tuple[int, int, int]) -> bool:
    """Whether a feature of one image is [H, W, C]: only its first two sizes have the proportions of the image."""
    if len(feature) != 3:
        return False
    first, middle, last = feature
    _, height, width = image

    def alike(rows: int, columns: int) -> bool:
        """Whether a map of this size can come from the image, with sizes rounded up or down."""
        return abs(rows * width - columns * height) < max(height, width)

    return alike(first, middle) and not alike(middle, last)


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

    only_cut: int | None = None
    """The one cut of a network whose client narrows z itself, without a bottleneck; None: any, with a bottleneck."""

    def cut_names(self) -> list[str]:
        """Names of the stages after which the network can be cut."""
        return list(self.cuts().values())

    def cuts(self) -> dict[int, str]:
        """Number and name of the stages after which the network can be cut."""
        names = {number: name for number, (name, _, _) in enumerate(self.stages[:-1], 1)}
        return names if self.only_cut is None else {self.only_cut: names[self.only_cut]}
