"""Every attack against one contract; a new one is tested by adding a line to CASES."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attncem.attacks import ATTACKS, build_attack, decoder, ridge
from attncem.attacks.base import FittedAttack, Standardiser, divide
from attncem.attacks.oracle import ModelOracle
from attncem.channels import build_channel
from attncem.config.attacks import (
    ClassMeanOptions,
    DecoderOptions,
    GreyOptions,
    MeanImageOptions,
    NearestNeighbourOptions,
    RidgeOptions,
)
from attncem.config.channels import GaussianOptions
from attncem.metrics import mse, ssim
from attncem.models.split import SplitModel
from attncem.types import THREAT_MODELS, Forbidden, ThreatModel, TrainingError

SIZE, NUM_CLASSES = 12, 4


def learned(**options: Any) -> DecoderOptions:
    """A decoder whose settings do not move with the defaults."""
    return DecoderOptions.model_validate({"lr": 3e-3, "batch_size": 16, "tolerance": 0.02, **options})


SMALL = learned(epochs=3, max_epochs=6)
CASES: dict[str, Any] = {
    "grey": GreyOptions(),
    "mean_image": MeanImageOptions(),
    "class_mean": ClassMeanOptions(),
    "nearest_neighbour": NearestNeighbourOptions(),
    "ridge": RidgeOptions(),
    "decoder": SMALL,
    "decoder ssim": learned(epochs=1, max_epochs=2, loss="mse_ssim"),
    "decoder published": learned(epochs=1, max_epochs=2, size="published"),
}
"""A line per attack; further lines, told apart by a second word, for its other forms."""
SUCCEEDS = {"ridge": 1e-4, "decoder": 0.4}
"""Largest error on the leaky identity encoder: ridge's MSE itself, others as a part of the class-mean floor's."""
BEATS_RIDGE = {"decoder": learned(epochs=15, max_epochs=15)}
"""Attacks that must beat ridge on the sign-flipping encoder."""


class Constant(nn.Module):
    """Tells nothing about x."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.full((len(x), 4, 3, 3), 0.3, device=x.device)


class Scaled(nn.Module):
    """The leaky identity, made small."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * F.pixel_unshuffle(x, 4)


class SignFlipping(nn.Module):
    """(s · (x - ½), s) with a sign s that no linear map can undo: it follows the corner pixel's last digits."""

    def forward(self, x: Tensor) -> Tensor:
        sign = torch.sign(torch.sin(200 * x[:, :, :1, :1]))
        z = F.pixel_unshuffle(sign * (x - 0.5), 4)
        return torch.cat([z, sign.expand(-1, 1, 3, 3)], 1)


class Templates(nn.Module):
    """A server half for the leaky identity: the nearest class mean."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        super().__init__()
        z = F.pixel_unshuffle(x, 4)
        self.means = torch.stack([z[y == label].mean(0).flatten() for label in range(NUM_CLASSES)])

    def forward(self, z: Tensor) -> Tensor:
        return -torch.cdist(z.flatten(1), self.means)


def pictures(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Smooth pictures: one bright quarter that is the class, and 16 random grey levels."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % NUM_CLASSES
    field = torch.rand(count, 1, 4, 4, generator=generator)
    field[torch.arange(count), 0, 2 * (y // 2) + 1, 2 * (y % 2) + 1] += 1
    x = F.interpolate(field, size=(SIZE, SIZE), mode="bilinear", align_corners=True)
    return x / 2, y


AUXILIARY = pictures(320, seed=1)
EVALUATION = pictures(100, seed=2)
LEAKY = nn.PixelUnshuffle(4)


def make_oracle(
    encoder: nn.Module,
    *,
    noise_std: float = 0.0,
    server: nn.Module | None = None,
    data: tuple[Tensor, Tensor] = AUXILIARY,
    threat: ThreatModel = THREAT_MODELS["train"],
) -> ModelOracle:
    channel = build_channel([GaussianOptions(noise_std=noise_std)], key=b"")
    return ModelOracle(SplitModel(encoder, channel, server), threat, *data, num_classes=NUM_CLASSES)


def fitted(options: Any, oracle: ModelOracle, seed: int = 0) -> FittedAttack:
    attack = build_attack(options)
    attack.fit(oracle, seed=seed)
    return attack


def errors(options: Any, oracle: ModelOracle) -> Tensor:
    released = oracle.release(EVALUATION[0])
    return mse(fitted(options, oracle).reconstruct(released), EVALUATION[0])


@pytest.fixture(scope="module")
def leaky() -> dict[str, FittedAttack]:
    """Every case fitted once on the leaky identity encoder, without noise."""
    oracle = make_oracle(LEAKY, server=Templates(*AUXILIARY))
    return {name: fitted(options, oracle) for name, options in CASES.items()}


@pytest.fixture(scope="module")
def noisy() -> dict[str, FittedAttack]:
    """Every case fitted once on the leaky identity encoder with noise."""
    oracle = make_oracle(LEAKY, noise_std=0.1, server=Templates(*AUXILIARY))
    return {name: fitted(options, oracle) for name, options in CASES.items()}


def test_no_attack_is_left_out() -> None:
    assert {name.split()[0] for name in CASES} == set(ATTACKS)
    assert all(options.name == name.split()[0] for name, options in CASES.items())
    attacks = {name for name, attack in ATTACKS.items() if attack.kind == "attack"}
    assert set(SUCCEEDS) == attacks
    assert set(BEATS_RIDGE) == attacks - {"ridge"}
    for name, attack in ATTACKS.items():
        assert attack.options_type.model_fields["name"].default == name


# what must and what must not succeed


@pytest.mark.parametrize("name", SUCCEEDS)
def test_attacks_succeed_on_the_leaky_identity(name: str, leaky: dict[str, FittedAttack]) -> None:
    x = EVALUATION[0]
    error = float(mse(leaky[name].reconstruct(LEAKY(x)), x).mean())
    floor = float(mse(leaky["class_mean"].reconstruct(LEAKY(x)), x).mean())
    assert error < (SUCCEEDS[name] if name == "ridge" else SUCCEEDS[name] * floor)


def test_floors_have_their_order_on_the_leaky_identity(leaky: dict[str, FittedAttack]) -> None:
    x = EVALUATION[0]
    grey, mean, label = (
        float(mse(leaky[name].reconstruct(LEAKY(x)), x).mean()) for name in ("grey", "mean_image", "class_mean")
    )
    assert label < mean < grey
    assert grey == pytest.approx(float((x - 0.5).square().mean()), rel=1e-5)
    assert mean == pytest.approx(float((x - AUXILIARY[0].mean(0)).square().mean()), rel=1e-5)


def test_the_nearest_neighbour_of_an_own_image_is_itself(leaky: dict[str, FittedAttack]) -> None:
    x = AUXILIARY[0][:50]
    assert torch.equal(leaky["nearest_neighbour"].reconstruct(LEAKY(x)), x)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("noise_std", [0.0, 0.1])
def test_nobody_beats_the_mean_image_when_z_is_constant(name: str, noise_std: float) -> None:
    oracle = make_oracle(Constant(), noise_std=noise_std)
    blind = float(errors(MeanImageOptions(), oracle).mean())
    assert float(errors(CASES[name], oracle).mean()) > 0.95 * blind


@pytest.mark.parametrize("noise_std", [0.0, 0.1])
def test_ridge_falls_back_to_the_mean_image_when_z_is_constant(noise_std: float) -> None:
    oracle = make_oracle(Constant(), noise_std=noise_std)
    blind = float(errors(MeanImageOptions(), oracle).mean())
    assert float(errors(RidgeOptions(), oracle).mean()) < 1.05 * blind


@pytest.mark.parametrize("name", BEATS_RIDGE)
def test_learned_attacks_beat_ridge_on_the_sign_flipping_encoder(name: str) -> None:
    oracle = make_oracle(SignFlipping())
    linear = float(errors(RidgeOptions(), oracle).mean())
    assert float(errors(BEATS_RIDGE[name], oracle).mean()) < 0.7 * linear


@pytest.mark.parametrize("name", ["nearest_neighbour", "ridge", "decoder ssim"])
def test_shrinking_z_gains_nothing(name: str) -> None:
    plain, small = (fitted(CASES[name], make_oracle(Scaled(factor))) for factor in (1.0, 2.0**-12))
    z = LEAKY(EVALUATION[0])
    assert torch.equal(plain.reconstruct(z), small.reconstruct(z * 2.0**-12))


# what every answer must be


@pytest.mark.parametrize("name", CASES)
def test_answers_are_images(name: str, noisy: dict[str, FittedAttack]) -> None:
    released = LEAKY(EVALUATION[0]) + 3 * torch.randn(100, 16, 3, 3, generator=torch.Generator().manual_seed(0))
    images = noisy[name].reconstruct(released)
    assert images.shape == EVALUATION[0].shape
    assert images.dtype == torch.float32
    assert images.min() >= 0
    assert images.max() <= 1
    assert not images.requires_grad


@pytest.mark.parametrize("name", CASES)
def test_each_image_follows_from_its_own_release_alone(name: str, noisy: dict[str, FittedAttack]) -> None:
    released = LEAKY(EVALUATION[0])[:20]
    together = noisy[name].reconstruct(released)
    alone = torch.cat([noisy[name].reconstruct(part) for part in released.split(1)])
    assert float((together - alone).abs().max()) < 1e-5
    assert torch.equal(noisy[name].reconstruct(released), together)


@pytest.mark.parametrize("name", CASES)
def test_the_same_seed_gives_the_same_answer(name: str, noisy: dict[str, FittedAttack]) -> None:
    oracle = make_oracle(LEAKY, noise_std=0.1, server=Templates(*AUXILIARY))
    released = LEAKY(EVALUATION[0])
    torch.manual_seed(1234)
    again = fitted(CASES[name], oracle).reconstruct(released)
    assert torch.equal(again, noisy[name].reconstruct(released))


@pytest.mark.parametrize("name", ["nearest_neighbour", "ridge", "decoder ssim"])
def test_another_seed_draws_other_noise(name: str, noisy: dict[str, FittedAttack]) -> None:
    released = LEAKY(EVALUATION[0]) + 0.3 * torch.randn(100, 16, 3, 3, generator=torch.Generator().manual_seed(0))
    other = fitted(CASES[name], make_oracle(LEAKY, noise_std=0.1), seed=1)
    assert not torch.equal(other.reconstruct(released), noisy[name].reconstruct(released))


@pytest.mark.parametrize("name", CASES)
def test_fitting_leaves_torchs_own_generator_alone(name: str) -> None:
    options = CASES[name]
    if isinstance(options, DecoderOptions):
        options = options.model_copy(update={"epochs": 0.1, "max_epochs": 0.1})
    before = torch.get_rng_state()
    fitted(options, make_oracle(LEAKY, noise_std=0.1))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", CASES)
def test_every_fit_gives_a_report(name: str, leaky: dict[str, FittedAttack]) -> None:
    report = leaky[name].fit_report
    if ATTACKS[CASES[name].name].kind == "floor":
        assert report.reliable
        assert report.curve == []
        assert report.num_parameters == 0
    else:
        assert report.num_parameters > 1000
    assert report.reliable == (not report.warnings)


# the class mean


def test_class_mean_without_a_server_is_the_mean_image() -> None:
    x, y = pictures(80, seed=3)
    kept = (y == 0) | (torch.arange(80) < 30)
    oracle = make_oracle(LEAKY, data=(x[kept], y[kept]))
    images = fitted(ClassMeanOptions(), oracle).reconstruct(LEAKY(EVALUATION[0]))
    torch.testing.assert_close(images, x[kept].mean(0).expand_as(images))


def test_class_mean_of_a_class_without_images_is_the_mean_image() -> None:
    x, y = AUXILIARY
    kept = y != 2
    oracle = make_oracle(LEAKY, data=(x[kept], y[kept]), server=Templates(x, y))
    images = fitted(ClassMeanOptions(), oracle).reconstruct(LEAKY(x))
    torch.testing.assert_close(images[2], x[kept].mean(0))
    torch.testing.assert_close(images[1], x[y == 1].mean(0))


# ridge


def test_ridge_is_the_closed_form() -> None:
    oracle = make_oracle(LEAKY, noise_std=0.2)
    attack = fitted(RidgeOptions(strengths=(0.1,), num_releases=1), oracle)
    x = AUXILIARY[0]
    released = oracle.release_auxiliary(torch.arange(len(x)), generator=ridge.make_generator(x.device, 0, "ridge"))
    train, _ = divide(len(x), 0.1, ridge.derive_seed(0, "ridge split"), x.device)
    phi = Standardiser(released)(released).flatten(1).double()
    target = x.flatten(1).double()
    centre, bias = phi[train].mean(0), target[train].mean(0)
    a, b = phi[train] - centre, target[train] - bias
    covariance = a.T @ a / len(a)
    strength = 0.1 * torch.linalg.eigvalsh(covariance).mean()
    weights = torch.linalg.solve(covariance + strength * torch.eye(len(covariance)), a.T @ b / len(a))
    expected = ((phi - centre) @ weights + bias).clamp(0, 1).float().view_as(x)
    torch.testing.assert_close(attack.reconstruct(released), expected, rtol=1e-4, atol=1e-5)


def test_ridge_chooses_its_strength_by_the_noise() -> None:
    oracle = make_oracle(LEAKY, noise_std=1.0)
    chosen = float(errors(RidgeOptions(), oracle).mean())
    weak = float(errors(RidgeOptions(strengths=(1e-8,)), oracle).mean())
    assert chosen < 0.9 * weak


def test_ridge_projects_features_that_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ridge, "_LARGEST", 40)
    oracle = make_oracle(LEAKY)
    attack = fitted(RidgeOptions(), oracle)
    assert attack.fit_report.num_parameters == 40 * 144 + 144
    images = attack.reconstruct(LEAKY(EVALUATION[0]))
    assert float(mse(images, EVALUATION[0]).mean()) < 1e-4


# decoders


def overfit_error(options: DecoderOptions) -> float:
    """Error on 64 own images behind a narrow nonlinear encoder, as a part of the mean image's."""
    generator = torch.Generator().manual_seed(7)
    weights = torch.randn(144, 48, generator=generator) / 12

    class Narrow(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(4 * (x.flatten(1) - 0.5) @ weights).view(-1, 12, 2, 2)

    x, y = pictures(64, seed=4)
    x = (x + 0.1 * torch.randn(x.shape, generator=generator)).clamp(0, 1)
    attack = fitted(options, make_oracle(Narrow(), data=(x, y)))
    images = attack.reconstruct(Narrow()(x))
    held = 1 / 64  # the one image that the attacker validates on is not learned
    return float(mse(images, x).mean() / mse(x.mean(0).expand_as(x), x).mean()) - held


def test_a_small_decoder_overfits_64_images() -> None:
    assert overfit_error(learned(epochs=100, max_epochs=100, validation_fraction=0.01)) < 0.1


@pytest.mark.slow
def test_a_published_decoder_overfits_64_images() -> None:
    options = learned(size="published", epochs=150, max_epochs=150, validation_fraction=0.01, lr=1e-3)
    assert overfit_error(options) < 0.1


@pytest.mark.slow
def test_a_strong_decoder_overfits_64_images() -> None:
    options = learned(size="strong", epochs=50, max_epochs=50, validation_fraction=0.01, lr=1e-3)
    assert overfit_error(options) < 0.1


@pytest.mark.parametrize(("loss", "asked"), [("mse", False), ("mse_ssim", True)])
def test_similarity_is_part_of_the_perceptual_loss_alone(
    monkeypatch: pytest.MonkeyPatch, loss: str, asked: bool
) -> None:
    seen: list[Tensor] = []

    def watched(images: Tensor, target: Tensor) -> Tensor:
        value = ssim(images, target)
        if torch.is_grad_enabled():  # validation asks too
            assert value.requires_grad
            seen.append(value.detach())
        return value

    monkeypatch.setattr(decoder, "ssim", watched)
    fitted(learned(loss=loss, epochs=4, max_epochs=4), make_oracle(LEAKY))
    assert bool(seen) == asked
    assert not asked or float(seen[-1].mean()) > float(seen[0].mean()) + 0.1


class FakeTrunk:
    """Gives what it was told, budget by budget: a validation error, or one with another loss."""

    script: Sequence[float | tuple[float, float]] = ()

    def __init__(self, *_: object) -> None:
        self.errors = iter(self.script)
        self.standardise = lambda released: released

    def annealed_at(self, budget: float, tell: Any) -> tuple[nn.Module, float, float]:
        made = nn.Linear(1, 1)
        made.budget = budget  # type: ignore[assignment]
        told = next(self.errors)
        error, loss = told if isinstance(told, tuple) else (told, told)
        return made, error, loss


@pytest.mark.parametrize(
    ("script", "reliable", "gain", "best"),
    [
        ([1.0, 0.5, 0.495], True, 0.01, 64),
        ([1.0, 0.99], True, 0.01, 32),
        ([1.0, 1.1], True, -0.1, 16),
        ([1.0, 0.5, 0.25], False, 0.5, 64),
        ([1.0, 0.97, 0.93], False, 1 - 0.93 / 0.97, 64),
    ],
)
def test_converged_is_when_a_doubled_budget_gains_little(
    monkeypatch: pytest.MonkeyPatch, script: list[float], reliable: bool, gain: float, best: int
) -> None:
    monkeypatch.setattr(FakeTrunk, "script", script)
    monkeypatch.setattr(decoder, "_Trunk", FakeTrunk)
    attack = fitted(learned(epochs=16, max_epochs=64, tolerance=0.02), make_oracle(LEAKY))
    report = attack.fit_report
    assert report.reliable is reliable
    assert report.gain_of_doubling == pytest.approx(gain)
    assert [point.epochs for point in report.curve] == [16, 32, 64][: len(script)]
    assert [point.validation_mse for point in report.curve] == pytest.approx(script)
    assert attack._decoder.budget == best  # type: ignore[attr-defined]
    assert len(report.warnings) == (0 if reliable else 1)
    assert reliable or "not converged after 64 epochs" in report.warnings[0]


@pytest.mark.parametrize(("script", "gain"), [([0.5, math.nan], None), ([1.0, 0.5, math.inf], 0.5)])
def test_a_budget_that_diverges_ends_the_doubling(
    monkeypatch: pytest.MonkeyPatch, script: list[float], gain: float | None
) -> None:
    monkeypatch.setattr(FakeTrunk, "script", script)
    monkeypatch.setattr(decoder, "_Trunk", FakeTrunk)
    attack = fitted(learned(epochs=16, max_epochs=64), make_oracle(LEAKY))
    report, tried = attack.fit_report, 16 * 2 ** (len(script) - 1)
    assert not report.reliable
    assert report.gain_of_doubling == gain
    assert [point.validation_mse for point in report.curve] == script[:-1]
    assert attack._decoder.budget == tried / 2  # type: ignore[attr-defined]
    assert report.warnings == [f"not converged after {tried // 2} epochs: {tried} epochs diverged"]


def test_a_decoder_that_diverges_at_once_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeTrunk, "script", [math.nan])
    monkeypatch.setattr(decoder, "_Trunk", FakeTrunk)
    with pytest.raises(TrainingError, match=r"decoder small diverged within 16 epochs: lower its lr=0\.003"):
        fitted(learned(epochs=16, max_epochs=64), make_oracle(LEAKY))


def test_a_budget_that_was_never_doubled_is_unreliable() -> None:
    report = fitted(learned(epochs=1, max_epochs=1.9), make_oracle(LEAKY)).fit_report
    assert not report.reliable
    assert report.gain_of_doubling is None
    assert report.warnings == ["not converged after 1 epochs: no doubling was tried"]


def test_a_tiny_budget_is_unreliable() -> None:
    report = fitted(learned(epochs=1, max_epochs=4), make_oracle(LEAKY)).fit_report
    assert not report.reliable
    assert [point.epochs for point in report.curve] == [1, 2, 4]
    assert report.gain_of_doubling is not None
    assert report.gain_of_doubling > 0.02
    assert "the last doubling of the budget gained" in report.warnings[0]


def test_progress_is_told() -> None:
    told: list[tuple[str, float, float]] = []
    attack = build_attack(
        learned(epochs=2, max_epochs=4), report=lambda stage, done, total, _: told.append((stage, done, total))
    )
    attack.fit(make_oracle(LEAKY), seed=0)
    assert told
    assert {(stage, total) for stage, _, total in told} == {("decoder small", 4.0)}
    assert max(done for _, done, _ in told) <= 4


# the oracle


def test_a_threat_model_that_does_not_know_the_encoder_is_refused_it() -> None:
    blind = ThreatModel("query_only", knows_encoder=False, knows_channel=True, auxiliary="held_out")
    with pytest.raises(Forbidden, match="query_only does not know the encoder"):
        make_oracle(LEAKY, threat=blind).encoder()
    assert make_oracle(LEAKY).encoder() is LEAKY


def test_releases_by_index_are_releases() -> None:
    oracle = make_oracle(LEAKY)
    index = torch.tensor([5, 0, 5, 319])
    assert torch.equal(oracle.release_auxiliary(index), oracle.release(AUXILIARY[0][index]))


def test_releases_by_index_have_the_same_noise_law() -> None:
    oracle = make_oracle(LEAKY, noise_std=0.2)
    x = AUXILIARY[0]
    by_index = oracle.release_auxiliary(torch.arange(len(x))) - LEAKY(x)
    by_image = oracle.release(x) - LEAKY(x)
    for noise in (by_index, by_image):
        assert float(noise.std()) == pytest.approx(0.2, rel=0.02)
        assert float(noise.mean()) == pytest.approx(0, abs=0.004)
    assert not torch.equal(by_index, by_image)
    again = oracle.release_auxiliary(torch.arange(len(x))) - LEAKY(x)
    assert float((again * by_index).mean()) == pytest.approx(0, abs=0.002)


def test_releases_follow_a_generator() -> None:
    oracle = make_oracle(LEAKY, noise_std=0.2)
    index = torch.arange(4)
    one, two = (oracle.release_auxiliary(index, generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(one, two)


def test_copies_are_told_apart() -> None:
    oracle = make_oracle(LEAKY, noise_std=0.2)
    released = oracle.release(AUXILIARY[0], copies=3)
    assert released.shape == (320, 3, 16, 3, 3)
    assert not torch.equal(released[:, 0], released[:, 1])


def test_the_victim_is_in_evaluation_mode() -> None:
    encoder = nn.Sequential(nn.BatchNorm2d(1), nn.Dropout(0.5), nn.Flatten())
    encoder.train()
    oracle = make_oracle(encoder)
    x = AUXILIARY[0]
    assert torch.equal(oracle.release(x), torch.cat([oracle.release(part) for part in x.split(7)]))
    assert not oracle.release(x).requires_grad
    assert int(encoder[0].num_batches_tracked) == 0


def test_the_server_answers_where_there_is_one() -> None:
    x, y = AUXILIARY
    assert make_oracle(LEAKY).predict(LEAKY(x)) is None
    logits = make_oracle(LEAKY, server=Templates(x, y)).predict(LEAKY(x))
    assert logits is not None
    assert (logits.argmax(1) == y).float().mean() > 0.8


# parts that attacks share


def test_the_attackers_images_are_divided_without_overlap() -> None:
    train, held = divide(50, 0.1, 3, torch.device("cpu"))
    assert (len(train), len(held)) == (45, 5)
    assert sorted([*train.tolist(), *held.tolist()]) == list(range(50))
    assert torch.equal(divide(50, 0.1, 3, torch.device("cpu"))[0], train)
    assert not torch.equal(divide(50, 0.1, 4, torch.device("cpu"))[0], train)
    assert [len(part) for part in divide(2, 0.01, 0, torch.device("cpu"))] == [1, 1]
    assert [len(part) for part in divide(3, 0.99, 0, torch.device("cpu"))] == [1, 2]


def test_standardised_releases_have_mean_0_and_deviation_1_where_they_vary() -> None:
    released = torch.randn(500, 6, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 5, 9, 2, 3, 0])
    released = released + 7
    out = Standardiser(released)(released)
    assert out.mean(0).tolist() == pytest.approx([0] * 6, abs=1e-4)
    assert out.std(0)[:5].tolist() == pytest.approx([1] * 5, rel=1e-4)
    assert float(out[:, 5].abs().max()) < 1e-4
    assert Standardiser(released[:1])(released[:1]).isfinite().all()


class BareOracle:
    """Nothing but what the protocol asks for; the images come in several batches."""

    threat = THREAT_MODELS["train"]

    def auxiliary(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        x, y = AUXILIARY
        return [(x[:100], y[:100]), (x[100:], y[100:])]

    def release(self, x: torch.Tensor, *, copies: int = 1) -> torch.Tensor:
        return LEAKY(x)

    def encoder(self) -> torch.nn.Module:
        return LEAKY


@pytest.mark.parametrize("name", ATTACKS)
def test_a_bare_oracle_and_options_by_name_are_enough(name: str) -> None:
    by_name = {"epochs": 1, "max_epochs": 1} if name == "decoder" else {}
    attack = ATTACKS[name](**by_name)
    oracle = BareOracle()
    attack.fit(oracle, seed=0)
    images = attack.reconstruct(oracle.release(AUXILIARY[0][:7]))
    assert images.shape == AUXILIARY[0][:7].shape
    if name == "ridge":
        assert (images - AUXILIARY[0][:7]).square().mean() < 1e-4


@pytest.mark.parametrize(
    ("script", "best", "gain"), [([(0.1, 0.5), (0.2, 0.3)], 2, 0.4), ([(0.2, 0.3), (0.1, 0.36)], 1, -0.2)]
)
def test_a_decoder_is_judged_by_the_loss_it_was_trained_on(
    monkeypatch: pytest.MonkeyPatch, script: list[tuple[float, float]], best: float, gain: float
) -> None:
    """With a perceptual loss, the validation MSE may say something else."""
    monkeypatch.setattr(decoder, "_Trunk", FakeTrunk)
    monkeypatch.setattr(FakeTrunk, "script", script)
    attack = decoder.DecoderAttack(loss="mse_ssim", epochs=1, max_epochs=2)
    attack.fit(None, seed=0)  # type: ignore[arg-type]
    assert attack._decoder.budget == best
    assert attack.fit_report.gain_of_doubling == pytest.approx(gain)
    assert [point.validation_mse for point in attack.fit_report.curve] == [error for error, _ in script]
