"""Guessing the noise: seeds of torch's generator are tried in vain against 256 bits, and found where there are 32."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from attncem.base.types import NotApplicable
from attncem.config.options.attacks import NoiseGuessOptions, RidgeOptions
from attncem.config.options.channels import ChannelOptions, DropoutOptions, GaussianOptions
from attncem.config.threats import THREATS
from attncem.judging.attacks.noise_guess import ALL, NoiseGuessAttack, comparable, drawn, normal_numbers
from attncem.judging.auditing import Case, measure
from attncem.judging.oracle import Oracle
from attncem.models.channels import Channel, build_channel, pixels_of
from attncem.models.split import SplitModel
from attncem.records.metrics import mse
from contracts.test_attacks import AUXILIARY, LEAKY, fitted, pictures
from probing import subject

KEY, STD, SEEDS = b"a key of an old run", 0.3, 2**16


def weak_channel(*options: ChannelOptions) -> Channel:
    stages = options or (GaussianOptions(noise_std=STD, noise="keyed"),)
    return build_channel(stages).bind(KEY, "mark", scheme=0).eval()


def grainy(count: int, seed: int) -> Tensor:
    """Pictures with grain, in whole grey levels."""
    smooth = pictures(64, seed)[0].repeat(-(-count // 64), 1, 1, 1)[:count]
    grain = torch.randint(-10, 11, smooth.shape, generator=torch.Generator().manual_seed(seed))
    return ((255 * smooth).round() + grain).clamp(0, 255) / 255


def seeds_of(x: Tensor) -> Tensor:
    """The 32 bits that scheme 0 leaves of each image's noise."""
    key = hashlib.sha256(KEY + bytes([0])).digest()
    marks = (hmac.digest(key, pixels, "sha256")[:8] for pixels in pixels_of(x))
    return torch.tensor([(int.from_bytes(mark, "big") >> 1) % ALL for mark in marks])


def weak_oracle() -> Oracle:
    model = SplitModel(LEAKY, weak_channel(), None)
    return Oracle(model, THREATS["train"], grainy(640, 1), torch.arange(640) % 4, num_classes=4)


@pytest.fixture(scope="module")
def attack() -> NoiseGuessAttack:
    found = fitted(NoiseGuessOptions(seeds=SEEDS), weak_oracle())
    assert isinstance(found, NoiseGuessAttack)
    return found


@pytest.mark.parametrize("features", [16, 36, 128, 225, 700])
def test_numbers_are_those_of_torch(features: int) -> None:
    seeds, count = torch.tensor([0, 1, 77, 2**31, 2**32 - 1]), comparable(features)
    whole = drawn(seeds, torch.empty(features))
    torch.testing.assert_close(normal_numbers(seeds, count), whole[:, :count], rtol=1e-5, atol=1e-6)
    upper = torch.empty(features).normal_(generator=torch.Generator().manual_seed(77 + 2**40))
    assert torch.equal(upper, whole[2]), "torch takes 32 bits of its seed"


def test_noise_of_32_bits_is_found_and_taken_off(attack: NoiseGuessAttack) -> None:
    many = grainy(2**18, 9)
    x = many[seeds_of(many) < SEEDS]
    assert len(x) >= 2
    released = weak_channel()(LEAKY(x), x=x)
    images = attack.reconstruct(released)
    noisy = fitted(RidgeOptions(), weak_oracle()).reconstruct(released)
    clean = attack._clean.reconstruct(LEAKY(x))
    torch.testing.assert_close(images, clean, rtol=0, atol=1e-5)
    assert float(mse(images, x).mean()) < 0.01 * float(mse(noisy, x).mean())


def test_noise_beyond_the_seeds_stays_on(attack: NoiseGuessAttack) -> None:
    x = grainy(20, 5)
    assert int(seeds_of(x).min()) >= SEEDS
    released = weak_channel()(LEAKY(x), x=x)
    assert torch.equal(attack.reconstruct(released), attack._noisy.reconstruct(released))


def test_what_is_left_to_try_is_told(attack: NoiseGuessAttack) -> None:
    assert not attack.verdict.reliable
    assert [item.code for item in attack.findings] == ["seeds_left"]
    assert "65,536 of 4,294,967,296 seeds" in attack.findings[0].text


@pytest.mark.parametrize("noise", ["fresh", "keyed"])
def test_noise_of_256_bits_is_not_guessed(noise: str) -> None:
    row = measure(Case(subject(LEAKY, STD, noise=noise), THREATS["train"]), "guess", NoiseGuessOptions(), seed=0).row
    assert row.outcome == "not_applicable"
    assert "256 random bits" in row.reason


def test_a_run_of_scheme_0_is_attacked() -> None:
    opened = subject(LEAKY, STD, noise="keyed")
    opened.model.channel.bind(KEY, "mark", scheme=0)  # type: ignore[operator]
    options = NoiseGuessOptions(seeds=1000, images=5)
    assert measure(Case(opened, THREATS["train"]), "guess", options, seed=0).row.outcome == "ok"
    blind = replace(THREATS["train"], knows_channel=False)
    assert measure(Case(opened, blind), "guess", options, seed=0).row.outcome == "not_applicable"


def test_channels_whose_draws_are_not_compared_are_left_out() -> None:
    other = weak_channel(DropoutOptions(rate=0.5, noise="keyed"))
    oracle = Oracle(SplitModel(LEAKY, other, None), THREATS["train"], *AUXILIARY, num_classes=4)
    with pytest.raises(NotApplicable, match="only for channels with Gaussian noise"):
        NoiseGuessAttack().fit(oracle, seed=0)
    for features in (8, 20, 31):
        with pytest.raises(NotApplicable, match="fewer than 16 features"):
            comparable(features)
