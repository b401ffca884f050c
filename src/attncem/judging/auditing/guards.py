"""Guards of an audit: whether the victim is unchanged, and whether a row's numbers are valid."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from attncem.base.types import RunError
from attncem.data.batches import DeviceData, Images
from attncem.judging.attacks.base import Attack
from attncem.models.channels import Channel
from attncem.models.split import SplitModel
from attncem.records.findings import Finding, finding

_TRIED = 2
"""Number of images that are recovered again without the rest of the batch."""
_SHARE = 0.05
"""Share of an image's error that its batch may change; a different order of arithmetic changes far less."""
_ROUNDING = 1e-6
"""Mean squared difference that the batch may cause even if the error is zero."""
_OUTSIDE = 1e-3
"""How far outside [0, 1] a pixel may lie by rounding."""
_COPY = 0.1
"""Mean squared difference of a near copy, as a share of the image's variance: most copies by JPEG stay below it."""
_THUMBNAIL, _CHUNK = 16, 2000
_PRODUCTS = 400_000_000_000
"""Largest number of multiplications in the search for near copies: about ten seconds on one CPU core."""
_BATCH = 250
_FEATURES = 1000
"""Number of images on which signal and noise are measured."""


def digest(model: SplitModel) -> str:
    """A hash of the client: weights and buffers, kinds and modes of all modules, the channel's noise."""
    found = hashlib.sha256()
    for part in (model.encoder, model.channel):
        for name, module in part.named_modules():
            noise = module.noise_std if isinstance(module, Channel) else 0.0
            found.update(f"{name} {type(module).__qualname__} {module.training} {noise!r};".encode())
        for name, tensor in part.state_dict().items():
            found.update(f"{name} {tuple(tensor.shape)} {tensor.dtype};".encode())
            found.update(tensor.detach().contiguous().cpu().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def overlap(own: DeviceData, x: Tensor) -> list[Finding]:
    """A finding if evaluation images are among the attacker's own, pixel for pixel."""
    known = set(_hashes(own.images))
    count = sum(mark in known for mark in _hashes((x * 255).round().to(torch.uint8)))
    return [finding("overlap", count=count, total=len(x))] if count else []


def _hashes(images: Tensor) -> Iterator[bytes]:
    return (hashlib.sha256(image.tobytes()).digest() for image in images.cpu().numpy())


@torch.no_grad()
def near_copies(own: Images, x: Tensor) -> list[Finding]:
    """A finding if pictures from elsewhere contain nearly equal copies of evaluation images.

    For each evaluation image the nearest picture is searched by thumbnails, and the mean squared difference from it is
    taken from all pixels. It is a near copy if the difference is below a share of the image's own variance. With many
    images, only evenly spread ones are compared.
    """
    cells = _thumbnail(x[:1]).numel()
    count = max(1, min(len(x), _PRODUCTS // (len(own) * cells)))
    some = x[torch.linspace(0, len(x) - 1, count, device=x.device).long()]
    nearest = own[_nearest(own, some)]
    off = (nearest - some).square().flatten(1).mean(1)
    variance = some.flatten(2).var(2, correction=0).mean(1)
    copies = int((off < _COPY * variance).sum())
    if not copies:
        return []
    blind = float((some - some.mean(0)).square().mean())
    share = 100 * float(off.median()) / max(blind, _ROUNDING)
    return [finding("near_copies", count=copies, total=count, limit=100 * _COPY, median=share)]


def _nearest(own: Images, x: Tensor) -> Tensor:
    """Index of the own picture with the nearest thumbnail, for each image."""
    wanted = _thumbnail(x)
    least = torch.full((len(x),), torch.inf, device=x.device)
    place = torch.zeros(len(x), dtype=torch.long, device=x.device)
    for number, part in enumerate(own.split(_CHUNK)):
        small = _thumbnail(part)
        off = small.square().sum(1) - 2 * wanted @ small.T  # ‖a − b‖² without ‖a‖², which is the same for all b
        value, index = off.min(1)
        better = value < least
        least, place = torch.where(better, value, least), torch.where(better, index + number * _CHUNK, place)
    return place


def _thumbnail(x: Tensor) -> Tensor:
    """Block means with sides of at most `_THUMBNAIL` pixels, [B, cells]."""
    height, width = (min(_THUMBNAIL, side) for side in x.shape[-2:])
    return F.adaptive_avg_pool2d(x, (height, width)).flatten(1)


def require_images(images: Tensor, expected: tuple[int, ...]) -> None:
    """RunError unless the images have the expected number and shape, and are finite and in [0, 1]."""
    if tuple(images.shape) != expected:
        raise RunError(f"the attack returned images of shape {tuple(images.shape)}, expected {expected}")
    if not bool(images.isfinite().all()):
        raise RunError("the attack returned images that are not finite")
    low, high = float(images.min()), float(images.max())
    if low < -_OUTSIDE or high > 1 + _OUTSIDE:
        raise RunError(
            f"the attack returned pixels from {low:.3g} to {high:.3g}, not in [0, 1]: every measure is of that unit"
        )


def company(attack: Attack, seen: Tensor, images: Tensor, x: Tensor) -> list[Finding]:
    """A finding if the first images differ without the rest of their batch, as with batch statistics."""
    if len(images) <= _TRIED:
        return []
    alone = attack.reconstruct(seen[:_TRIED].clone()).detach().float()
    moved = float((alone - images[:_TRIED]).square().mean())
    error = float((images[:_TRIED] - x[:_TRIED]).square().mean())
    if moved <= _ROUNDING + _SHARE * error:
        return []
    return [finding("depends_on_batch", moved=moved, error=error)]


@torch.no_grad()
def signal_to_noise(model: SplitModel, x: Tensor, released: Tensor) -> list[float | None]:
    """Variance of z over the mean squared change by the channel, per feature channel; None: no change.

    Empty if a foreign channel changes the shape of releases; RunError if the numbers are too large to be squared.
    """
    z = torch.cat([model.encode(part) for part in x[:_FEATURES].split(_BATCH)])
    if z.shape[1:] != released.shape[1:]:
        return []
    changed = released[: len(z)].float() - z.float()
    over = tuple(axis for axis in range(z.ndim) if axis != 1)
    power, noise = z.float().var(over, correction=0), changed.square().mean(over)
    if not bool(torch.cat([power, noise]).isfinite().all()):
        raise RunError(f"features reach {float(z.abs().max()):.0e}: their variance is not finite")
    return [p / n if n > 0 else None for p, n in zip(power.tolist(), noise.tolist(), strict=True)]
