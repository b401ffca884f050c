"""VGG11-BN with a thin, deep client: as many multiply-accumulates as the first four stages that it replaces."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from attncem.base.types import ConfigError, DatasetSpec
from attncem.config.options.model import ModelOptions
from attncem.models.architecture import Architecture, Stage
from attncem.models.vgg import Halve, vgg11_bn

REPLACED = 4
"""Number of stages of VGG11-BN that the client replaces: two convolutions, two poolings."""
BLOCKS = 17
"""Default number of residual blocks. For wide networks, the replaced stages and the bottleneck take 4608 w²
multiply-accumulates at 32 px and width w, the client 256 w² (1 + blocks)."""


class Separable(nn.Module):
    """3x3 on each channel, then 1x1 across them, each normalised and rectified; x is added where widths are equal."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, inputs, 3, padding=1, groups=inputs, bias=False),
            nn.BatchNorm2d(inputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(inputs, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.residual = inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to [B, outputs, H, W]."""
        out: Tensor = self.body(x)
        return F.relu(x + out if self.residual else out)


def thin_vgg11_bn(spec: DatasetSpec, options: ModelOptions) -> Architecture:
    """Four stages of ours, then VGG11-BN from its third convolution: at cut 4 only the client differs."""
    width = options.width or 64
    if width % 2:
        raise ConfigError(f"model.width={width}: thin_vgg11_bn begins with half of it, so it must be even")
    whole = vgg11_bn(spec, options)
    half, double = width // 2, 2 * width
    blocks = BLOCKS if options.blocks is None else options.blocks
    client: list[Stage] = [
        ("stem", _stem(spec.shape[0], half), half),
        ("separable1", nn.Sequential(Separable(half, width), Halve()), width),
        ("separable2", Separable(width, double), double),
        ("deep", nn.Sequential(*(Separable(double, double) for _ in range(blocks))), double),
    ]
    return Architecture((*client, *whole.stages[REPLACED:]), whole.head, initialise_client=whole.initialise_client)


def _stem(inputs: int, outputs: int) -> nn.Sequential:
    """A convolution of stride 2 instead of the first pooling."""
    conv = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))
