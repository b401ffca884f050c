"""Options of the network and its cut."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from attncem.config.options.base import Options
from attncem.config.options.opened import Opened


class NoFrontEndOptions(Options):
    """The normalised picture, unchanged."""

    name: Literal["none"] = "none"


class StandardiseOptions(Options):
    """Subtracts the mean colour of each picture and divides by its standard deviation."""

    name: Literal["standardise"] = "standardise"


class BlurOptions(Options):
    """Options of front ends that remove a Gaussian blur."""

    name: str
    s: float = Field(3.0, gt=0, le=64)
    """Standard deviation of the blur in pixels; its radius is int(2.5 s + 0.5) pixels, with reflected borders."""
    a: float = Field(0.0, ge=0, le=1)
    """Part of the blurred picture to keep."""


class HighPassOptions(BlurOptions):
    """The picture minus its blur, times 2."""

    name: Literal["high_pass"] = "high_pass"
    s: float = Field(2.0, gt=0, le=64)
    """Standard deviation of the blur in pixels; its radius is int(2.5 s + 0.5) pixels, with reflected borders."""


class HighPassStandardiseOptions(BlurOptions):
    """The picture minus its blur, divided by its standard deviation."""

    name: Literal["high_pass_standardise"] = "high_pass_standardise"
    s: float = Field(2.0, gt=0, le=64)
    """Standard deviation of the blur in pixels; its radius is int(2.5 s + 0.5) pixels, with reflected borders."""


class LocalContrastOptions(BlurOptions):
    """The picture minus its blur, divided by its local standard deviation (Jarrett et al. 2009)."""

    name: Literal["local_contrast"] = "local_contrast"


class LearnedContrastOptions(BlurOptions):
    """As local_contrast, with learned weights of its two blurs, which start as the Gaussian."""

    name: Literal["learned_contrast"] = "learned_contrast"
    s: float = Field(3.0, gt=0, le=64)
    """Standard deviation in pixels of the initial Gaussian; the radius is int(2.5 s + 0.5) pixels, with reflected
    borders."""


class BlockDCTOptions(Options):
    """Multiplies the lowest frequencies of every 8×8 block by `a`, as in privacy-preserving face recognition."""

    name: Literal["block_dct"] = "block_dct"
    n: int = Field(1, ge=1, le=64)
    """Number of coefficients to multiply, in zig-zag order; 1: only the mean of each block."""
    a: float = Field(0.0, ge=0, le=1)
    """Their factor."""


FrontEndOptions = Annotated[
    NoFrontEndOptions
    | StandardiseOptions
    | HighPassOptions
    | HighPassStandardiseOptions
    | LocalContrastOptions
    | LearnedContrastOptions
    | BlockDCTOptions,
    Field(discriminator="name"),
    Opened("front_end"),
]
"""Options of any front end, distinguished by ``name``."""


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
    """Soft threshold of the codes (the baseline: 0.01)."""


class PruningOptions(Options):
    """Closes the least important channels of the client once (the baseline's form of PATROL)."""

    after: float = Field(0.75, gt=0, lt=1)
    """Part of the training before it, rounded to an epoch (the baseline's pruning180 of 240 epochs)."""
    ratio: float = Field(0.05, gt=0, lt=1)
    """Share of every layer's channels to close (the baseline: 0.05)."""
    keep_up_to: int = Field(32, ge=1)
    """Convolutions with at most this many outputs are not pruned (the baseline: 32)."""
    batches: int = Field(8, ge=1)
    """Training batches on which the importance of channels is measured (the baseline: one image of random noise)."""


LEAN = "lean"
_OF_LEAN = ("macs", "side", "channels", "server")
_OF_OTHERS = ("cut", "bottleneck", "width", "extra_layer", "blocks")


def given_up(before: str, name: str) -> tuple[str, ...]:
    """Options that a change of model.name sets back: lean plans its own cut and widths, others have no budget."""
    if (before == LEAN) == (name == LEAN):
        return ()
    return _OF_OTHERS if name == LEAN else _OF_LEAN


class ModelOptions(Options):
    """The network and the layer after which it is cut between client and server."""

    name: str = "small_cnn"
    """Architecture: small_cnn, vgg11_bn, thin_vgg11_bn, resnet20, resnet18, mobilenet_v2, vit_tiny or lean; with the
    extra `vision` also torchvision/NAME or timm/NAME."""
    cut: int | str = 2
    """Cut point: number or name; everything before it runs on the client. For torchvision/ and timm/ the name of
    a module, the last one of the client."""
    arguments: dict[str, bool | int | float | str] = Field({})
    """Further arguments of a torchvision/ or timm/ network, e.g. {img_size: 64}."""
    front_end: FrontEndOptions = NoFrontEndOptions()
    """Front end: what the client removes from the normalised picture before its first layer."""
    width: int | None = Field(None, ge=4, le=512)
    """Channels of the first stage, which scale all others; null: the architecture's default."""
    bottleneck: BottleneckOptions | None = BottleneckOptions()
    """Bottleneck at the end of the client; null: none. lean has its own."""
    extra_layer: bool = False
    """vgg11_bn: an additional first convolution of a quarter of the width (the baseline has it with pruning)."""
    blocks: int | None = Field(None, ge=0, le=100)
    """thin_vgg11_bn: residual blocks of the client; null: 17, which cost as much as the stages they replace."""
    macs: float | None = Field(None, gt=0, le=1e12)
    """lean: budget of the client in multiply-accumulates per image, e.g. 4e6; null: other networks."""
    side: int | None = Field(None, ge=2, le=512)
    """lean: side of z, the image's halved one or more times; null: the builder chooses, about 4."""
    channels: int | None = Field(None, ge=1, le=512)
    """lean: channels of z; null: 8."""
    server: str | None = None
    """lean: the server, `small`, another architecture by name, or LIBRARY/NAME:MODULE, the part of a torchvision/ or
    timm/ network behind that module; null: small."""
    sparse_coding: SparseCodingOptions | None = None
    """Sparse coding layer after the bottleneck, before the sigmoid; null: none."""
    pruning: PruningOptions | None = None
    """Pruning of the client's channels during training; null: none."""
    sigmoid: bool = True
    """Sigmoid at the end of the client: bounds z, so z cannot outgrow the noise."""
    init_from: str | None = None
    """Initial weights: a run folder (its best checkpoint) or a .safetensors file; null: random."""
    init_parts: Literal["both", "client", "server"] = "both"
    """Halves that init_from loads; the other one starts with random weights."""
