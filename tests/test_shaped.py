"""Noise shaped by frequency: the law it has, and that bounds and attacks know it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.fft import dctn
from torch import Tensor, nn

from attncem.config.options.attacks import OptimisationOptions
from attncem.config.options.certificates import FisherOptions, LeakageOptions
from attncem.config.options.channels import GaussianOptions, ShapedOptions
from attncem.config.threats import THREATS
from attncem.judging.attacks.optimisation import OptimisationAttack
from attncem.judging.auditing.measuring import measure
from attncem.judging.case import Case
from attncem.judging.oracle import Oracle
from attncem.models.channels import SYSTEM, ShapedChannel, build_channel
from attncem.models.split import SplitModel
from attncem.records.metrics import mse
from probing import LEAKY, subject

STD = 0.2
SHAPE = (2, 6, 5)


def shaped(tilt: float, std: float = STD) -> ShapedChannel:
    channel = build_channel([ShapedOptions(noise_std=std, tilt=tilt)])
    assert isinstance(channel, ShapedChannel)
    return channel


def drawn(tilt: float, count: int = 20_000) -> Tensor:
    return shaped(tilt)(torch.zeros(count, *SHAPE), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("tilt", [-1.0, 0.0, 1.0, 3.0])
def test_each_wave_has_its_share_and_all_together_what_noise_std_says(tilt: float) -> None:
    numbers = drawn(tilt).numpy()
    assert np.sqrt(np.square(numbers).mean()) == pytest.approx(STD, rel=0.02)
    power = np.square(dctn(numbers, axes=(2, 3), norm="ortho")).mean((0, 1))
    half_periods = np.sqrt(np.arange(6)[:, None] ** 2 + np.arange(5)[None] ** 2)
    np.testing.assert_allclose(power / power[0, 0], (1 + half_periods) ** (-2 * tilt), rtol=0.06)


def test_without_tilt_it_is_gaussian() -> None:
    covariance = torch.cov(drawn(0.0).flatten(1).T)
    torch.testing.assert_close(covariance, STD**2 * torch.eye(60), rtol=0, atol=0.05 * STD**2)


@pytest.mark.parametrize("tilt", [-1.0, 1.0, 3.0])
def test_whitened_noise_is_white_and_nothing_is_lost(tilt: float) -> None:
    channel = shaped(tilt)
    covariance = torch.cov(channel.whitened(drawn(tilt)).flatten(1).T)
    torch.testing.assert_close(covariance, STD**2 * torch.eye(60), rtol=0, atol=0.05 * STD**2)
    z = torch.rand(3, *SHAPE)
    torch.testing.assert_close(channel._coloured(channel.whitened(z)), z)


def test_what_leaves_a_device_has_the_same_colour() -> None:
    numbers = shaped(1.0)(torch.zeros(3000, 1, 4, 4), generator=SYSTEM)
    power = np.square(dctn(numbers.numpy(), axes=(2, 3), norm="ortho")).mean((0, 1))
    assert power[0, 0] / power[0, 3] == pytest.approx(16, rel=0.15)


def test_features_without_a_map_get_white_noise() -> None:
    channel, plain = shaped(2.0), build_channel([GaussianOptions(noise_std=STD)])
    z = torch.rand(4, 30)
    one, other = (each(z, generator=torch.Generator().manual_seed(1)) for each in (channel, plain))
    assert torch.equal(one, other)
    assert channel.whitened(z) is z


class Whitened(nn.Module):
    """An encoder, and the coordinates in which the shaped noise behind it would be white."""

    def __init__(self, encoder: nn.Module, channel: ShapedChannel) -> None:
        super().__init__()
        self.encoder, self.channel = encoder, channel

    def forward(self, x: Tensor) -> Tensor:
        return self.channel.whitened(self.encoder(x))


@pytest.mark.parametrize("options", [LeakageOptions(), FisherOptions()], ids=lambda options: options.name)
def test_bounds_are_those_of_white_noise_in_the_right_coordinates(options: Any) -> None:
    channel = shaped(1.0)
    behind = subject(LEAKY)
    behind.model.channel = channel.eval()
    one = Case(behind, THREATS["train"])
    other = Case(subject(Whitened(LEAKY, channel), STD), THREATS["train"])
    found, expected = (measure(case, options.name, options, seed=0).row for case in (one, other))
    assert found.ok, found.reason
    for name, bound in expected.bounds.items():
        assert found.bounds[name].value == pytest.approx(bound.value, rel=1e-3)
    plain = measure(Case(subject(LEAKY, STD), THREATS["train"]), options.name, options, seed=0).row
    assert any(abs(plain.bounds[n].value / b.value - 1) > 0.05 for n, b in found.bounds.items())


class Mixed(nn.Module):
    """z = A (x − ½) as one map."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.matrix = matrix

    def forward(self, x: Tensor) -> Tensor:
        return ((x.flatten(1) - 0.5) @ self.matrix.T).view(len(x), 1, 6, 6)


def test_the_white_box_reaches_the_posterior_mean_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It weighs each wave by its noise; one that took the noise for white would be far off."""
    matrix = torch.randn(36, 36, generator=torch.Generator().manual_seed(1)) / 6
    deviation, std = 0.1, 0.1
    x = (0.5 + deviation * torch.randn(400, 1, 6, 6, generator=torch.Generator().manual_seed(2))).clamp(0, 1)
    channel = shaped(2.0, std)
    basis = channel._coloured(torch.eye(36).view(36, 1, 6, 6)).flatten(1)
    noise = std**2 * basis.T @ basis
    gram = deviation**2 * matrix @ matrix.T + noise
    left = deviation**2 * (36 - deviation**2 * torch.linalg.solve(gram, matrix @ matrix.T).trace())
    oracle = Oracle(SplitModel(Mixed(matrix), channel, None), THREATS["train"], x, torch.zeros(400), num_classes=2)
    assert error_of_white_box(oracle) < 1.1 * float(left) / 36
    monkeypatch.setattr("attncem.judging.attacks.optimisation.View.white", lambda _, released: released)
    assert error_of_white_box(oracle) > 1.2 * float(left) / 36


def error_of_white_box(oracle: Oracle) -> float:
    options = {"start": "mean", "pulls": (1.0,), "smoothness": (0.0,), "steps": 100, "max_steps": 200, "restarts": 1}
    attack = OptimisationAttack(OptimisationOptions.model_validate(options))
    attack.fit(oracle, seed=0)
    x = (0.5 + 0.1 * torch.randn(300, 1, 6, 6, generator=torch.Generator().manual_seed(3))).clamp(0, 1)
    released = oracle.release(x, generator=torch.Generator().manual_seed(4))
    return float(mse(attack.reconstruct(released), x).mean())
