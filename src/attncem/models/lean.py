"""Lean clients: a network family that spends a budget of multiply-accumulates on depth (docs/networks.md)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attncem.base.types import ConfigError, DatasetSpec
from attncem.config.options.model import BottleneckOptions, ModelOptions
from attncem.models.architecture import Architecture, Stage
from attncem.models.front_ends import build_front_end
from attncem.models.lean_plan import CHANNELS, Block, LeanPlan, described, plan, size_of
from attncem.models.lean_servers import Networks, server_of

__all__ = ["LeanPlan", "described", "lean", "lean_classifier", "plan", "plan_of", "trunk"]


class SqueezeExcitation(nn.Module):
    """Multiplies each channel by a number in (0, 1), computed from the means of all channels (Hu et al., 2018)."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.weigh = nn.Sequential(
            nn.Linear(channels, squeezed), nn.ReLU(inplace=True), nn.Linear(squeezed, channels), nn.Sigmoid()
        )

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to the same shape."""
        weights: Tensor = self.weigh(x.mean((2, 3)))
        return x * weights[:, :, None, None]


class LeanBlock(nn.Module):
    """1x1 to hidden channels, depthwise 3x3, squeeze-excitation, 1x1 without ReLU; x is added where shapes agree."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        hidden = block.hidden
        self.body = nn.Sequential(
            nn.Conv2d(block.inputs, hidden, 1, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU(inplace=True),
            nn.Conv2d(hidden, hidden, 3, stride=block.stride, padding=1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU(inplace=True),
            SqueezeExcitation(hidden, block.squeezed),
            nn.Conv2d(hidden, block.outputs, 1, bias=False),
            nn.BatchNorm2d(block.outputs),
        )
        self.residual = block.stride == 1 and block.inputs == block.outputs

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to [B, outputs, ceil(H / stride), ceil(W / stride)]."""
        out: Tensor = self.body(x)
        return x + out if self.residual else out


def plan_of(spec: DatasetSpec, options: ModelOptions, *, classes: int = 0) -> LeanPlan:
    """The plan of a configuration's client; front end and sparse coding take their part of the budget.

    With `classes` it is the plan of a whole network, as in `plan`. ConfigError without a budget.
    """
    if options.macs is None:
        raise ConfigError(
            "model.macs=null: lean needs the client's budget of multiply-accumulates, e.g. model.macs=4e6"
        )
    with torch.device("cpu"):
        spent = build_front_end(options.front_end, spec).macs
    if options.sparse_coding is not None and not classes:
        height, width = size_of(spec.shape, options.macs, options.side)
        spent += 2 * ((options.channels or CHANNELS) * height * width) ** 2
    return plan(spec.shape, options.macs, options.side, options.channels, spent=spent, classes=classes)


def lean(spec: DatasetSpec, options: ModelOptions, servers: Networks) -> Architecture:
    """Stem and trunk of the largest client within the budget, then the stages of a server: its own, or one of these."""
    _refuse(options)
    chosen = plan_of(spec, options)
    narrow = nn.Conv2d(chosen.width, chosen.channels, 1)
    client: list[Stage] = [
        ("stem", _stem(chosen), chosen.stem),
        ("trunk", nn.Sequential(*map(LeanBlock, chosen.blocks), narrow), chosen.channels),
    ]
    server = server_of(spec, options, (chosen.channels, *chosen.size), servers)
    return Architecture((*client, *server.stages), server.head, only_cut=len(client))


def _refuse(options: ModelOptions) -> None:
    """ConfigError for options of other networks: the plan sets what they would."""
    if options.width is not None:
        raise ConfigError(f"model.width={options.width}: lean chooses its widths by model.macs; leave it null")
    bottleneck = options.bottleneck
    why = "lean narrows z itself, by a 1x1 convolution to model.channels"
    if bottleneck is None:
        raise ConfigError(f"model.bottleneck=null: {why}; leave the bottleneck at its default")
    for key, usual in BottleneckOptions():
        value = getattr(bottleneck, key)
        if value != usual:
            raise ConfigError(f"model.bottleneck.{key}={value}: {why}; use model.bottleneck.{key}={usual}")


def trunk(shape: tuple[int, int, int], chosen: LeanPlan) -> nn.Sequential:
    """Stem and blocks of a plan, without the convolution to z."""
    if shape != chosen.shape:
        raise ValueError(f"the plan is for images of {chosen.shape}, not {shape}")
    return nn.Sequential(_stem(chosen), *map(LeanBlock, chosen.blocks))


def lean_classifier(spec: DatasetSpec, chosen: LeanPlan) -> tuple[nn.Sequential, nn.Sequential]:
    """The trunk and a pooled linear head: a whole network for the client alone, of a plan made with `classes`."""
    if chosen.classes != spec.num_classes:
        raise ValueError(f"the plan is for {chosen.classes} classes, not {spec.num_classes}: pass classes= to plan")
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(chosen.width, spec.num_classes))
    return trunk(spec.shape, chosen), head


def _stem(chosen: LeanPlan) -> nn.Sequential:
    conv = nn.Conv2d(chosen.shape[0], chosen.stem, 3, stride=chosen.stem_stride, padding=1, bias=False)
    pooling = [nn.AvgPool2d(2, ceil_mode=True) for _ in range(chosen.pooled)]
    return nn.Sequential(*pooling, conv, nn.BatchNorm2d(chosen.stem), nn.ReLU(inplace=True))
