"""Device-resident images: batches and augmentations without a loader, reproducible from a generator."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from attncem.config.data import DataOptions

WHOLE = slice(None)
"""The whole batch: one process."""


@dataclass(frozen=True)
class DeviceData:
    """Images uint8 [N, C, H, W] and labels [N] that lie on the device for the whole run."""

    images: Tensor
    labels: Tensor

    @classmethod
    def from_arrays(
        cls, images: NDArray[np.uint8], labels: NDArray[np.int64], index: NDArray[np.int64], device: torch.device
    ) -> DeviceData:
        """The images and labels at `index`, copied to `device`."""
        return cls(torch.from_numpy(images[index]).to(device), torch.from_numpy(labels[index]).to(device))

    def __len__(self) -> int:
        return len(self.labels)

    def get(self, index: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Images in [0, 1] and labels."""
        return self.images[index].float() / 255, self.labels[index]

    def in_order(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Every image once, in index order, the last batch as short as it comes."""
        for start in range(0, len(self), batch_size):
            yield self.get(slice(start, start + batch_size))

    def shuffled(
        self, batch_size: int, generator: torch.Generator, part: slice = WHOLE
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of exactly `batch_size` in a random order; the remainder waits for another epoch.

        `part` of every batch is read: that of one process.
        """
        order = torch.randperm(len(self), generator=generator, device=self.labels.device)
        for batch in order[: len(order) // batch_size * batch_size].view(-1, batch_size):
            yield self.get(batch[part])


def augment(
    x: Tensor, options: DataOptions, generator: torch.Generator, *, processes: int = 1, part: slice = WHOLE
) -> Tensor:
    """Random crop, mirror and rotation of each image, as one affine resampling; x itself if none is on.

    Pixels that come from outside are black; shifts are whole pixels, so without rotation nothing is blurred.
    Draws for the batches of all `processes`, of which x is `part`: an image's fate does not depend on their number.
    """
    if not (options.crop_padding or options.horizontal_flip or options.rotation_degrees):
        return x
    B, _, H, W = x.shape

    def uniform() -> Tensor:
        return torch.rand(B * processes, generator=generator, device=x.device)[part] * 2 - 1

    reach = options.crop_padding + 0.5
    shift_x, shift_y = ((uniform() * reach).round().clamp(-reach + 0.5, reach - 0.5) for _ in range(2))
    mirror = torch.where(uniform() < 0, -1.0, 1.0) if options.horizontal_flip else torch.ones(B, device=x.device)
    angle = uniform() * math.radians(options.rotation_degrees)
    cos, sin = angle.cos(), angle.sin()
    rows = (
        torch.stack([cos * mirror, -sin * H / W, shift_x * 2 / W], dim=1),
        torch.stack([sin * mirror * W / H, cos, shift_y * 2 / H], dim=1),
    )
    grid = F.affine_grid(torch.stack(rows, dim=1), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, padding_mode="zeros", align_corners=False).clamp(0, 1)
