"""Options of the network and of where it is cut."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from attncem.config.base import Options


class BottleneckOptions(Options):
    """The last convolution of the client, which narrows z."""

    channels: int = Field(8, ge=1)
    """Channels of z."""
    stride: int = Field(1, ge=1, le=4)
    """Stride of the convolution."""
    kernel: Literal[1, 3, 5] = 3
    """Size of the convolution."""
    relu: bool = False
    """ReLU after the convolution."""


class ModelOptions(Options):
    """The network and the layer after which it is cut between client and server."""

    name: str = "small_cnn"
    """Architecture."""
    cut: int | str = 2
    """Cut point: number or name; everything before it runs on the client."""
    width: int = Field(16, ge=4, le=512)
    """Channels of the first convolution; later ones are multiples of it."""
    bottleneck: BottleneckOptions | None = BottleneckOptions()
    """Bottleneck at the end of the client; null: none."""
    sigmoid: bool = True
    """Sigmoid at the end of the client: bounds z, so that noise cannot be outgrown."""
