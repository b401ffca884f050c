"""Learned attacks behind every kind of channel, on features of every form, and with hardly any images."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attncem.config.options.attacks import FamilyOptions, FlowOptions, GanOptions, InformedOptions, PublishedOptions
from attncem.config.options.channels import (
    DropoutOptions,
    GaussianOptions,
    LocalDPOptions,
    QuantiseOptions,
    TopKOptions,
)
from attncem.config.threats import THREATS
from attncem.judging.attacks import build_attack
from attncem.judging.oracle import Oracle
from attncem.models.channels import build_channel
from attncem.models.split import SplitModel

ATTACKS: dict[str, Any] = {
    "published": PublishedOptions(epochs=0.1),
    "gan": GanOptions(epochs=0.1, decoder_epochs=0.1, critic_steps=1),
    "family": FamilyOptions(epochs=0.1, max_epochs=0.1, widths=(8,), fractions=(0.1, 1), least_steps=20),
    "informed": InformedOptions(epochs=0.1, max_epochs=0.1, least_steps=20),
    "flow": FlowOptions(epochs=0.1, max_epochs=0.1, width=8, blocks=1, samples=2, steps=1, least_steps=20),
}
CHANNELS: dict[str, Any] = {
    "keyed": [GaussianOptions(noise_std=0.1, noise="keyed")],
    "dropout": [DropoutOptions(rate=0.3)],
    "top_k": [TopKOptions(keep=0.5)],
    "quantise": [GaussianOptions(noise_std=0.1), QuantiseOptions(bits=4)],
    "local_dp": [LocalDPOptions(epsilon=10.0)],
}


class Tokens(nn.Module):
    """Nine places with 16 numbers each."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.pixel_unshuffle(x, 4).flatten(2).transpose(1, 2)


FEATURES: dict[str, nn.Module] = {
    "maps": nn.PixelUnshuffle(4),
    "tokens": Tokens(),
    "a vector": nn.Flatten(),
}


def make_oracle(encoder: nn.Module, channel: str, count: int = 60) -> Oracle:
    """Pictures of whole grey levels, as keyed noise reads them."""
    x = torch.randint(0, 256, (count, 1, 12, 12), generator=torch.Generator().manual_seed(0)) / 255
    stages = build_channel(CHANNELS[channel])
    stages.bind(bytes(32), "mark")
    model = SplitModel(encoder, stages, None)
    return Oracle(model, THREATS["train"], x, torch.zeros(count, dtype=torch.long), num_classes=1)


def assert_works(name: str, oracle: Oracle) -> None:
    """Images in [0, 1], each from its own release alone, and the same after what was learned was written down."""
    attack, other = build_attack(ATTACKS[name]), build_attack(ATTACKS[name])
    attack.fit(oracle, seed=0)
    released = oracle.release(oracle.auxiliary()[0][:5])
    images = attack.reconstruct(released)
    assert images.shape == (5, 1, 12, 12)
    assert images.min() >= 0 and images.max() <= 1 and bool(images.isfinite().all())
    alone = torch.cat([attack.reconstruct(part) for part in released.split(1)])
    torch.testing.assert_close(alone, images, rtol=0, atol=1e-5)
    state = attack.state()
    assert state is not None
    other.load(state)
    assert torch.equal(other.reconstruct(released), images)
    assert attack.verdict.reliable == (not attack.findings)


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("name", ATTACKS)
def test_behind_every_channel(name: str, channel: str) -> None:
    assert_works(name, make_oracle(FEATURES["maps"], channel))


@pytest.mark.parametrize("feature", ["tokens", "a vector"])
@pytest.mark.parametrize("name", ATTACKS)
def test_with_features_of_every_form(name: str, feature: str) -> None:
    assert_works(name, make_oracle(FEATURES[feature], "quantise"))


@pytest.mark.parametrize("name", ATTACKS)
def test_with_twenty_images(name: str) -> None:
    assert_works(name, make_oracle(FEATURES["maps"], "quantise", count=20))
