"""Re-whitening: what was shrunk inside the classes is found again, and nothing is lost where nothing was shrunk."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attncem.config.options.attacks import DecoderOptions, RewhiteningOptions, RidgeOptions
from attncem.config.options.channels import (
    ChannelOptions,
    DropoutOptions,
    GaussianOptions,
    LocalDPOptions,
    QuantiseOptions,
    TopKOptions,
)
from attncem.config.threats import THREATS
from attncem.judging.attacks import rewhitening
from attncem.judging.attacks.rewhitening import RewhiteningAttack, Spread
from attncem.judging.oracle import Oracle
from attncem.models.channels import build_channel
from attncem.models.split import SplitModel
from attncem.records.metrics import mse
from contracts.test_attacks import AUXILIARY, EVALUATION, HARD, LEAKY, Scaled, errors, fitted, make_oracle


class Collapsed(nn.Module):
    """A rotation of the picture and of a large code of its class, with the picture `factor` times as large."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor
        generator = torch.Generator().manual_seed(0)
        rotation = torch.linalg.qr(torch.randn(180, 180, generator=generator, dtype=torch.float64)).Q
        self.rotation = rotation

    def forward(self, x: Tensor) -> Tensor:
        quarter = F.avg_pool2d(x, 6).flatten(1)
        code = 10 * F.one_hot(quarter.argmax(1), 4).double().repeat(1, 9)
        z = torch.cat([code, self.factor * x.flatten(1).double()], 1) @ self.rotation
        return z.float().view(-1, 20, 3, 3)


class Compact(nn.Module):
    """Each picture is drawn to the mean of its class until `factor` of the distance is left."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor
        self.means = torch.stack([AUXILIARY[0][AUXILIARY[1] == label].mean(0) for label in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        mean = self.means[F.avg_pool2d(x, 6).flatten(1).argmax(1)]
        return F.pixel_unshuffle(mean + self.factor * (x - mean), 4)


def error(options: Any, encoder: nn.Module, noise_std: float = 0.0) -> float:
    return float(errors(options, make_oracle(encoder, noise_std=noise_std)).mean())


def test_a_defence_that_only_shrinks_the_classes_is_undone() -> None:
    """To a hundred-thousandth: ridge's weakest penalty is too strong for it, stretched it is not."""
    plain, stretched = (error(options, Collapsed(1e-5)) for options in (RidgeOptions(), RewhiteningOptions()))
    whole = error(RidgeOptions(), Collapsed(1.0))
    assert plain > 100 * whole + 1e-4
    assert stretched < 0.1 * plain


def test_a_decoder_learns_from_shrunken_classes_after_stretching() -> None:
    plain = error(DecoderOptions(epochs=6, max_epochs=6), Compact(1e-3))
    stretched = error(RewhiteningOptions(then="decoder", decoder_epochs=3, powers=(1.0,)), Compact(1e-3))
    assert stretched < 0.7 * plain


@pytest.mark.parametrize("noise_std", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("encoder", [LEAKY, Scaled(0.1), *HARD.values()], ids=["leaky", "scaled", *HARD])
def test_it_does_not_lose_to_ridge(encoder: nn.Module, noise_std: float) -> None:
    plain, stretched = (error(options, encoder, noise_std) for options in (RidgeOptions(), RewhiteningOptions()))
    assert stretched < 1.01 * plain + 1e-6


def test_without_stretching_it_is_ridge() -> None:
    plain, stretched = (error(options, LEAKY, 0.1) for options in (RidgeOptions(), RewhiteningOptions(powers=(0.0,))))
    assert stretched == pytest.approx(plain, rel=1e-4)


def test_whitened_releases_spread_alike_inside_their_classes() -> None:
    mixing = torch.randn(12, 12, generator=torch.Generator().manual_seed(1))
    y = torch.arange(3000) % 3
    released = torch.randn(3000, 12, generator=torch.Generator().manual_seed(2)) @ mixing + 5 * y[:, None]
    released = released.view(-1, 3, 2, 2)
    whitened = Spread(released, y, 1e-9).whitener(1.0)(released)
    assert whitened.shape == released.shape
    flat = whitened.flatten(1)
    for label in range(3):
        assert torch.cov(flat[y == label].T) == pytest.approx(torch.eye(12), abs=0.15)
    half = Spread(released, y, 1e-9).whitener(0.5)(released).flatten(1)
    before = Spread(released, y, 1e-9).whitener(0.0)(released).flatten(1)
    spreads = [torch.linalg.eigvalsh(torch.cov(part[y == 0].T)) for part in (before, half, flat)]
    ratios = [float(values[-1] / values[0]) for values in spreads]
    assert ratios[0] > ratios[1] > ratios[2]


def test_the_power_is_chosen_and_told() -> None:
    attack = fitted(RewhiteningOptions(), make_oracle(Collapsed(1e-5)))
    assert isinstance(attack, RewhiteningAttack)
    assert attack.verdict.chosen == {"power": attack.power}
    assert attack.power > 0


def test_of_too_many_features_only_the_deviations_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewhitening, "_LARGEST", 40)
    attack = fitted(RewhiteningOptions(powers=(1.0,)), make_oracle(LEAKY))
    state = attack.state()
    assert state is not None
    assert state["stretch"].shape == (144,)
    assert float(mse(attack.reconstruct(LEAKY(EVALUATION[0])), EVALUATION[0]).mean()) < 1e-4


@pytest.mark.parametrize("then", ["ridge", "decoder"])
@pytest.mark.parametrize("labels", [torch.arange(20), torch.zeros(20, dtype=torch.int64)], ids=["each its own", "one"])
def test_few_images_are_enough(then: Any, labels: Tensor) -> None:
    oracle = make_oracle(LEAKY, noise_std=0.1, data=(AUXILIARY[0][:20], labels))
    images = fitted(RewhiteningOptions(then=then, decoder_epochs=1), oracle).reconstruct(LEAKY(EVALUATION[0]))
    assert images.isfinite().all()


@pytest.mark.parametrize(
    "channel",
    [
        GaussianOptions(noise_std=0.1, noise="keyed"),
        DropoutOptions(rate=0.3),
        TopKOptions(keep=0.5),
        QuantiseOptions(bits=2),
        LocalDPOptions(clip=5.0, epsilon=20.0),
    ],
    ids=lambda options: options.name,
)
def test_every_channel(channel: ChannelOptions) -> None:
    def oracle() -> Oracle:
        built = build_channel([channel])
        built.bind(bytes(range(32)), "mark")
        return Oracle(SplitModel(LEAKY, built, None), THREATS["train"], *AUXILIARY, num_classes=4)

    plain, stretched = (
        float(mse(fitted(options, oracle()).reconstruct(oracle().release(EVALUATION[0])), EVALUATION[0]).mean())
        for options in (RidgeOptions(), RewhiteningOptions())
    )
    assert stretched < 1.02 * plain
