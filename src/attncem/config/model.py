"""Options of the network and of where it is cut."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from attncem.config.base import Options


class BottleneckOptions(Options):
    """The last layer of the client, which narrows z: a convolution, or for tokens a linear layer on each."""

    channels: int = Field(8, ge=1)
    """Channels of z; for tokens, dimensions of each."""
    stride: int = Field(1, ge=1, le=4)
    """Stride of the convolution; for tokens 1."""
    kernel: Literal[1, 3, 5] = 3
    """Size of the convolution; tokens have none."""
    relu: bool = False
    """ReLU after it."""


class ModelOptions(Options):
    """The network and the layer after which it is cut between client and server."""

    name: str = "small_cnn"
    """Architecture: small_cnn, vgg11_bn, resnet20, resnet18, mobilenet_v2 or vit_tiny."""
    cut: int | str = 2
    """Cut point: number or name; everything before it runs on the client."""
    width: int | None = Field(None, ge=4, le=512)
    """Channels of the first stage, with which the others scale; null: the architecture's own."""
    bottleneck: BottleneckOptions | None = BottleneckOptions()
    """Bottleneck at the end of the client; null: none."""
    sigmoid: bool = True
    """Sigmoid at the end of the client: bounds z, so that noise cannot be outgrown."""
    init_from: str | None = None
    """Start from these weights: a run folder (its best checkpoint) or a .safetensors file; null: from random ones."""
    init_parts: Literal["both", "client", "server"] = "both"
    """Which halves init_from fills; the other one starts from random weights."""
