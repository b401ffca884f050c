"""The measures: pure functions of image and reconstruction [B, C, H, W] in [0, 1], one number for each image.

``METRICS`` is the only list of measures, with their directions and formats. Torch is imported when a measure is
computed, so reports can read the table without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

ACCURACY = "accuracy"
"""Name of the accuracy among the measures of an audit."""
_WINDOW = 11
_SIGMA = 1.5
_C1 = 0.01**2
_C2 = 0.03**2
_LUMINANCE = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in the grey image (ITU-R BT.601)."""
_EDGES_C = 170 / 255**2
"""The constant of the gradient similarity (Xue et al. 2014), for images in [0, 1]."""
_PREWITT = 3
COARSE = 4
"""Frequencies from this many cycles per image on are detail: an 8×8 thumbnail holds exactly those below it."""


def mse(x: Tensor, y: Tensor) -> Tensor:
    """Mean squared error of each image, [B]."""
    _check_pair(x, y)
    return (x - y).square().flatten(1).mean(1)


def psnr(x: Tensor, y: Tensor) -> Tensor:
    """Peak signal-to-noise ratio of each image in dB for a data range of 1; at most 100 dB."""
    return -10 * mse(x, y).clamp_min(1e-10).log10()


def ssim(x: Tensor, y: Tensor, *, zero_pad: bool = False) -> Tensor:
    """Structural similarity of each image, [B] (Wang et al. 2004; Gaussian window 11, σ 1.5).

    Only windows wholly inside the image count, as in scikit-image. ``zero_pad`` pads with zeros
    instead: the variant behind most published inversion numbers, and a flattering one.
    """
    import torch

    _check_pair(x, y)
    if not zero_pad and min(x.shape[-2:]) < _WINDOW:
        raise ValueError(f"SSIM needs images of at least {_WINDOW} px, got {tuple(x.shape[-2:])}")
    mean_x, mean_y, xx, yy, xy = _smooth(torch.stack([x, y, x * x, y * y, x * y]), zero_pad)
    var_x, var_y, cov = xx - mean_x**2, yy - mean_y**2, xy - mean_x * mean_y
    luminance = (2 * mean_x * mean_y + _C1) / (mean_x**2 + mean_y**2 + _C1)
    structure = (2 * cov + _C2) / (var_x + var_y + _C2)
    values: Tensor = (luminance * structure).flatten(1).mean(1)
    return values


def structure(x: Tensor, y: Tensor) -> Tensor:
    """Mean squared error of each image without its mean colour: the mean over pixels of each channel is subtracted from
    both images first, so a wrong brightness or tint of the whole image does not count.
    """
    _check_pair(x, y)
    error = x - y
    return (error - error.mean((-2, -1), keepdim=True)).square().flatten(1).mean(1)


def edges(x: Tensor, y: Tensor) -> Tensor:
    """Gradient magnitude similarity of each image, [B], 1 where they are equal (Xue et al. 2014, pooled by its mean).

    Prewitt gradients of the grey image (luminance of three channels, else their mean), windows wholly inside the
    image, no down-sampling; m and n being their magnitudes, the mean of (2mn + c) / (m² + n² + c), c = 170 / 255².
    """
    _check_pair(x, y)
    if min(x.shape[-2:]) < _PREWITT:
        raise ValueError(f"edges need images of at least {_PREWITT} px, got {tuple(x.shape[-2:])}")
    of_x, of_y = _steepness(x), _steepness(y)
    values: Tensor = (2 * (of_x * of_y).sqrt() + _EDGES_C) / (of_x + of_y + _EDGES_C)
    return values.flatten(1).mean(1)


def _steepness(images: Tensor) -> Tensor:
    """Squared magnitudes [B, H-2, W-2] of the grey images' Prewitt gradients (kernels of thirds)."""
    grey = _grey(images)
    down = grey[:, :-2] + grey[:, 1:-1] + grey[:, 2:]
    across = grey[:, :, :-2] + grey[:, :, 1:-1] + grey[:, :, 2:]
    horizontal, vertical = down[:, :, 2:] - down[:, :, :-2], across[:, 2:] - across[:, :-2]
    return (horizontal.square() + vertical.square()) / 9


def _grey(images: Tensor) -> Tensor:
    if images.shape[1] != len(_LUMINANCE):
        return images.mean(1)
    return (images * images.new_tensor(_LUMINANCE).view(-1, 1, 1)).sum(1)


def band_mean(x: Tensor, y: Tensor) -> Tensor:
    """The part of each image's MSE at frequency 0: the error of its mean colour."""
    _check_pair(x, y)
    return (x - y).mean((-2, -1)).square().mean(1)


def band_low(x: Tensor, y: Tensor) -> Tensor:
    """The part of each image's MSE at radial frequencies above 0 and below COARSE cycles per image."""
    power, radius = _spectrum(x, y)
    return (power * ((radius > 0) & (radius < COARSE**2))).flatten(1).sum(1)


def band_high(x: Tensor, y: Tensor) -> Tensor:
    """The part of each image's MSE at radial frequencies of COARSE cycles per image and above."""
    power, radius = _spectrum(x, y)
    return (power * (radius >= COARSE**2)).flatten(1).sum(1)


def _spectrum(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Power [B, H, W] of the error at each frequency, which sums to the MSE, and the squared frequency [H, W].

    Frequencies are in cycles along the image's height and width, independent of its size in pixels.
    """
    import torch

    _check_pair(x, y)
    found = torch.fft.fft2(x - y, norm="forward")
    power = (found.real.square() + found.imag.square()).mean(1)
    rows, columns = ((torch.fft.fftfreq(side, device=x.device) * side).round().square() for side in x.shape[-2:])
    return power, rows.unsqueeze(1) + columns


def accuracy(logits: Tensor, y: Tensor) -> Tensor:
    """Whether each prediction is right, [B] of 0 and 1."""
    return (logits.argmax(1) == y).float()


def _check_pair(x: Tensor, y: Tensor) -> None:
    if x.shape != y.shape or x.ndim != 4:
        raise ValueError(f"expected two [B, C, H, W] batches of one shape, got {tuple(x.shape)} and {tuple(y.shape)}")


def _smooth(stack: Tensor, zero_pad: bool) -> Tensor:
    """Gaussian-weighted local means of [K, B, C, H, W], as a product with a banded matrix on either side."""
    rows, columns = (_window(size, zero_pad, stack) for size in stack.shape[-2:])
    return rows @ stack @ columns.T


def _window(size: int, zero_pad: bool, like: Tensor) -> Tensor:
    """Weights [positions, size] of the pixels of one line around each window's centre."""
    import torch

    radius = _WINDOW // 2
    pixels = torch.arange(size, device=like.device, dtype=like.dtype)
    centres = pixels if zero_pad else pixels[radius : size - radius]
    offsets = pixels - centres.unsqueeze(1)
    weights = torch.exp(-offsets.square() / (2 * _SIGMA**2)) * (offsets.abs() <= radius)
    whole = torch.arange(-radius, radius + 1, device=like.device, dtype=like.dtype)
    return weights / torch.exp(-whole.square() / (2 * _SIGMA**2)).sum()


def ssim_zero_pad(x: Tensor, y: Tensor) -> Tensor:
    """SSIM with zero padding."""
    return ssim(x, y, zero_pad=True)


@dataclass(frozen=True)
class Metric:
    """One measure. ``private`` is the direction of less recovery; ``pixels`` the smallest image side it supports.

    ``perfect`` is the score of a perfect copy; None for decibels, whose ratios mean nothing. Every measure is in
    audits, in the report's table of attacks and in CSV files. ``terminal``, ``table`` and ``compared`` give its
    position in the terminal's table, in the report's tables and among the measures that compare arms; 0: it is not
    shown there.
    """

    function: Callable[[Tensor, Tensor], Tensor]
    private: Literal["higher", "lower"]
    unit: str
    decimals: int
    perfect: float | None
    pixels: int = 1
    terminal: int = 0
    table: int = 0
    compared: int = 0


METRICS: dict[str, Metric] = {
    "mse": Metric(mse, "higher", "", 4, 0.0, terminal=1, table=1, compared=1),
    "psnr": Metric(psnr, "lower", "dB", 1, None, terminal=3, table=4),
    "ssim": Metric(ssim, "lower", "", 3, 1.0, pixels=_WINDOW, terminal=2, table=3, compared=3),
    "ssim_zero_pad": Metric(ssim_zero_pad, "lower", "", 3, 1.0),
    "structure": Metric(structure, "higher", "", 4, 0.0, table=2, compared=2),
    "edges": Metric(edges, "lower", "", 3, 1.0, pixels=_PREWITT),
    "band_mean": Metric(band_mean, "higher", "", 4, 0.0),
    "band_low": Metric(band_low, "higher", "", 4, 0.0),
    "band_high": Metric(band_high, "higher", "", 4, 0.0),
}
"""Measures by name; the first one ranks attacks, and the three bands add up to it. Their titles are in the catalogue,
under `measure.NAME`. This is the only list: docs/adding.md adds one."""
PERFECT: dict[str, float] = {name: item.perfect for name, item in METRICS.items() if item.perfect is not None}
"""The score of a perfect copy, by measure."""


def shown_in(place: Literal["terminal", "table", "compared"]) -> tuple[str, ...]:
    """The measures that are shown there, in order."""
    ranks = {name: int(getattr(metric, place)) for name, metric in METRICS.items()}
    return tuple(sorted(filter(ranks.get, ranks), key=ranks.__getitem__))
