"""Deep image prior: it undoes what it can see through, stops at the noise, and treats each image alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attncem.base.types import NotApplicable
from attncem.config.options.attacks import ImagePriorOptions, MeanImageOptions
from attncem.config.options.channels import (
    ChannelOptions,
    DropoutOptions,
    GaussianOptions,
    QuantiseOptions,
    TopKOptions,
)
from attncem.config.threats import THREATS
from attncem.judging.attacks.image_prior import ImagePriorAttack
from attncem.judging.oracle import Oracle
from attncem.models.channels import build_channel
from attncem.models.split import SplitModel
from attncem.records.metrics import mse
from contracts.test_attacks import AUXILIARY, EVALUATION, LEAKY, errors, fitted, make_oracle

SOME = EVALUATION[0][:25]


def prior(oracle: Oracle, **options: Any) -> ImagePriorAttack:
    few = {"steps": 20, "max_steps": 20, "width": 8, "tuning_images": 5}
    attack = fitted(ImagePriorOptions.model_validate({**few, **options}), oracle)
    assert isinstance(attack, ImagePriorAttack)
    return attack


def error(oracle: Oracle, **options: Any) -> float:
    return float(mse(prior(oracle, **options).reconstruct(oracle.release(SOME)), SOME).mean())


def test_it_undoes_the_identity() -> None:
    oracle = make_oracle(LEAKY)
    blind = float(errors(MeanImageOptions(), oracle).mean())
    assert error(oracle, steps=300, max_steps=300, width=16) < 0.02 * blind


def test_it_stops_before_it_follows_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise of 0.1: an image that explains the release wholly has an error of 0.01."""
    oracle = make_oracle(LEAKY, noise_std=0.1)
    attack = prior(oracle, steps=200, max_steps=200, width=16)
    released = oracle.release(SOME)
    stopped = float(mse(attack.reconstruct(released), SOME).mean())
    attack._enough = torch.tensor(0.0)
    followed = float(mse(attack.reconstruct(released), SOME).mean())
    assert stopped < 0.8 * followed
    assert stopped < 0.004


def test_an_image_alone_is_the_same_as_among_others() -> None:
    attack = prior(make_oracle(LEAKY, noise_std=0.1), steps=100, max_steps=100)
    released = LEAKY(EVALUATION[0][:30])
    together = attack.reconstruct(released)
    assert torch.equal(attack.reconstruct(released[3:4]), together[3:4])
    assert torch.equal(attack.reconstruct(released[27:]), together[27:])


def test_steps_are_chosen_on_own_images_and_told() -> None:
    attack = prior(make_oracle(LEAKY), steps=10, max_steps=40)
    curve = attack.verdict.curve
    assert [point.epochs for point in curve] == [10, 20, 40]
    assert attack.verdict.chosen == {"steps": attack.steps} == {"steps": 40}
    assert attack.verdict.gain_of_doubling == 1 - curve[2].validation_error / curve[1].validation_error
    assert [item.code for item in attack.findings] == ["prior_not_converged"]
    settled = prior(make_oracle(LEAKY, noise_std=0.3), steps=100, max_steps=200, width=16)
    assert settled.verdict.reliable and not settled.findings
    with pytest.raises(ValueError, match="below the first budget"):
        ImagePriorOptions(steps=10, max_steps=5)


class Tokens(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return LEAKY(x).flatten(2).transpose(1, 2)


@pytest.mark.parametrize("encoder", [LEAKY, Tokens(), nn.Flatten()], ids=["maps", "tokens", "vector"])
@pytest.mark.parametrize(
    "channel",
    [GaussianOptions(noise_std=0.1, noise="keyed"), DropoutOptions(rate=0.3), TopKOptions(), QuantiseOptions(bits=2)],
    ids=lambda options: options.name,
)
def test_every_channel_and_shape(encoder: nn.Module, channel: ChannelOptions) -> None:
    built = build_channel([channel]).bind(bytes(range(32)), "mark")
    oracle = Oracle(SplitModel(encoder, built, None).eval(), THREATS["train"], *AUXILIARY, num_classes=4)
    images = prior(oracle, steps=3, max_steps=3).reconstruct(oracle.release(SOME[:4]))
    assert images.shape == SOME[:4].shape
    assert images.isfinite().all()


def test_few_images_of_odd_sizes_are_enough() -> None:
    x = torch.rand(4, 3, 9, 7, generator=torch.Generator().manual_seed(0))
    model = SplitModel(nn.Flatten(), build_channel([GaussianOptions(noise_std=0.1)]), None)
    oracle = Oracle(model, THREATS["train"], x, torch.arange(4), num_classes=4)
    assert prior(oracle, steps=2, max_steps=4).reconstruct(x.flatten(1)).shape == x.shape


def test_without_the_encoder_it_is_not_applicable() -> None:
    with pytest.raises(NotApplicable, match="does not know the encoder"):
        prior(make_oracle(LEAKY, threat=THREATS["query_only"]))
