"""Laws of all attacks: what must be recovered from an identity, and the closed form that none may beat.

That a constant z tells nobody anything is in the shared tester, contracts/test_attacks.py.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attncem.config.options.attacks import (
    GanOptions,
    ImagePriorOptions,
    MeanImageOptions,
    PublishedOptions,
    RewhiteningOptions,
)
from attncem.config.options.channels import GaussianOptions
from attncem.config.threats import THREATS, with_releases
from attncem.judging.attacks import ATTACKS
from attncem.judging.oracle import Oracle
from attncem.models.channels import build_channel
from attncem.models.decoders import DECODERS, GlobalDecoder
from attncem.models.split import SplitModel
from attncem.records.metrics import mse
from attncem.testing.attack_world import Constant
from contracts.test_attacks import (
    CASES,
    LEAKY,
    errors,
    fitted,
    flowing,
    informed,
    learned,
    make_oracle,
    optimised,
    related,
)

NEAR_PERFECT = 0.02
"""Part of the mean image's error that may be left of the identity."""

IDENTITY: dict[str, Any] = {
    **{name: options for name, options in CASES.items() if "queries" in ATTACKS[options.name].needs},
    "decoder": learned(epochs=40, max_epochs=40),
    "decoder ssim": learned(epochs=40, max_epochs=40, loss="mse_ssim"),
    "decoder global": learned(epochs=20, max_epochs=20, size="global", lr=1.5e-3),
    "decoder published": learned(epochs=30, max_epochs=30, size="published", lr=3e-3),
    "published": PublishedOptions(epochs=20, batch_size=16, lr=3e-3),
    "gan": GanOptions(decoder_epochs=30, decoder_batch_size=16, epochs=3, batch_size=16, critic_steps=3, lr=1e-4),
    "family": related(epochs=30, max_epochs=30, widths=(16,), fractions=(1.0,)),
    "informed": informed(epochs=20, max_epochs=20),
    "flow": flowing(epochs=20, max_epochs=20),
    "rewhitening decoder": RewhiteningOptions(then="decoder", decoder_epochs=20, powers=(1.0,)),
    "image_prior": ImagePriorOptions(steps=300, max_steps=300, width=16),
    "optimisation random": optimised(start="random", steps=100, max_steps=200),
}
"""Every attack that queries the client, with a budget in which it can learn."""
RETRIEVAL = {"nearest_neighbour"}
"""It answers with an own image: there is none that is equal."""
SLOW = {
    "decoder published",
    "gan",
    "rewhitening decoder",
    "flow",
    "informed",
    "image_prior",
    "published",
    "decoder global",
}
"""More than 3 s each. The shared tester asks less, a part of the class mean, of one form of each attack."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])
        for name in IDENTITY
        if name not in RETRIEVAL
    ],
)
def test_the_identity_is_recovered_nearly_perfectly(name: str) -> None:
    oracle = make_oracle(LEAKY)
    blind = float(errors(MeanImageOptions(), oracle).mean())
    assert float(errors(IDENTITY[name], oracle).mean()) < NEAR_PERFECT * blind


# a linear encoder of Gaussian images

PIXELS, STD = 144, 0.15


class Linear(nn.Module):
    """z = A (x − ½): 36 random directions, the first ones large."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        basis = torch.linalg.qr(torch.randn(PIXELS, PIXELS, generator=generator, dtype=torch.float64)).Q
        self.register_buffer("weight", (torch.linspace(1.5, 0.5, 36).double()[:, None] * basis[:36]).float())

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = (x.flatten(1) - 0.5) @ self.weight.T  # type: ignore[operator]
        return z.view(-1, 4, 3, 3)


def covariance() -> Tensor:
    """Of neighbouring pixels that are alike: 0.1² exp(−distance / 3)."""
    place = torch.cartesian_prod(torch.arange(12.0), torch.arange(12.0)).double()
    return 0.01 * torch.exp(-torch.cdist(place, place) / 3)


def gaussian_images(count: int, seed: int) -> Tensor:
    root = torch.linalg.cholesky(covariance())
    drawn = torch.randn(count, PIXELS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    x = 0.5 + drawn @ root.T
    assert float(((x < 0) | (x > 1)).double().mean()) < 1e-4, "clamping must not count"
    return x.clamp(0, 1).float().view(-1, 1, 12, 12)


OTHERS = gaussian_images(1000, seed=2)


def least_error(releases: int = 1) -> float:
    """MMSE = tr(Σ − ΣAᵀ(AΣAᵀ + σ²I)⁻¹AΣ) / d, with σ²/k for the mean of k releases."""
    sigma, a = covariance(), Linear().weight.double()  # type: ignore[union-attr]
    seen = a @ sigma @ a.T + STD**2 / releases * torch.eye(len(a), dtype=torch.float64)
    gained = sigma @ a.T @ torch.linalg.solve(seen, a @ sigma)
    return float((sigma - gained).diagonal().sum()) / PIXELS


def gaussian_oracle(count: int, releases: int = 1) -> Oracle:
    model = SplitModel(Linear(), build_channel([GaussianOptions(noise_std=STD)]), None)
    x = gaussian_images(count, seed=1)
    observed = model.release(OTHERS, generator=torch.Generator().manual_seed(4))
    threat = with_releases(THREATS["train"], releases)
    oracle = Oracle(model, threat, x, torch.arange(count) % 4, num_classes=4, observed=observed)
    oracle._weak_noise = True  # who tries seeds may, in vain
    return oracle


def errors_on_gaussian(options: Any, count: int, releases: int = 1) -> Tensor:
    oracle = gaussian_oracle(count, releases)
    return mse(fitted(options, oracle).reconstruct(oracle.release(OTHERS)), OTHERS).double()


@pytest.mark.parametrize("name", CASES)
def test_no_attack_goes_below_the_closed_form(name: str) -> None:
    """Beyond the 99.9 % interval of its own mean."""
    found = errors_on_gaussian(CASES[name], 320)
    upper = float(found.mean()) + 3.29 * float(found.std()) / math.sqrt(len(found))
    assert upper > least_error()


@pytest.mark.parametrize("releases", [1, 16, 256])
def test_the_best_attack_comes_near_the_closed_form(releases: int) -> None:
    """That of the mean of its releases, and not below it."""
    found = errors_on_gaussian(CASES["ridge"], 8000, releases)
    assert float(found.mean()) < 1.02 * least_error(releases)
    assert float(found.mean()) + 3.29 * float(found.std()) / math.sqrt(len(found)) > least_error(releases)
    assert least_error(256) < 0.85 * least_error(16) < 0.85**2 * least_error(), "the releases count"


GLOBAL = {"size": "global", "epochs": 10, "max_epochs": 10, "batch_size": 32}
"""The decoder of several releases, briefly."""


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A global decoder of few channels, which is quick."""
    monkeypatch.setitem(DECODERS, "global", partial(GlobalDecoder, width=24, blocks=2))


@pytest.mark.usefixtures("narrow")
def test_a_decoder_of_many_releases_stays_above_the_closed_form_of_their_mean() -> None:
    found = errors_on_gaussian(learned(**GLOBAL), 320, 256)
    upper = float(found.mean()) + 3.29 * float(found.std()) / math.sqrt(len(found))
    assert least_error(256) < upper < float(errors_on_gaussian(MeanImageOptions(), 320).mean())


class Faint(nn.Module):
    """All of the image, far below the noise of one release."""

    def forward(self, x: Tensor) -> Tensor:
        return 0.02 * LEAKY(x)


@pytest.mark.usefixtures("narrow")
def test_a_decoder_finds_in_many_releases_what_one_hides() -> None:
    one, many = (make_oracle(Faint(), noise_std=0.1, threat=with_releases(THREATS["train"], k)) for k in (1, 256))
    blind = float(errors(MeanImageOptions(), one).mean())
    assert float(errors(CASES["ridge"], one).mean()) > 0.95 * blind
    assert float(errors(learned(**GLOBAL), many).mean()) < 0.85 * blind


@pytest.mark.usefixtures("narrow")
def test_many_releases_of_a_constant_tell_a_decoder_nothing() -> None:
    oracle = make_oracle(Constant(), noise_std=0.1, threat=with_releases(THREATS["train"], 256))
    blind = float(errors(MeanImageOptions(), oracle).mean())
    assert float(errors(learned(**GLOBAL), oracle).mean()) > 0.95 * blind


def test_the_law_would_catch_an_attack_that_knows_too_much() -> None:
    """Planted: releases without the noise that others have."""
    quiet = SplitModel(Linear(), build_channel([GaussianOptions(noise_std=0.0)]), None)
    x = gaussian_images(2000, seed=1)
    oracle = Oracle(quiet, THREATS["train"], x, torch.arange(2000) % 4, num_classes=4)
    found = mse(fitted(CASES["ridge"], oracle).reconstruct(oracle.release(OTHERS)), OTHERS).double()
    assert float(found.mean()) + 3.29 * float(found.std()) / math.sqrt(len(found)) < least_error()
