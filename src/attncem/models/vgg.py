"""VGG11 with batch normalisation as the CEM baseline cuts it."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

from attncem.base.types import DatasetSpec
from attncem.config.options.model import ModelOptions
from attncem.models.architecture import Architecture, Stage

PLAN = (1, None, 2, None, 4, 4, None, 8, 8, None, 8, 8, None)
"""Configuration A (Simonyan and Zisserman, 2015) in multiples of the first width; None: max-pooling."""


class Halve(nn.Module):
    """Max-pooling over 2x2 that leaves a map unchanged if it is too small to pool: five halvings of 28 px."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to [B, C, H // 2, W // 2]."""
        return F.max_pool2d(x, 2) if min(x.shape[-2:]) > 1 else x


def vgg11_bn(spec: DatasetSpec, options: ModelOptions) -> Architecture:
    """Eight convolutions and five poolings, each a stage: the baseline's "cutlayer 4" is cut 4 here."""
    width = options.width or 64
    stages: list[Stage] = []
    channels = spec.shape[0]
    for multiple in PLAN:
        kind = "pool" if multiple is None else "conv"
        name = f"{kind}{1 + sum(other.startswith(kind) for other, _, _ in stages)}"
        outputs = channels if multiple is None else multiple * width
        extra = [width // 4] if options.extra_layer and not stages else []
        stages.append((name, Halve() if multiple is None else _convolution(channels, *extra, outputs), outputs))
        channels = outputs
    return Architecture(tuple(stages), _classifier(channels, spec.num_classes), initialise_client=_xavier)


def _convolution(*widths: int) -> nn.Sequential:
    """Convolutions from the first width through the others, each normalised and rectified."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


def _classifier(width: int, num_classes: int) -> nn.Sequential:
    """Two hidden layers with dropout; for 32 px the pooling before them has no effect, as the map is already 1x1."""
    hidden: list[nn.Module] = []
    for _ in range(2):
        hidden += [nn.Dropout(0.5), nn.Linear(width, width), nn.ReLU(inplace=True)]
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), *hidden, nn.Linear(width, num_classes))


def _xavier(module: nn.Module) -> None:
    """Xavier-uniform weights and zero bias, which the baseline uses for the client's convolutions only."""
    if isinstance(module, nn.Conv2d):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
