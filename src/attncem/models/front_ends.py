"""Front ends: filters of the client that remove information from the picture before its first layer.

Every client of ours begins with one. It normalises images in [0, 1] with the data's mean and standard deviation, then
removes what the task hardly needs, always in float32. docs/front-ends.md shows the effect of each. `learned_contrast`
has a few weights, which belong to the client; the others have none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter
from torch import Tensor, nn

from attncem.base.types import DatasetSpec
from attncem.config.options.base import Options
from attncem.config.options.model import (
    BlockDCTOptions,
    BlurOptions,
    FrontEndOptions,
    HighPassOptions,
    HighPassStandardiseOptions,
    LearnedContrastOptions,
    LocalContrastOptions,
    NoFrontEndOptions,
    StandardiseOptions,
)
from attncem.config.plugins import open_table
from attncem.models.full_precision import full_precision, product

_BLOCK = 8
_IMAGE_FLOOR, _LOCAL_FLOOR = 0.01, 0.02
"""Added to a mean square before its root: flat areas stay flat instead of amplifying noise."""


class FrontEnd(nn.Module):
    """Images [B, C, H, W] in [0, 1] → pictures of the same shape. A subclass implements `process` and `macs`."""

    options_type: ClassVar[type[Options]]
    mean: Tensor
    std: Tensor

    def __init__(self, options: Any, spec: DatasetSpec) -> None:
        super().__init__()
        self.options, self.shape = options, spec.shape
        self._keep("mean", torch.tensor(spec.mean).view(1, -1, 1, 1))
        self._keep("std", torch.tensor(spec.std).view(1, -1, 1, 1))

    def _keep(self, name: str, values: Tensor | NDArray[Any]) -> None:
        """Constants move with the module and are in no checkpoint: they follow from the options."""
        tensor = values if isinstance(values, Tensor) else torch.tensor(values.astype(np.float32))
        self.register_buffer(name, tensor, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise, then remove the information that the options select."""
        with full_precision(x.device.type):  # a blur involves small differences of large values
            return self.process((x - self.mean) / self.std)

    def process(self, x: Tensor) -> Tensor:
        """The front end on normalised images."""
        raise NotImplementedError

    @property
    def macs(self) -> int:
        """Multiply-accumulates of its filters for one image; normalisation is not counted, as in other layers."""
        return 0

    @property
    def pixels(self) -> int:
        """Number of values in one image."""
        channels, height, width = self.shape
        return channels * height * width


class NoFrontEnd(FrontEnd):
    """The normalised image itself."""

    options_type = NoFrontEndOptions

    def process(self, x: Tensor) -> Tensor:
        """Remove nothing."""
        return x


class Standardise(FrontEnd):
    """(x - mean of each channel) / deviation of the whole image."""

    options_type = StandardiseOptions

    def process(self, x: Tensor) -> Tensor:
        """Remove the mean colour and contrast of each picture."""
        return _standardised(x - x.mean((2, 3), keepdim=True))


def _standardised(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean((1, 2, 3), keepdim=True) + _IMAGE_FLOOR)


class Blurred(FrontEnd):
    """Base of front ends with a Gaussian blur. A blur is a product with a banded matrix on each side."""

    options: BlurOptions
    rows: Tensor
    columns: Tensor

    def __init__(self, options: BlurOptions, spec: DatasetSpec) -> None:
        super().__init__(options, spec)
        self._keep("rows", blur_matrix(spec.shape[1], options.s))
        self._keep("columns", blur_matrix(spec.shape[2], options.s).T)

    def blur(self, x: Tensor) -> Tensor:
        """G_s x, borders reflected."""
        return self.rows @ x @ self.columns

    def without_blur(self, x: Tensor) -> Tensor:
        """X − (1 − a)·G_s x."""
        return x - (1 - self.options.a) * self.blur(x)

    @property
    def macs(self) -> int:
        """Multiplications of the blur in both directions, for all blurred values."""
        return self.pixels * blur_taps(self.options.s)


class HighPass(Blurred):
    """2·(x − (1 − a)·G_s x)."""

    options_type = HighPassOptions

    def process(self, x: Tensor) -> Tensor:
        """Keep variation within a few pixels."""
        return 2 * self.without_blur(x)


class HighPassStandardise(Blurred):
    """h = x − (1 − a)·G_s x over the deviation of the whole image."""

    options_type = HighPassStandardiseOptions

    def process(self, x: Tensor) -> Tensor:
        """Keep variation within a few pixels, at one contrast."""
        return _standardised(self.without_blur(x))


class LocalContrast(Blurred):
    """h = x − (1 − a)·G_s x over the deviation around each pixel, sqrt(G_s(mean over channels of h²) + 0.02)."""

    options_type = LocalContrastOptions

    def process(self, x: Tensor) -> Tensor:
        """Keep variation within a few pixels, at the same contrast everywhere."""
        return _evened(self.without_blur(x), self.blur)

    @property
    def macs(self) -> int:
        """Those of two blurs."""
        return _contrast_macs(self.shape, self.options.s)


class LearnedContrast(FrontEnd):
    """`local_contrast` whose two blurs are learned: the subtracted blur, and the blur of the mean square.

    Each has one weight per distance, shared by all channels, directions and sides: softmax(log of the Gaussian's +
    change). So weights are always positive and sum to 1, and a constant is always removed. Changes start at 0, which is
    `local_contrast`, and weight decay pulls them back to 0.
    """

    options_type = LearnedContrastOptions
    options: LearnedContrastOptions
    start: Tensor
    along_rows: Tensor
    along_columns: Tensor

    def __init__(self, options: LearnedContrastOptions, spec: DatasetSpec) -> None:
        super().__init__(options, spec)
        distances = np.arange(blur_radius(options.s) + 1)
        self._keep("start", np.log(_pixels_at(distances)) - 0.5 * (distances / options.s) ** 2)
        self._keep("along_columns", distance_matrices(spec.shape[1], len(distances)))
        self._keep("along_rows", distance_matrices(spec.shape[2], len(distances)))
        self.changes = nn.Parameter(torch.zeros(2, len(distances)))

    def process(self, x: Tensor) -> Tensor:
        """Keep variation within a few pixels, at the same contrast everywhere."""
        shares = self._shares()
        down, across = _weighed(shares, self.along_columns), _weighed(shares, self.along_rows)
        h = x - (1 - self.options.a) * _blurred(x, down[0], across[0])
        return _evened(h, lambda square: _blurred(square, down[1], across[1]))

    def _shares(self) -> Tensor:
        """Total weight of all pixels at each distance [2, reach + 1]."""
        return torch.softmax(self.start + self.changes, 1)

    @torch.no_grad()
    def taps(self) -> Tensor:
        """The weight of a pixel at each distance from 0, [2, reach + 1]: of the blur, and of the deviation."""
        shares = self._shares()
        return shares / torch.tensor(_pixels_at(np.arange(shares.shape[1]))).to(shares)

    @property
    def macs(self) -> int:
        """As in `local_contrast`: the matrices of the blurs are the same for every image."""
        return _contrast_macs(self.shape, self.options.s)


def _weighed(shares: Tensor, matrices: Tensor) -> Tensor:
    """The sum of matrices [n, H, H] weighted by each row of the shares [k, n]."""
    return product(shares, matrices.flatten(1).mT).view(-1, *matrices.shape[1:])


def _blurred(x: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """Every line of x times a matrix, first horizontally, then vertically."""
    return product(product(x, across).mT, down).mT


def _evened(h: Tensor, blur: Callable[[Tensor], Tensor]) -> Tensor:
    """H divided by the deviation around each pixel, the root of the blurred mean square over the channels."""
    return h * torch.rsqrt(blur(h.square().mean(1, keepdim=True)) + _LOCAL_FLOOR)


def _contrast_macs(shape: tuple[int, int, int], s: float) -> int:
    """Two blurs: of all channels, and of their mean square."""
    channels, height, width = shape
    return (channels + 1) * height * width * blur_taps(s)


class BlockDCT(FrontEnd):
    """The first n zig-zag coefficients of every 8×8 block times a; border blocks are padded by reflection."""

    options_type = BlockDCTOptions
    options: BlockDCTOptions
    basis: Tensor
    fill_rows: Tensor
    fill_columns: Tensor

    def __init__(self, options: BlockDCTOptions, spec: DatasetSpec) -> None:
        super().__init__(options, spec)
        self._keep("basis", dct_basis()[: options.n])
        for name, size in zip(("fill_rows", "fill_columns"), spec.shape[1:], strict=True):
            whole = np.arange(-(-size // _BLOCK) * _BLOCK)
            self._keep(name, torch.tensor(_reflected(whole, size)))

    def process(self, x: Tensor) -> Tensor:
        """X minus the part that the selected coefficients form."""
        filled = x[:, :, self.fill_rows][..., self.fill_columns]
        blocks = filled.unflatten(3, (-1, _BLOCK)).unflatten(2, (-1, _BLOCK)).transpose(3, 4)
        low = (blocks.flatten(4) @ self.basis.T) @ self.basis
        part = low.unflatten(4, (_BLOCK, _BLOCK)).transpose(3, 4).flatten(4, 5).flatten(2, 3)
        kept: Tensor = x - (1 - self.options.a) * part[..., : x.shape[2], : x.shape[3]]
        return kept

    @property
    def macs(self) -> int:
        """Transform to the coefficients and back."""
        return self.shape[0] * len(self.fill_rows) * len(self.fill_columns) * 2 * self.options.n


FRONT_ENDS: dict[str, type[FrontEnd]] = {
    "none": NoFrontEnd,
    "standardise": Standardise,
    "high_pass": HighPass,
    "high_pass_standardise": HighPassStandardise,
    "local_contrast": LocalContrast,
    "learned_contrast": LearnedContrast,
    "block_dct": BlockDCT,
}
"""Front ends by name."""
open_table("front_end", FRONT_ENDS, FrontEnd)


def build_front_end(options: Any, spec: DatasetSpec) -> FrontEnd:
    """The front end that the options describe, for images of this data."""
    return FRONT_ENDS[options.name](options, spec)


def front_end_of(encoder: nn.Module) -> FrontEnd | None:
    """The front end of a client; None if it removes nothing."""
    first = next((module for module in encoder.modules() if isinstance(module, FrontEnd)), None)
    return None if isinstance(first, NoFrontEnd) else first


def described(front_end: FrontEnd) -> dict[str, Any]:
    """The full description of a front end as plain data, including learned weights."""
    constants = {name: getattr(front_end, name).flatten().tolist() for name in ("mean", "std")}
    learned = {name: weight.tolist() for name, weight in front_end.state_dict().items()}
    facts = {"options": front_end.options.model_dump(mode="json"), "shape": list(front_end.shape), **constants}
    return {**facts, "weights": learned} if learned else facts


def from_description(facts: Mapping[str, Any]) -> FrontEnd:
    """The front end of a description by `described`."""
    options: Any = TypeAdapter(FrontEndOptions).validate_python(facts["options"])
    spec = DatasetSpec("", tuple(facts["shape"]), 0, tuple(facts["mean"]), tuple(facts["std"]))
    front_end = build_front_end(options, spec)
    front_end.load_state_dict({name: torch.tensor(values) for name, values in facts.get("weights", {}).items()})
    return front_end


@torch.no_grad()
def as_seen(encoder: nn.Module, x: Tensor) -> Tensor | None:
    """The first layer's view of images x as pictures in [0, 1], grey where nothing is left; None: unchanged."""
    front_end = front_end_of(encoder)
    if front_end is None:
        return None
    seen: Tensor = front_end(x)
    largest = seen.abs().amax((1, 2, 3), keepdim=True).clamp_min(1e-6)
    return 0.5 + 0.5 * seen / largest


def blur_radius(s: float) -> int:
    """Reach in pixels of a blur of s pixels."""
    return int(2.5 * s + 0.5)


def blur_taps(s: float) -> int:
    """Multiplications per value of a blur, in both directions."""
    return 2 * (2 * blur_radius(s) + 1)


def blur_matrix(size: int, s: float) -> NDArray[np.float64]:
    """A blur along one line [size, size]: row i holds the weights for pixel i.

    The line is reflected at both ends, without repeating the last pixel, as many times as the blur requires.
    """
    radius = blur_radius(s)
    offsets = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 * (offsets / s) ** 2)
    pixels = np.repeat(np.arange(size), len(offsets))
    matrix: NDArray[np.float64] = np.zeros((size, size))
    np.add.at(matrix, (pixels, _reflected(pixels + np.tile(offsets, size), size)), np.tile(weights, size))
    matrix /= weights.sum()
    return matrix


def distance_matrices(size: int, count: int) -> NDArray[np.float64]:
    """The mean of both pixels at distance 0, 1, … along a line [count, size, size]; reflected as in `blur_matrix`."""
    matrices: NDArray[np.float64] = np.zeros((count, size, size))
    pixels = np.arange(size)
    for distance, matrix in enumerate(matrices):
        for other in (pixels - distance, pixels + distance):
            np.add.at(matrix, (pixels, _reflected(other, size)), 0.5)
    return matrices


def _pixels_at(distances: NDArray[Any]) -> NDArray[Any]:
    """Number of pixels of a line at each distance from a pixel."""
    return np.where(distances > 0, 2, 1)


def _reflected(positions: NDArray[Any], size: int) -> NDArray[Any]:
    """The pixels at these positions; positions outside the line are reflected at both ends: 2 1 | 0 1 2 3 | 2 1."""
    folded = positions % max(2 * size - 2, 1)
    return np.minimum(folded, 2 * size - 2 - folded) if size > 1 else np.zeros_like(positions)


def dct_basis() -> NDArray[np.float64]:
    """The 64 patterns [64, 64] of the orthonormal 8×8 cosine transform, in zig-zag order."""
    from scipy.fft import dct  # its import takes a fifth of a second, which other front ends avoid

    line = dct(np.eye(_BLOCK), axis=0, norm="ortho")
    order = sorted(np.ndindex(_BLOCK, _BLOCK), key=_zig_zag)
    return np.stack([np.outer(line[row], line[column]).ravel() for row, column in order])


def _zig_zag(place: tuple[int, ...]) -> tuple[int, int]:
    """Diagonal by diagonal, every second one upwards (as in JPEG)."""
    row, column = place
    diagonal = row + column
    return diagonal, row if diagonal % 2 else column
