"""A critic of images: high values for real images, low values for a decoder's."""

from __future__ import annotations

import math

from torch import Tensor, nn

from attncem.models.decoders import ImageShape

WIDTHS = (64, 128, 256)


class Critic(nn.Module):
    """The baseline's DGWGAN32 for images of any size: 5x5 convolutions with stride 2, then one number per image.

    Every image is normalised separately, as the gradient penalty requires.
    """

    def __init__(self, image_shape: ImageShape) -> None:
        super().__init__()
        channels, *sides = image_shape
        layers: list[nn.Module] = []
        for number, width in enumerate(WIDTHS):
            sides = [math.ceil(side / 2) for side in sides]
            layers.append(nn.Conv2d(channels, width, 5, stride=2, padding=2))
            if number and math.prod(sides) > 1:  # one position has no statistics to normalise by
                layers.append(nn.InstanceNorm2d(width, affine=True))
            layers.append(nn.LeakyReLU(0.2))
            channels = width
        self.body = nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * math.prod(sides), 1))

    def forward(self, images: Tensor) -> Tensor:
        """[B]."""
        score: Tensor = self.body(images).squeeze(1)
        return score
