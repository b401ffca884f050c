"""MobileNetV2 with the strides of small images."""

from __future__ import annotations

from torch import Tensor, nn

from attncem.base.types import DatasetSpec
from attncem.config.options.model import ModelOptions
from attncem.models.architecture import Architecture, Stage

PLAN = ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""(expansion, channels, blocks, stride of the first) as in Sandler et al., 2018, except for the strides: there the stem
and the second row halve the image, here they keep its resolution, so that 32 px end at 4."""
STEM, LAST = 32, 1280


class InvertedResidual(nn.Module):
    """Widen by 1x1, filter each channel by 3x3, narrow by 1x1 without ReLU; x is added where shapes allow."""

    def __init__(self, inputs: int, outputs: int, *, expansion: int, stride: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        widen = [_convolution(inputs, hidden, 1)] if expansion > 1 else []
        self.body = nn.Sequential(
            *widen,
            _convolution(hidden, hidden, 3, stride=stride, groups=hidden),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Inverted residual step."""
        out: Tensor = self.body(x)
        return x + out if self.residual else out


def mobilenet_v2(spec: DatasetSpec, options: ModelOptions) -> Architecture:
    """Stem, 17 inverted residuals and a last 1x1 convolution; all channels scale with the stem's (32)."""
    width = options.width or STEM
    stages: list[Stage] = [("stem", _convolution(spec.shape[0], width, 3), width)]
    channels = width
    for expansion, published, count, first_stride in PLAN:
        outputs = _scaled(published, width)
        for stride in [first_stride] + [1] * (count - 1):
            block = InvertedResidual(channels, outputs, expansion=expansion, stride=stride)
            stages.append((f"block{len(stages)}", block, outputs))
            channels = outputs
    last = _scaled(LAST, width)
    stages.append(("last", _convolution(channels, last, 1), last))
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(last, spec.num_classes))
    return Architecture(tuple(stages), head)


def _scaled(published: int, width: int) -> int:
    return max(1, round(published * width / STEM))


def _convolution(inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU6(inplace=True))
