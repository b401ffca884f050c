"""Residual networks for small images: a 3x3 stem that keeps the resolution, no max-pooling."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from attncem.base.types import DatasetSpec
from attncem.config.options.model import ModelOptions
from attncem.models.architecture import Architecture, Stage


class PaddedShortcut(nn.Module):
    """Every other pixel, new channels zero: the shortcut without parameters (He et al., 2016, option A)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.extra = outputs - inputs
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs, H, W] to [B, outputs, ceil(H / stride), ceil(W / stride)]."""
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.extra))


class BasicBlock(nn.Module):
    """relu(shortcut(x) + body(x)), the body two 3x3 convolutions with batch normalisation."""

    def __init__(self, inputs: int, outputs: int, stride: int, *, projection: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = (
                _projection(inputs, outputs, stride) if projection else PaddedShortcut(inputs, outputs, stride)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Residual step."""
        return F.relu(self.shortcut(x) + self.body(x))


def resnet20(spec: DatasetSpec, options: ModelOptions) -> Architecture:
    """Three layers of three blocks, widths 16, 32, 64, shortcuts without parameters."""
    return _resnet(spec, options.width or 16, layers=(3, 3, 3), projection=False)


def resnet18(spec: DatasetSpec, options: ModelOptions) -> Architecture:
    """Four layers of two blocks, widths 64 to 512, projection shortcuts."""
    return _resnet(spec, options.width or 64, layers=(2, 2, 2, 2), projection=True)


def _resnet(spec: DatasetSpec, width: int, *, layers: tuple[int, ...], projection: bool) -> Architecture:
    """Stem and blocks, each a stage: `stem`, `layer1.0`, `layer1.1` ... Every layer but the first halves the map."""
    stages: list[Stage] = [("stem", _stem(spec.shape[0], width), width)]
    channels = width
    for layer, count in enumerate(layers):
        outputs = width * 2**layer
        for number in range(count):
            stride = 2 if layer > 0 and number == 0 else 1
            block = BasicBlock(channels, outputs, stride, projection=projection)
            stages.append((f"layer{layer + 1}.{number}", block, outputs))
            channels = outputs
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, spec.num_classes))
    return Architecture(tuple(stages), head)


def _stem(inputs: int, width: int) -> nn.Sequential:
    conv = nn.Conv2d(inputs, width, 3, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(width), nn.ReLU(inplace=True))


def _projection(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs))
