from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.signal import convolve2d
from skimage.metrics import structural_similarity
from torch import Tensor

from attncem.base.texts import text
from attncem.records.metrics import (
    COARSE,
    METRICS,
    PERFECT,
    accuracy,
    band_high,
    band_low,
    band_mean,
    edges,
    mse,
    psnr,
    ssim,
    structure,
)

SHAPES = [(4, 1, 28, 28), (4, 3, 32, 32), (2, 5, 7, 9), (3, 3, 20, 37), (2, 1, 1, 1), (2, 3, 4, 4)]
"""Grey, colour, other channels; even, odd, oblong and tiny sides."""
BANDS = (band_mean, band_low, band_high)


def pair(shape: tuple[int, ...], *, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Images with smooth structure, and noisy copies of them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(shape, generator=generator, dtype=dtype)
    x = torch.nn.functional.avg_pool2d(x, 3, stride=1, padding=1)
    return x, (x + 0.1 * torch.randn(shape, generator=generator, dtype=dtype)).clamp(0, 1)


def slow_zero_pad_ssim(x: np.ndarray, y: np.ndarray) -> float:
    """SSIM of one grey image, window by window, pixels outside counting as zero."""
    offsets = np.arange(-5, 6)
    line = np.exp(-(offsets**2) / (2 * 1.5**2))
    window = np.outer(line, line) / line.sum() ** 2
    a, b = np.pad(x, 5), np.pad(y, 5)
    values = []
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            p, q = a[i : i + 11, j : j + 11], b[i : i + 11, j : j + 11]
            mean_p, mean_q = (window * p).sum(), (window * q).sum()
            var_p = (window * p * p).sum() - mean_p**2
            var_q = (window * q * q).sum() - mean_q**2
            cov = (window * p * q).sum() - mean_p * mean_q
            values.append(
                (2 * mean_p * mean_q + 1e-4)
                * (2 * cov + 9e-4)
                / ((mean_p**2 + mean_q**2 + 1e-4) * (var_p + var_q + 9e-4))
            )
    return float(np.mean(values))


@pytest.mark.parametrize("shape", [(4, 1, 28, 28), (4, 3, 32, 32), (2, 1, 11, 11), (2, 3, 20, 37)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.float32, 1e-4)])
def test_ssim_is_that_of_scikit_image(shape: tuple[int, ...], dtype: torch.dtype, tolerance: float) -> None:
    x, y = pair(shape, dtype=dtype)
    expected = [
        structural_similarity(
            a.double().numpy(),
            b.double().numpy(),
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
            data_range=1,
            channel_axis=0,
        )
        for a, b in zip(x, y, strict=True)
    ]
    assert ssim(x, y).tolist() == pytest.approx(expected, abs=tolerance)
    assert ssim(x, y).dtype == dtype


@pytest.mark.parametrize("size", [5, 16])
def test_zero_padded_ssim_is_the_slow_one(size: int) -> None:
    x, y = pair((2, 1, size, size), seed=3)
    expected = [slow_zero_pad_ssim(a[0].numpy(), b[0].numpy()) for a, b in zip(x, y, strict=True)]
    assert ssim(x, y, zero_pad=True).tolist() == pytest.approx(expected, abs=1e-9)


def test_zero_padded_ssim_of_colours_is_the_mean_over_channels() -> None:
    x, y = pair((2, 3, 16, 16))
    channels = torch.stack([ssim(x[:, c : c + 1], y[:, c : c + 1], zero_pad=True) for c in range(3)])
    assert ssim(x, y, zero_pad=True).tolist() == pytest.approx(channels.mean(0).tolist(), abs=1e-12)


def test_mse_and_psnr_by_hand() -> None:
    x = torch.zeros(3, 1, 2, 2)
    y = torch.zeros(3, 1, 2, 2)
    y[1] = 0.1
    y[2, 0, 0, 0] = 1.0
    assert mse(x, y).tolist() == pytest.approx([0.0, 0.01, 0.25])
    assert psnr(x, y).tolist() == pytest.approx([100.0, 20.0, -10 * math.log10(0.25)], abs=1e-4)


def test_identical_images() -> None:
    x, _ = pair((3, 3, 16, 16))
    assert mse(x, x).tolist() == [0, 0, 0]
    assert psnr(x, x).tolist() == pytest.approx([100] * 3)
    assert ssim(x, x).tolist() == pytest.approx([1] * 3, abs=1e-12)
    assert ssim(x, x, zero_pad=True).tolist() == pytest.approx([1] * 3, abs=1e-12)


@pytest.mark.parametrize("metric", [metric.function for metric in METRICS.values()], ids=list(METRICS))
def test_each_image_stands_alone(metric) -> None:
    x, y = pair((5, 1, 14, 14))
    alone = torch.cat([metric(x[i : i + 1], y[i : i + 1]) for i in range(5)])
    assert metric(x, y).tolist() == pytest.approx(alone.tolist(), abs=1e-12)
    reversed_order = metric(x.flip(0), y.flip(0)).flip(0)
    assert metric(x, y).tolist() == pytest.approx(reversed_order.tolist(), abs=1e-12)


@pytest.mark.parametrize("metric", [metric.function for metric in METRICS.values()], ids=list(METRICS))
@pytest.mark.parametrize(
    ("x", "y"),
    [
        (torch.zeros(2, 1, 16, 16), torch.zeros(2, 3, 16, 16)),
        (torch.zeros(2, 1, 16, 16), torch.zeros(1, 1, 16, 16)),
        (torch.zeros(1, 16, 16), torch.zeros(1, 16, 16)),
    ],
)
def test_shapes_must_agree(metric, x: Tensor, y: Tensor) -> None:
    with pytest.raises(ValueError, match=r"\[B, C, H, W\]"):
        metric(x, y)


@pytest.mark.parametrize("shape", [(1, 1, 10, 20), (1, 1, 20, 10)])
def test_ssim_refuses_images_smaller_than_its_window(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="at least 11 px"):
        ssim(torch.zeros(shape), torch.zeros(shape))


# measures that a wrong brightness or tint does not flatter


def slow_edges(x: np.ndarray, y: np.ndarray) -> float:
    """Gradient magnitude similarity [C, H, W] by convolutions, as the paper writes it, pooled by the mean."""
    kernel = np.array([[1, 0, -1]] * 3) / 3

    def magnitudes(image: np.ndarray) -> np.ndarray:
        grey = np.tensordot([0.299, 0.587, 0.114], image, 1) if len(image) == 3 else image.mean(0)
        across, down = (np.asarray(convolve2d(grey, way, mode="valid")) for way in (kernel, kernel.T))
        return np.asarray(np.hypot(across, down))

    m, n, c = magnitudes(x), magnitudes(y), 170 / 255**2
    return float(((2 * m * n + c) / (m**2 + n**2 + c)).mean())


@pytest.mark.parametrize("shape", [(4, 1, 28, 28), (4, 3, 32, 32), (2, 5, 7, 9), (3, 3, 20, 37), (2, 2, 3, 3)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_edges_are_those_of_a_convolution(shape: tuple[int, ...], dtype: torch.dtype, tolerance: float) -> None:
    x, y = pair(shape, dtype=dtype)
    expected = [slow_edges(a.double().numpy(), b.double().numpy()) for a, b in zip(x, y, strict=True)]
    assert edges(x, y).tolist() == pytest.approx(expected, abs=tolerance)
    assert edges(x, y).dtype == dtype


def test_edges_by_hand() -> None:
    """A step of height h is a gradient of h in the two columns beside it, against nothing in a flat image."""
    x, flat = torch.zeros(1, 1, 5, 8, dtype=torch.float64), torch.zeros(1, 1, 5, 8, dtype=torch.float64)
    x[..., 4:] = 0.5
    c = 170 / 255**2
    assert edges(x, flat).item() == pytest.approx((4 + 2 * c / (0.5**2 + c)) / 6, abs=1e-12)
    assert METRICS["edges"].pixels == 3
    with pytest.raises(ValueError, match="at least 3 px"):
        edges(torch.zeros(1, 1, 2, 9), torch.zeros(1, 1, 2, 9))


def slow_bands(x: np.ndarray, y: np.ndarray) -> list[float]:
    """Parts of the MSE [C, H, W] by the frequencies of each channel's error, one after the other."""
    found = [0.0, 0.0, 0.0]
    height, width = x.shape[1:]
    for channel in x - y:
        power = np.abs(np.fft.fft2(channel)) ** 2 / (height * width) ** 2 / len(x)
        for i in range(height):
            for j in range(width):
                radius = math.hypot(min(i, height - i), min(j, width - j))
                found[0 if radius == 0 else 1 if radius < 4 else 2] += power[i, j]
    return found


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 1e-7)])
def test_bands_are_parts_of_the_error(shape: tuple[int, ...], dtype: torch.dtype, tolerance: float) -> None:
    x, y = pair(shape, dtype=dtype)
    found = torch.stack([band(x, y) for band in BANDS], 1)
    expected = [slow_bands(a.double().numpy(), b.double().numpy()) for a, b in zip(x, y, strict=True)]
    assert found.tolist() == [pytest.approx(parts, abs=tolerance) for parts in expected]
    assert found.sum(1).tolist() == pytest.approx(mse(x, y).tolist(), abs=tolerance)
    assert found[:, 1:].sum(1).tolist() == pytest.approx(structure(x, y).tolist(), abs=tolerance)
    assert found.dtype == dtype
    assert bool((found >= 0).all())


@pytest.mark.parametrize("size", [(28, 28), (32, 32), (17, 40)])
@pytest.mark.parametrize(
    ("cycles", "band"),
    [((0, 0), 0), ((0, 1), 1), ((3, 0), 1), ((2, 3), 1), ((0, 4), 2), ((4, 0), 2), ((3, 3), 2), ((6, 5), 2)],
)
def test_a_wave_lands_in_its_band(size: tuple[int, int], cycles: tuple[int, int], band: int) -> None:
    rows, columns = (torch.arange(side, dtype=torch.float64) / side for side in size)
    wave = 0.5 * torch.cos(2 * torch.pi * (cycles[0] * rows.unsqueeze(1) + cycles[1] * columns))
    x = torch.zeros(1, 3, *size, dtype=torch.float64)
    found = [part(x, x + wave).item() for part in BANDS]
    energy = 0.25 if band == 0 else 0.125
    assert found == pytest.approx([energy if number == band else 0.0 for number in range(3)], abs=1e-14)
    assert structure(x, x + wave).item() == pytest.approx(0.0 if band == 0 else energy, abs=1e-14)


def test_structure_and_edges_do_not_see_the_mean_colour() -> None:
    x, y = pair((3, 3, 16, 16))
    tint = torch.tensor([0.2, -0.1, 0.3], dtype=x.dtype).view(3, 1, 1)
    assert structure(x, y + tint).tolist() == pytest.approx(structure(x, y).tolist(), abs=1e-14)
    assert edges(x, y + tint).tolist() == pytest.approx(edges(x, y).tolist(), abs=1e-12)
    assert structure(x, x + tint).tolist() == pytest.approx([0] * 3, abs=1e-14)
    assert mse(x, x + tint).tolist() == pytest.approx([float(tint.square().mean())] * 3)


def test_every_measure_of_a_perfect_copy_is_known() -> None:
    assert METRICS.keys() - PERFECT.keys() == {"psnr"}
    assert PERFECT.keys() <= METRICS.keys()
    x, y = pair((3, 3, 16, 16))
    for name, perfect in PERFECT.items():
        metric = METRICS[name]
        assert metric.function(x, x).tolist() == pytest.approx([perfect] * 3, abs=1e-12), name
        worse = metric.function(x, y) > metric.function(x, x)
        assert bool(worse.all()) == (metric.private == "higher"), name
    assert str(COARSE) in text("measure.band_low.meaning")
    assert f"{2 * COARSE}×{2 * COARSE}" in text("measure.band_low.meaning")


def test_ssim_can_be_learned_from() -> None:
    x, y = pair((2, 1, 12, 12))
    guess = y.clone().requires_grad_()
    (1 - ssim(guess, x).mean()).backward()
    assert guess.grad is not None
    step = guess.detach() - guess.grad / guess.grad.abs().max() * 1e-2
    assert ssim(step, x).mean() > ssim(y, x).mean()


def test_accuracy_is_one_or_zero_for_each_image() -> None:
    logits = torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]])
    assert accuracy(logits, torch.tensor([1, 1, 1])).tolist() == [1.0, 0.0, 1.0]
