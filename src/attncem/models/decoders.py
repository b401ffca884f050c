"""Inversion decoders: from a release to an image, one family in four sizes."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ImageShape = tuple[int, int, int]
LARGEST_VIEW = 8192
"""Largest input of a linear layer over the whole feature; larger features are averaged down to it."""
WHOLE_DROPOUT = 0.25
"""Dropout rate of the whole feature before a linear layer in training."""
SMALL_SIDE = 8
"""Largest side of the image that a linear layer computes from the whole feature."""
HALF, SECOND_WIDTH = 2, 48
"""Resolution reduction and channels of the second stage of an informed decoder."""


class ToGrid(nn.Module):
    """Any feature as a grid [B, C, h, w]: maps stay, square token sets fold up, vectors pass a linear layer."""

    def __init__(self, feature_shape: tuple[int, ...], image_shape: ImageShape) -> None:
        super().__init__()
        self.expand: nn.Module = nn.Identity()
        side = math.isqrt(feature_shape[0])
        if len(feature_shape) == 3:
            self.grid = (feature_shape[0], feature_shape[1], feature_shape[2])
        elif len(feature_shape) == 2 and side * side == feature_shape[0]:
            self.grid = (feature_shape[1], side, side)
        else:
            size = max(1, image_shape[1] // 4)
            self.grid = (32, size, size)
            self.expand = nn.Linear(math.prod(feature_shape), math.prod(self.grid))
        self.tokens = len(feature_shape) == 2 and isinstance(self.expand, nn.Identity)

    def forward(self, released: Tensor) -> Tensor:
        """Fold a release into a grid."""
        if self.tokens:
            released = released.transpose(1, 2)
        grid: Tensor = self.expand(released.flatten(1)).view(-1, *self.grid)
        return grid


def group_norm(width: int) -> nn.Module:
    """Normalisation of each image separately, in training too."""
    return nn.GroupNorm(math.gcd(width, 8), width)


class ResidualBlock(nn.Module):
    """Pre-activation residual block; `norm` creates its normalisation."""

    def __init__(self, width: int, norm: Callable[[int], nn.Module] = group_norm) -> None:
        super().__init__()
        self.body = nn.Sequential(
            norm(width),
            nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1),
            norm(width),
            nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """X + body(x)."""
        out: Tensor = x + self.body(x)
        return out


class PixelShuffleDecoder(nn.Module):
    """Residual blocks with pixel-shuffle up-sampling between them.

    Level i has `widths[i]` channels and `blocks` residual blocks; at its end a level enlarges the grid by its factor.
    The last level outputs pixels directly.
    """

    def __init__(
        self,
        feature_shape: tuple[int, ...],
        image_shape: ImageShape,
        *,
        widths: tuple[int, ...],
        factors: tuple[int, ...],
        blocks: int,
    ) -> None:
        super().__init__()
        self.image_shape = image_shape
        self.to_grid = ToGrid(feature_shape, image_shape)
        layers: list[nn.Module] = [nn.Conv2d(self.to_grid.grid[0], widths[0], 3, padding=1)]
        outputs = [*widths[1:], image_shape[0]]
        for width, following, factor in zip(widths, outputs, factors, strict=True):
            layers.extend(ResidualBlock(width) for _ in range(blocks))
            layers.extend([nn.SiLU(), nn.Conv2d(width, following * factor**2, 3, padding=1), nn.PixelShuffle(factor)])
        self.body = nn.Sequential(*layers)

    def forward(self, released: Tensor) -> Tensor:
        """Images in [0, 1]."""
        return torch.sigmoid(_fit_size(self.body(self.to_grid(released)), self.image_shape))


class WholeView(nn.Module):
    """The whole feature as one vector [B, `length`] of at most `largest` entries.

    Larger maps are averaged over neighbouring positions until they fit, other features over neighbouring entries, so
    that the following linear layer stays small; the grid branch gets the full map.
    """

    def __init__(self, to_grid: ToGrid, feature_shape: tuple[int, ...], largest: int = LARGEST_VIEW) -> None:
        super().__init__()
        channels, height, width = to_grid.grid
        entries = math.prod(feature_shape)
        is_map = isinstance(to_grid.expand, nn.Identity)
        scale = math.sqrt(largest / entries)
        self.fold: nn.Module = to_grid if is_map else nn.Identity()
        self.shrink: nn.Module = nn.Identity()
        if is_map and entries > largest:
            sides = max(1, int(height * scale)), max(1, int(width * scale))
            self.shrink, entries = nn.AdaptiveAvgPool2d(sides), channels * math.prod(sides)
        self.length = min(entries, largest)

    def forward(self, released: Tensor) -> Tensor:
        """Fold, average, flatten."""
        flat: Tensor = self.shrink(self.fold(released)).flatten(1)
        return flat if flat.shape[1] == self.length else F.adaptive_avg_pool1d(flat, self.length)


class GlobalDecoder(nn.Module):
    """Residual blocks on the feature's grid, and a parallel branch that sees the whole feature.

    The branch computes a vector that is added to every position of the grid, and, by one linear layer, maps of at most
    `SMALL_SIDE` pixels per side that are added to the result: mean colour, brightness and large shapes need no long
    path through the grid. A pixel is level + strength · pattern, with one strength for all colours: the pattern is
    separate from its strength, as after a front end that divides by the contrast.

    Batch normalisation was stronger on CIFAR-10 than group normalisation, and faster; in evaluation mode it shares
    nothing between images. Dropout keeps the linear layers, which hold most of the weights, from memorising images.
    """

    rows: Tensor
    columns: Tensor

    def __init__(
        self, feature_shape: tuple[int, ...], image_shape: ImageShape, *, width: int = 96, blocks: int = 6
    ) -> None:
        super().__init__()
        self.image_shape = image_shape
        self.to_grid = ToGrid(feature_shape, image_shape)
        self.view = WholeView(self.to_grid, feature_shape)
        self.dropout = nn.Dropout(WHOLE_DROPOUT)
        channels, height, _ = self.to_grid.grid
        maps, factor = 2 * image_shape[0] + 1, math.ceil(image_shape[1] / height)
        self.small_shape = (maps, min(SMALL_SIDE, image_shape[1]), min(SMALL_SIDE, image_shape[2]))
        self.stem = nn.Conv2d(channels, width, 3, padding=1)
        self.everywhere = nn.Sequential(nn.Linear(self.view.length, 256), nn.SiLU(), nn.Linear(256, width))
        self.linear = nn.Linear(self.view.length, math.prod(self.small_shape))
        for name, few, many in zip(("rows", "columns"), self.small_shape[1:], image_shape[1:], strict=True):
            self.register_buffer(name, _interpolation(few, many), persistent=False)
        self.blocks = nn.Sequential(*(ResidualBlock(width, nn.BatchNorm2d) for _ in range(blocks)))
        self.fine = _to_pixels(width, maps, factor)

    def forward(self, released: Tensor) -> Tensor:
        """Images in [0, 1]."""
        maps, _ = self.maps(released)
        return self.pixels(maps)

    def pixels(self, maps: Tensor) -> Tensor:
        """Level + strength · pattern, between 0 and 1."""
        colours = self.image_shape[0]
        level, pattern, strength = maps.split([colours, colours, 1], 1)
        return torch.sigmoid(level + F.softplus(strength) * pattern)

    def maps(self, released: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of both branches for every pixel, in float32 for any precision, and the grid after the blocks."""
        whole = self.dropout(self.view(released))
        grid = self.blocks(self.stem(self.to_grid(released)) + self.everywhere(whole)[:, :, None, None])
        small = self.linear(whole).float().view(-1, *self.small_shape)
        return _fit_size(self.fine(grid).float(), self.image_shape) + self._enlarged(small), grid

    def _enlarged(self, small: Tensor) -> Tensor:
        """Bilinear, as two small products: much faster on a GPU than torch's own, which leaves most of it idle."""
        with torch.autocast("cuda" if small.is_cuda else "cpu", enabled=False):
            return F.linear(F.linear(small.mT, self.rows).mT, self.columns)


class InformedDecoder(GlobalDecoder):
    """A global decoder that contains a copy of the client's front end.

    It also predicts the picture that the encoder saw. A second stage, at half the image's resolution, corrects the
    image from that picture, from the front end's output for the image, and from their difference.
    """

    def __init__(
        self,
        feature_shape: tuple[int, ...],
        image_shape: ImageShape,
        front_end: nn.Module,
        *,
        width: int = 96,
        blocks: int = 6,
    ) -> None:
        super().__init__(feature_shape, image_shape, width=width, blocks=blocks)
        colours = image_shape[0]
        # A fixed copy: the decoder knows the client's learned weights and does not train them.
        self.front_end = copy.deepcopy(front_end).requires_grad_(False)
        self.to_picture = _to_pixels(width, colours, math.ceil(image_shape[1] / self.to_grid.grid[1]))
        half = HALF if image_shape[1] % HALF == image_shape[2] % HALF == 0 else 1
        self.correction = nn.Sequential(
            nn.PixelUnshuffle(half),
            nn.Conv2d(4 * colours * half**2, SECOND_WIDTH, 3, padding=1),
            *(ResidualBlock(SECOND_WIDTH, nn.BatchNorm2d) for _ in range(2)),
            *_to_pixels(SECOND_WIDTH, 2 * colours + 1, half),
        )

    def forward(self, released: Tensor) -> Tensor:
        """Images in [0, 1]."""
        images, _ = self.both(released)
        return images

    def both(self, released: Tensor) -> tuple[Tensor, Tensor]:
        """Images, and the pictures that the encoder saw of them."""
        maps, grid = self.maps(released)
        seen, images = _fit_size(self.to_picture(grid).float(), self.image_shape), self.pixels(maps)
        again = self.front_end(images)
        together = torch.cat([images, seen, again, seen - again], 1)
        return self.pixels(maps + self.correction(together).float()), seen


def _to_pixels(width: int, maps: int, factor: int) -> nn.Sequential:
    """From a grid to maps with a resolution higher by a factor."""
    return nn.Sequential(nn.SiLU(), nn.Conv2d(width, maps * factor**2, 3, padding=1), nn.PixelShuffle(factor))


def _interpolation(few: int, many: int) -> Tensor:
    """The matrix [many, few] of linear interpolation along one side."""
    return F.interpolate(torch.eye(few)[None], size=many, mode="linear", align_corners=False)[0].T


class BatchNormBlock(nn.Module):
    """The baseline's pre-activation residual block; its shortcut is a 1x1 convolution and batch norm."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1),
        )
        same = inputs == outputs
        self.shortcut: nn.Module = (
            nn.Identity() if same else nn.Sequential(nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        )

    def forward(self, x: Tensor) -> Tensor:
        """shortcut(x) + body(x)."""
        out: Tensor = self.shortcut(x) + self.body(x)
        return out


class PublishedDecoder(nn.Module):
    """The baseline's `res_normN{blocks}C{width}`: 711,539 parameters from 8x8x8 to 3x32x32 (N8C64).

    Only the ReLU reads its input, so the input is overwritten: the same numbers with fewer large maps.
    """

    def __init__(
        self, feature_shape: tuple[int, ...], image_shape: ImageShape, *, width: int = 64, blocks: int = 8
    ) -> None:
        super().__init__()
        self.image_shape = image_shape
        self.to_grid = ToGrid(feature_shape, image_shape)
        layers: list[nn.Module] = [BatchNormBlock(self.to_grid.grid[0], width), nn.ReLU(inplace=True)]
        for _ in range(blocks):
            layers.extend([BatchNormBlock(width, width), nn.ReLU(inplace=True)])
        for _ in range(_doublings(feature_shape, image_shape)):
            up = nn.ConvTranspose2d(width, width, 3, stride=2, padding=1, output_padding=1)
            layers.extend([up, nn.BatchNorm2d(width), nn.ReLU(inplace=True)])
        layers.append(BatchNormBlock(width, image_shape[0]))
        self.body = nn.Sequential(*layers)

    def forward(self, released: Tensor) -> Tensor:
        """Images in [0, 1]."""
        return torch.sigmoid(_fit_size(self.body(self.to_grid(released)), self.image_shape))


def _small(feature_shape: tuple[int, ...], image_shape: ImageShape) -> nn.Module:
    """All work at the feature's resolution, then one step to pixels: fast on a CPU."""
    factor = math.ceil(image_shape[1] / ToGrid(feature_shape, image_shape).grid[1])
    return PixelShuffleDecoder(feature_shape, image_shape, widths=(40,), factors=(factor,), blocks=1)


def _strong(feature_shape: tuple[int, ...], image_shape: ImageShape) -> nn.Module:
    """Over 5 million parameters, doubling the resolution level by level; at least two levels."""
    doublings = _doublings(feature_shape, image_shape)
    levels = max(2, doublings)
    widths = tuple((256, 192, 128)[min(level, 2)] for level in range(levels))
    factors = tuple(2 if level < doublings else 1 for level in range(levels))
    return PixelShuffleDecoder(feature_shape, image_shape, widths=widths, factors=factors, blocks=4)


def _doublings(feature_shape: tuple[int, ...], image_shape: ImageShape) -> int:
    height = ToGrid(feature_shape, image_shape).grid[1]
    return max(0, math.ceil(math.log2(image_shape[1] / height)))


DECODERS: dict[str, Callable[[tuple[int, ...], ImageShape], nn.Module]] = {
    "small": _small,
    "published": PublishedDecoder,
    "strong": _strong,
    "global": GlobalDecoder,
}
"""Decoders by size."""


def _fit_size(images: Tensor, image_shape: ImageShape) -> Tensor:
    """Resample to the image's size where doublings do not reach it exactly."""
    if images.shape[-2:] == image_shape[1:]:
        return images
    return F.interpolate(images, size=image_shape[1:], mode="bilinear", align_corners=False, antialias=False)
