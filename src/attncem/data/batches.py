"""Images on the device or streamed to it: batches and augmentations without a loader, all from one generator."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from attncem.config.options.data import DataOptions
from attncem.config.options.training import BalancedOptions, Batches


@dataclass(frozen=True)
class Images:
    """Images in [0, 1] on a device, decoded in parts from bytes or floats in any memory.

    Bytes take a quarter of the memory, and no device memory if they are on the host. Indexing returns a copy.
    ``mirrored``: flips left and right.
    """

    stored: Tensor
    device: torch.device
    mirrored: bool = False

    @classmethod
    def of(cls, x: Tensor) -> Images:
        """Images on their current device."""
        return cls(x, x.device)

    def __len__(self) -> int:
        return len(self.stored)

    @property
    def shape(self) -> torch.Size:
        """The shape of all images as one tensor."""
        return self.stored.shape

    def __getitem__(self, index: Tensor | slice | int) -> Tensor:
        where = index.to(self.stored.device) if isinstance(index, Tensor) else index
        chosen = self.stored[where].to(self.device)
        x = as_floats(chosen) if chosen.dtype == torch.uint8 else chosen.clone()
        return x.flip(-1) if self.mirrored else x

    def split(self, size: int) -> Iterator[Tensor]:
        """All images in order, ``size`` at a time."""
        return (self[start : start + size] for start in range(0, len(self), size))


@dataclass(frozen=True)
class DeviceData:
    """Images uint8 [N, C, H, W] and labels [N], on the device for the whole run.

    If the images do not fit on the device, they stay in host memory and batches are streamed.
    """

    images: Tensor
    labels: Tensor
    streamed: bool = False

    @classmethod
    def from_arrays(
        cls,
        images: NDArray[np.uint8],
        labels: NDArray[np.int64],
        index: NDArray[np.int64],
        device: torch.device,
        *,
        streamed: bool = False,
    ) -> DeviceData:
        """The images and labels at `index`, copied to `device`, or the images to host memory that it can read."""
        chosen, targets = torch.from_numpy(images[index]), torch.from_numpy(labels[index]).to(device)
        if not streamed:
            return cls(chosen.to(device), targets)
        return cls(chosen.pin_memory() if device.type == "cuda" else chosen, targets, streamed=True)

    def __len__(self) -> int:
        return len(self.labels)

    def get(self, index: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Images in [0, 1] and labels."""
        return self.in_parts[index], self.labels[index]

    def first(self, count: int) -> DeviceData:
        """The first images, in the same memory."""
        return replace(self, images=self.images[:count], labels=self.labels[:count])

    def at(self, index: Tensor) -> DeviceData:
        """The images at these places, as a copy in the same memory."""
        return replace(self, images=self.images[index], labels=self.labels[index.to(self.labels.device)])

    @property
    def in_parts(self) -> Images:
        """The images alone, for access in parts."""
        return Images(self.images, self.labels.device)

    def batches(self, order: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The images, as bytes, and labels of each row of `order`."""
        if not self.streamed:
            for index in order:
                yield self.images[index], self.labels[index]
            return
        for images, index in zip(_streamed(self.images, order.cpu(), self.labels.device), order, strict=True):
            yield images, self.labels[index]

    def in_order(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Every image once, in index order; the last batch may be shorter."""
        for start in range(0, len(self), batch_size):
            yield self.get(slice(start, start + batch_size))

    def epoch_order(self, batch_size: int, generator: torch.Generator, options: Batches) -> Tensor:
        """The indices of an epoch [steps, batch_size], drawn at once on the device; one row per call of `get`.

        Both kinds of batch have len // batch_size steps. The options set the composition of a batch.
        """
        steps = len(self) // batch_size
        if isinstance(options, BalancedOptions):
            return balanced_order(self.labels, steps, batch_size, options.samples_per_class, generator)
        order = torch.randperm(len(self), generator=generator, device=self.labels.device)
        return order[: steps * batch_size].view(steps, batch_size)


def balanced_order(labels: Tensor, steps: int, batch_size: int, samples: int, generator: torch.Generator) -> Tensor:
    """Indices [steps, batch_size] of batches with `samples` images of each of batch_size / samples classes.

    No class occurs twice in a batch, and over the epoch the counts of any two classes differ by at most two draws. The
    images of a class come in a random order that restarts at its end: small classes repeat, and a class with fewer than
    `samples` images repeats them within a batch.
    """
    order = torch.randperm(len(labels), generator=generator, device=labels.device)
    order = order[labels[order].argsort(stable=True)]
    present, sizes = labels.unique(return_counts=True)
    drawn = _class_order(len(present), steps, batch_size // samples, generator).flatten()
    # Number of earlier draws of the same class: its rank among them.
    by_class = drawn.argsort(stable=True)
    times = drawn.bincount(minlength=len(present))
    before = torch.empty_like(drawn)
    before[by_class] = torch.arange(len(drawn), device=drawn.device) - (times.cumsum(0) - times)[drawn[by_class]]
    place = before.unsqueeze(1) * samples + torch.arange(samples, device=drawn.device)
    first = (sizes.cumsum(0) - sizes)[drawn].unsqueeze(1)
    return order[first + place % sizes[drawn].unsqueeze(1)].view(steps, batch_size)


def _class_order(num_classes: int, steps: int, width: int, generator: torch.Generator) -> Tensor:
    """Classes [steps, width] of an epoch's batches, none twice in a row.

    Rounds of all classes in a random order; if a round does not fill its last batch, classes of its first batch repeat,
    different ones in every round until all have repeated.
    """
    device = generator.device
    per_round = -(-num_classes // width)
    rounds, extra = -(-steps // per_round), per_round * width - num_classes
    keys = torch.rand(rounds, num_classes, generator=generator, device=device)
    turn = torch.randperm(num_classes, generator=generator, device=device)
    again = turn[torch.arange(rounds * extra, device=device).view(rounds, extra) % num_classes]
    keys.scatter_add_(1, again, torch.full_like(again, -1, dtype=keys.dtype))
    order = keys.argsort(1)
    batches = torch.cat([order, order[:, :extra]], 1).view(-1, width)
    return batches[:steps]


def _streamed(images: Tensor, order: Tensor, device: torch.device) -> Iterator[Tensor]:
    """Rows of images on their way to the device: while it processes one, the next is gathered in pinned memory."""
    pinned = device.type == "cuda"
    shape = (order.shape[1], *images.shape[1:])
    buffers = [torch.empty(shape, dtype=images.dtype, pin_memory=pinned) for _ in range(2)]
    sent = [torch.cuda.Event() for _ in buffers] if pinned else []
    for number, index in enumerate(order):
        turn = number % len(buffers)
        if sent:
            sent[turn].synchronize()  # the copy before last no longer uses this buffer
        torch.index_select(images, 0, index, out=buffers[turn])
        batch = buffers[turn].to(device, non_blocking=True, copy=True)
        if sent:
            sent[turn].record()
        yield batch


def as_floats(images: Tensor) -> Tensor:
    """Bytes to [0, 1]."""
    return images.float() / 255


def augment(x: Tensor, options: DataOptions, generator: torch.Generator) -> Tensor:
    """Random crop, mirror and rotation of each image, as one affine resampling; x itself if none is on."""
    return move(x, draw_moves(len(x), options, generator), options)


def draw_moves(count: int, options: DataOptions, generator: torch.Generator) -> list[Tensor]:
    """Uniform numbers in [-1, 1) for `move`: shifts along x and y, mirror and rotation; empty if nothing is on."""
    if not (options.crop_padding or options.horizontal_flip or options.rotation_degrees):
        return []

    def uniform() -> Tensor:
        return torch.rand(count, generator=generator, device=generator.device) * 2 - 1

    shift_x, shift_y = uniform(), uniform()
    mirror = uniform() if options.horizontal_flip else torch.ones(count, device=generator.device)
    return [shift_x, shift_y, mirror, uniform()]


def move(x: Tensor, moves: Sequence[Tensor], options: DataOptions) -> Tensor:
    """Each image shifted, mirrored and rotated by the drawn numbers.

    Pixels from outside the image are black; shifts are whole pixels, so without rotation nothing is blurred.
    """
    if not moves:
        return x
    H, W = x.shape[-2:]
    reach = options.crop_padding + 0.5
    shift_x, shift_y = ((move * reach).round().clamp(-reach + 0.5, reach - 0.5) for move in moves[:2])
    mirror = torch.where(moves[2] < 0, -1.0, 1.0)
    angle = moves[3] * math.radians(options.rotation_degrees)
    cos, sin = angle.cos(), angle.sin()
    rows = (
        torch.stack([cos * mirror, -sin * H / W, shift_x * 2 / W], dim=1),
        torch.stack([sin * mirror * W / H, cos, shift_y * 2 / H], dim=1),
    )
    grid = F.affine_grid(torch.stack(rows, dim=1), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, padding_mode="zeros", align_corners=False).clamp(0, 1)
