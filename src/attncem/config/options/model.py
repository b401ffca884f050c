"""Options of the network and of where it is cut."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from attncem.config.options.base import Options


class NoFrontEndOptions(Options):
    """The normalised picture as it is."""

    name: Literal["none"] = "none"


class StandardiseOptions(Options):
    """Each picture loses its own mean colour and is divided by its own deviation."""

    name: Literal["standardise"] = "standardise"


class BlurOptions(Options):
    """What front ends share that take out what a Gaussian blur keeps."""

    name: str
    s: float = Field(3.0, gt=0, le=64)
    """Deviation of the blur in pixels; it reaches int(2.5 s + 0.5) pixels to either side, borders reflected."""
    a: float = Field(0.0, ge=0, le=1)
    """Part of the blurred picture that stays."""


class HighPassOptions(BlurOptions):
    """The picture without what a blur keeps of it, times 2."""

    name: Literal["high_pass"] = "high_pass"
    s: float = Field(2.0, gt=0, le=64)
    """Deviation of the blur in pixels; it reaches int(2.5 s + 0.5) pixels to either side, borders reflected."""


class HighPassStandardiseOptions(BlurOptions):
    """The picture without what a blur keeps of it, divided by its own deviation."""

    name: Literal["high_pass_standardise"] = "high_pass_standardise"
    s: float = Field(2.0, gt=0, le=64)
    """Deviation of the blur in pixels; it reaches int(2.5 s + 0.5) pixels to either side, borders reflected."""


class LocalContrastOptions(BlurOptions):
    """The picture without what a blur keeps of it, divided by its deviation around each pixel (Jarrett et al. 2009)."""

    name: Literal["local_contrast"] = "local_contrast"


class LearnedContrastOptions(BlurOptions):
    """As local_contrast, but the weights of its two blurs are learned; they begin as the Gaussian's."""

    name: Literal["learned_contrast"] = "learned_contrast"
    s: float = Field(3.0, gt=0, le=64)
    """Deviation in pixels of the Gaussian that both begin as; they reach int(2.5 s + 0.5) pixels to either side,
    borders reflected."""


class BlockDCTOptions(Options):
    """The lowest frequencies of every block of 8×8 pixels times `a`, as face recognition without them has it."""

    name: Literal["block_dct"] = "block_dct"
    n: int = Field(1, ge=1, le=64)
    """Coefficients, the first in zig-zag order, that are multiplied; 1: each block's mean alone."""
    a: float = Field(0.0, ge=0, le=1)
    """What they are multiplied by."""


FrontEndOptions = Annotated[
    NoFrontEndOptions
    | StandardiseOptions
    | HighPassOptions
    | HighPassStandardiseOptions
    | LocalContrastOptions
    | LearnedContrastOptions
    | BlockDCTOptions,
    Field(discriminator="name"),
]
"""Options of any front end, told apart by ``name``."""


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


class SparseCodingOptions(Options):
    """Wᵀ soft(W z, threshold) between bottleneck and sigmoid, W learned (the baseline's SCA layer)."""

    threshold: float = Field(0.01, ge=0)
    """What every code is shrunk by (the baseline: 0.01)."""


class PruningOptions(Options):
    """Once, the least important channels of the client are closed (the baseline's form of PATROL)."""

    after: float = Field(0.75, gt=0, lt=1)
    """Part of the training after which it happens, rounded to an epoch (the baseline's pruning180 of 240 epochs)."""
    ratio: float = Field(0.05, gt=0, lt=1)
    """Share of every layer's channels that is closed (the baseline: 0.05)."""
    keep_up_to: int = Field(32, ge=1)
    """Convolutions of at most so many outputs stay whole (the baseline: 32)."""
    batches: int = Field(8, ge=1)
    """Training batches on which the importance of channels is measured (the baseline: one image of random noise)."""


class ModelOptions(Options):
    """The network and the layer after which it is cut between client and server."""

    name: str = "small_cnn"
    """Architecture: small_cnn, vgg11_bn, thin_vgg11_bn, resnet20, resnet18, mobilenet_v2 or vit_tiny; with the extra
    `vision` also torchvision/NAME or timm/NAME."""
    cut: int | str = 2
    """Cut point: number or name; everything before it runs on the client. For torchvision/ and timm/ the name of
    a module, the last one of the client."""
    arguments: dict[str, bool | int | float | str] = Field({})
    """Further arguments of a torchvision/ or timm/ network, e.g. {img_size: 64}."""
    front_end: FrontEndOptions = NoFrontEndOptions()
    """What the client takes out of the normalised picture before its first layer."""
    width: int | None = Field(None, ge=4, le=512)
    """Channels of the first stage, with which the others scale; null: the architecture's own."""
    bottleneck: BottleneckOptions | None = BottleneckOptions()
    """Bottleneck at the end of the client; null: none."""
    extra_layer: bool = False
    """vgg11_bn: one more convolution at the start, of a quarter of the width (the baseline has it with pruning)."""
    blocks: int | None = Field(None, ge=0, le=100)
    """thin_vgg11_bn: residual blocks of the client; null: 17, which cost what the stages cost that they replace."""
    sparse_coding: SparseCodingOptions | None = None
    """Sparse coding layer after the bottleneck, before the sigmoid; null: none."""
    pruning: PruningOptions | None = None
    """Pruning of the client's channels during training; null: none."""
    sigmoid: bool = True
    """Sigmoid at the end of the client: bounds z, so that noise cannot be outgrown."""
    init_from: str | None = None
    """Start from these weights: a run folder (its best checkpoint) or a .safetensors file; null: from random ones."""
    init_parts: Literal["both", "client", "server"] = "both"
    """Which halves init_from fills; the other one starts from random weights."""
