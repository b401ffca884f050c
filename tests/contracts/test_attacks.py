"""Every attack against one contract; a new one is tested by a line in CASES, and in ABILITIES if it sees releases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attncem.config.options.attacks import (
    ClassMeanOptions,
    DecoderOptions,
    FamilyOptions,
    FlowOptions,
    FlowPriorOptions,
    GanOptions,
    GreyOptions,
    ImagePriorOptions,
    InformedOptions,
    MeanImageOptions,
    NearestNeighbourOptions,
    NoiseGuessOptions,
    OptimisationOptions,
    PublishedOptions,
    RewhiteningOptions,
    RidgeOptions,
    SubstituteOptions,
)
from attncem.config.threats import THREATS
from attncem.judging.attacks import ATTACKS, build_attack, decoder, ridge
from attncem.judging.attacks.base import Attack, Standardiser, divide
from attncem.judging.auditing import Case, measure
from attncem.judging.opening import open_encoder
from attncem.judging.oracle import Oracle
from attncem.records.metrics import mse, ssim
from attncem.testing import attacks as laws
from attncem.testing.attack_world import AUXILIARY, EVALUATION, LEAKY, Constant, Templates, make_oracle, pictures
from attncem.testing.attacks import AttackCase

SHRINKING = 2.0**-12


def learned(**options: Any) -> DecoderOptions:
    """A decoder whose settings do not move with the defaults."""
    return DecoderOptions.model_validate({"lr": 3e-3, "batch_size": 16, "tolerance": 0.02, **options})


def optimised(**options: Any) -> OptimisationOptions:
    """A short white-box descent whose settings do not move with the defaults."""
    few = {"steps": 20, "max_steps": 40, "restarts": 2, "tuning_images": 8, "smoothness": (0, 1), "pulls": (0, 1)}
    return OptimisationOptions.model_validate({"lr": 0.03, "tolerance": 0.02, **few, **options})


def flowing(**options: Any) -> FlowOptions:
    """A small flow whose settings do not move with the defaults."""
    few = {"width": 8, "blocks": 1, "samples": 2, "steps": 2, "batch_size": 16, "least_steps": 1}
    return FlowOptions.model_validate({"lr": 3e-3, "tolerance": 0.02, **few, **options})


def prior_of(**options: Any) -> FlowPriorOptions:
    """A small prior whose settings do not move with the defaults."""
    few = {"width": 8, "epochs": 2, "max_epochs": 4, "batch_size": 16, "samples": 4, "times": 3, "tuning_images": 8}
    return FlowPriorOptions.model_validate({"lr": 3e-3, "tolerance": 0.02, "pulls": (1.0,), **few, **options})


def related(**options: Any) -> FamilyOptions:
    """A small family whose settings do not move with the defaults."""
    few = {"widths": (8, 16), "fractions": (0.5, 1), "batch_size": 16, "least_steps": 1}
    return FamilyOptions.model_validate({"lr": 3e-3, "tolerance": 0.02, **few, **options})


def informed(**options: Any) -> InformedOptions:
    """An informed decoder whose settings do not move with the defaults."""
    few = {"batch_size": 16, "least_steps": 1, "picture": 0.01, "mirror": True}
    return InformedOptions.model_validate({"lr": 1.5e-3, "tolerance": 0.02, **few, **options})


CASES: dict[str, Any] = {
    "grey": GreyOptions(),
    "mean_image": MeanImageOptions(),
    "class_mean": ClassMeanOptions(),
    "nearest_neighbour": NearestNeighbourOptions(),
    "ridge": RidgeOptions(),
    "decoder": learned(epochs=3, max_epochs=6),
    "decoder published": learned(epochs=1, max_epochs=2, size="published"),
    "decoder global": learned(
        epochs=0.5, max_epochs=1, size="global", least_steps=36, mirror=True, precision="bf16-mixed"
    ),
    "decoder ssim": learned(epochs=1, max_epochs=2, loss="mse_ssim"),
    "published": PublishedOptions(epochs=5, batch_size=16, lr=3e-3),
    "gan": GanOptions(decoder_epochs=1, epochs=2, batch_size=16, critic_steps=1, lr=1e-2),
    "family": related(epochs=5, max_epochs=5),
    "informed": informed(epochs=5, max_epochs=5),
    "flow": flowing(epochs=5, max_epochs=5),
    "flow_prior latent": prior_of(by="latent", samples=2, times=2, steps=5, max_steps=10),
    "flow_prior": prior_of(),
    "optimisation random": optimised(start="random"),
    "optimisation": optimised(),
    "rewhitening decoder": RewhiteningOptions(then="decoder", decoder_epochs=1, powers=(1.0,)),
    "rewhitening": RewhiteningOptions(),
    "noise_guess": NoiseGuessOptions(seeds=100),
    "substitute": SubstituteOptions(steps=60, batch_size=16, width=8, lr=3e-3),
    "image_prior": ImagePriorOptions(steps=30, max_steps=30, width=8),
}
"""A line per attack; further lines, told apart by a second word, for its other forms, the cheapest last."""


class Ability(NamedTuple):
    """What an attack must be able to do: what its kind can, and no more."""

    leaky: float
    """Largest error on the leaky identity encoder, as a part of the class-mean floor's."""
    learns: bool = False
    """Whether it learns weights; then they are more than 1000."""
    beats_ridge: Mapping[str, Any] = {}
    """Encoders (in HARD) on which it must beat ridge, each with the options for it."""
    any_scale: bool = True
    """Whether it sees through a z that was only made small; what reads releases as they are does not."""


ABILITIES = {
    "nearest_neighbour": Ability(leaky=1.0),
    "ridge": Ability(leaky=0.002, learns=True),
    "decoder": Ability(leaky=0.4, learns=True, beats_ridge={"signs": learned(epochs=8, max_epochs=8)}),
    "published": Ability(leaky=0.4, learns=True, any_scale=False),
    "gan": Ability(leaky=0.8, learns=True, any_scale=False),
    "family": Ability(leaky=0.4, learns=True, beats_ridge={"signs": related(epochs=10, max_epochs=10, widths=(16,))}),
    "informed": Ability(leaky=0.4, learns=True, beats_ridge={"signs": informed(epochs=5, max_epochs=5)}),
    "flow": Ability(leaky=0.4, learns=True, beats_ridge={"signs": flowing(epochs=5, max_epochs=5)}),
    "flow_prior": Ability(leaky=0.1, beats_ridge={"smooth": prior_of(samples=8, times=5, corrections=(1, 2))}),
    "optimisation": Ability(leaky=0.002, beats_ridge={"smooth": optimised(steps=100, max_steps=100)}),
    "rewhitening": Ability(leaky=0.002, learns=True),
    "noise_guess": Ability(leaky=0.002, learns=True),
    "substitute": Ability(leaky=1.0, learns=True),
    "image_prior": Ability(leaky=0.7, beats_ridge={"smooth": ImagePriorOptions(steps=150, max_steps=150, width=16)}),
}
"""A line per attack that sees releases. One that learns from queries beats ridge on `signs`, which has no gradient to
follow; one that follows the gradient does on `smooth`."""


class Scaled(nn.Module):
    """z times a factor."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, z: Tensor) -> Tensor:
        return self.factor * z


class SignFlipping(nn.Module):
    """(s · (x - ½), s) with a sign s that no linear map can undo: it follows the corner pixel's last digits."""

    def forward(self, x: Tensor) -> Tensor:
        sign = torch.sign(torch.sin(200 * x[:, :, :1, :1]))
        z = F.pixel_unshuffle(sign * (x - 0.5), 4)
        return torch.cat([z, sign.expand(-1, 1, 3, 3)], 1)


class Smooth(nn.Module):
    """(g · (x - ½), g) with a contrast g that follows the corner pixel: no linear map undoes it, a gradient does."""

    def forward(self, x: Tensor) -> Tensor:
        contrast = torch.exp(6 * (x[:, :, :1, :1] - 0.25))
        z = F.pixel_unshuffle(contrast * (x - 0.5), 4)
        return torch.cat([z, contrast.expand(-1, 1, 3, 3)], 1)


HARD = {"signs": SignFlipping(), "smooth": Smooth()}
"""Encoders that ridge cannot invert."""


SHORT: dict[str, dict[str, Any]] = {
    "decoder published": {"epochs": 0.5, "max_epochs": 1},
    "published": {"epochs": 1},
    "gan": {"epochs": 1},
    **{key: {"epochs": 1, "max_epochs": 1} for key in ("family", "informed", "flow")},
    "rewhitening decoder": {"decoder_epochs": 0.5},
    "substitute": {"steps": 10},
}
"""Less learning for the longest cases, for laws that hold however little was learned."""
ENOUGH_FOR_MANY: dict[str, dict[str, Any]] = {
    "published": {"epochs": 3},
    **{key: {"epochs": 2, "max_epochs": 2} for key in ("family", "informed", "flow")},
}
"""As much learning as it takes to see what more releases tell."""


SEEING = list({options.name: case for case, options in CASES.items() if options.name in ABILITIES}.values())
"""One case of each attack that sees releases, the cheapest."""


def case_of(name: str) -> AttackCase:
    """A case for the shared laws."""
    return AttackCase(ATTACKS[CASES[name].name], CASES[name])


def shortened(name: str, less: Mapping[str, dict[str, Any]] = SHORT) -> AttackCase:
    """The case with less learning."""
    options = CASES[name]
    return AttackCase(ATTACKS[options.name], options.model_copy(update=less.get(name, {})))


def briefly(options: Any) -> Any:
    """The same with a training that is as good as none."""
    return AttackCase(ATTACKS[options.name], options).briefly.options


def fitted(options: Any, oracle: Oracle, seed: int = 0) -> Attack:
    return AttackCase(ATTACKS[options.name], options).fitted(oracle, seed)


def errors(options: Any, oracle: Oracle) -> Tensor:
    return AttackCase(ATTACKS[options.name], options).errors(oracle)


class Fits(dict[str, Attack]):
    """Fitted attacks by case, each made when it is first asked for."""

    def __init__(self, fit: Callable[[str], Attack]) -> None:
        super().__init__()
        self._fit = fit

    def __missing__(self, name: str) -> Attack:
        self[name] = self._fit(name)
        return self[name]


class FittedCases(dict[str, AttackCase]):
    """Every case, fitted at most once on each of the usual oracles, when it is first asked for."""

    def __init__(self, make: Callable[[str], AttackCase]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, name: str) -> AttackCase:
        self[name] = self._make(name)
        return self[name]


@pytest.fixture(scope="module")
def cases() -> FittedCases:
    return FittedCases(case_of)


@pytest.fixture(scope="module")
def short() -> FittedCases:
    """Every case with few epochs, for laws that hold however little was learned."""
    return FittedCases(shortened)


@pytest.fixture(scope="module")
def leaky(cases: FittedCases) -> Fits:
    """Every case fitted at most once on the leaky identity encoder, without noise."""
    return Fits(lambda name: cases[name].leaky)


def small_oracle() -> Oracle:
    """The leaky identity encoder made small, without noise."""
    server = nn.Sequential(Scaled(1 / SHRINKING), Templates(*AUXILIARY))
    return make_oracle(nn.Sequential(LEAKY, Scaled(SHRINKING)), server=server)


def test_no_attack_is_left_out() -> None:
    assert {name.split()[0] for name in CASES} == set(ATTACKS)
    assert all(options.name == name.split()[0] for name, options in CASES.items())
    assert set(ABILITIES) == {name for name, attack in ATTACKS.items() if attack.sees == "release"}
    for name, attack in ATTACKS.items():
        assert attack.options_type.model_fields["name"].default == name
        laws.declares_what_it_is(case_of(name))


@pytest.mark.parametrize("name", ABILITIES)
def test_what_is_asked_of_an_attack_is_what_its_kind_can(name: str) -> None:
    attack, asked = ATTACKS[name], set(ABILITIES[name].beats_ridge)
    if "gradient" in attack.needs:
        assert "smooth" in asked
    else:
        assert asked == ({"signs"} if "ridge" in attack.must_beat else set())


# what must and what must not succeed


@pytest.mark.parametrize("name", ABILITIES)
def test_attacks_succeed_on_the_leaky_identity(name: str, leaky: dict[str, Attack]) -> None:
    x = EVALUATION[0]
    error = float(mse(leaky[name].reconstruct(LEAKY(x)), x).mean())
    floor = float(mse(leaky["class_mean"].reconstruct(LEAKY(x)), x).mean())
    assert error < ABILITIES[name].leaky * floor


def test_floors_have_their_order_on_the_leaky_identity(leaky: dict[str, Attack]) -> None:
    x = EVALUATION[0]
    grey, mean, label = (
        float(mse(leaky[name].reconstruct(LEAKY(x)), x).mean()) for name in ("grey", "mean_image", "class_mean")
    )
    assert label < mean < grey
    assert grey == pytest.approx(float((x - 0.5).square().mean()), rel=1e-5)
    assert mean == pytest.approx(float((x - AUXILIARY[0].mean(0)).square().mean()), rel=1e-5)


def test_the_nearest_neighbour_of_an_own_image_is_itself(leaky: dict[str, Attack]) -> None:
    x = AUXILIARY[0][:50]
    assert torch.equal(leaky["nearest_neighbour"].reconstruct(LEAKY(x)), x)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("noise_std", [0.0, 0.1])
def test_nobody_beats_the_mean_image_when_z_is_constant(name: str, noise_std: float) -> None:
    """Without noise after few epochs: what an attack sees beside the release, it sees with noise too."""
    laws.gains_nothing_from_a_constant(case_of(name) if noise_std else shortened(name), noise_std)


@pytest.mark.parametrize("noise_std", [0.0, 0.1])
def test_ridge_falls_back_to_the_mean_image_when_z_is_constant(noise_std: float) -> None:
    oracle = make_oracle(Constant(), noise_std=noise_std)
    blind = float(errors(MeanImageOptions(), oracle).mean())
    assert float(errors(RidgeOptions(), oracle).mean()) < 1.05 * blind


@pytest.mark.parametrize(
    ("name", "encoder"), [(name, encoder) for name, able in ABILITIES.items() for encoder in able.beats_ridge]
)
def test_attacks_beat_ridge_where_their_kind_can(name: str, encoder: str) -> None:
    oracle = make_oracle(HARD[encoder])
    linear = float(errors(RidgeOptions(), oracle).mean())
    assert float(errors(ABILITIES[name].beats_ridge[encoder], oracle).mean()) < 0.7 * linear


@pytest.mark.parametrize("name", SEEING)
def test_shrinking_z_gains_nothing(name: str, short: FittedCases) -> None:
    """An attack that reads releases as they are makes something else of them, for better or worse."""
    z, shrunk = LEAKY(EVALUATION[0]), short[name].fitted(small_oracle())
    same = torch.equal(short[name].leaky.reconstruct(z), shrunk.reconstruct(z * SHRINKING))
    assert same == ABILITIES[CASES[name].name].any_scale


def test_shrinking_z_fools_the_attack_as_published(leaky: dict[str, Attack]) -> None:
    """The reason why one that standardises must stand beside it."""
    x = EVALUATION[0]
    plain = float(mse(leaky["published"].reconstruct(LEAKY(x)), x).mean())
    shrunk = case_of("published").fitted(small_oracle())
    small = float(mse(shrunk.reconstruct(LEAKY(x) * SHRINKING), x).mean())
    assert small > 2 * plain


# what the threat model grants


@pytest.mark.parametrize("name", ABILITIES)
def test_more_releases_of_an_input_tell_more(name: str) -> None:
    """Through noise of σ = 0.5; the attack learns from as many releases of its own images as it sees of others'."""
    laws.more_releases_of_an_input_tell_more(shortened(name, ENOUGH_FOR_MANY))


@pytest.mark.parametrize("name", SEEING)
def test_one_release_is_taken_as_it_is(name: str, short: FittedCases) -> None:
    """That it also learns from one as it is, the test of equal seeds shows."""
    laws.one_release_is_taken_as_it_is(short[name])


@pytest.mark.parametrize("name", CASES)
def test_what_it_needs_is_enough(name: str) -> None:
    laws.what_it_needs_is_enough(case_of(name))


@pytest.mark.parametrize("name", ATTACKS)
def test_without_what_it_needs_it_is_not_applicable(name: str) -> None:
    laws.without_what_it_needs_it_is_not_applicable(case_of(name))


@pytest.fixture(scope="module")
def no_access() -> Case:
    """An adversary who can neither query nor compute anything, on the embedded images."""
    data = {"name": "fashion_mnist_mini", "held_out_fraction": 0.8}
    channel = [{"name": "gaussian", "noise_std": 0.1}]
    return Case(open_encoder(LEAKY, data=data, channel=channel), THREATS["no_access"])


@pytest.mark.parametrize("name", ATTACKS)
def test_without_access_only_what_needs_no_queries_is_run(
    name: str, no_access: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits: list[str] = []
    plain_fit = ATTACKS[name].fit

    def watched(self: Attack, oracle: Oracle, *, seed: int) -> None:
        fits.append(name)
        plain_fit(self, oracle, seed=seed)

    monkeypatch.setattr(ATTACKS[name], "fit", watched)
    row = measure(no_access, name, CASES[name], seed=0).row
    if ATTACKS[name].needs & {"queries", "encoder", "gradient"}:
        assert (row.outcome, fits, row.scores) == ("not_applicable", [], {})
        assert "no_access" in row.reason
    else:
        assert (row.outcome, fits) == ("ok", [name])


# what every answer must be


@pytest.mark.parametrize("name", CASES)
def test_answers_are_images(name: str, short: FittedCases) -> None:
    laws.answers_are_images(short[name])


@pytest.mark.parametrize("name", CASES)
def test_each_image_follows_from_its_own_release_alone(name: str, short: FittedCases) -> None:
    laws.each_image_follows_from_its_own_release_alone(short[name])


@pytest.mark.parametrize("name", CASES)
def test_the_same_seed_gives_the_same_answer(name: str, short: FittedCases) -> None:
    """Also where the only release of an image is taken as it is."""
    laws.the_same_seed_gives_the_same_answer(short[name])


@pytest.mark.parametrize("name", SEEING)
def test_another_seed_draws_other_noise(name: str) -> None:
    released = LEAKY(EVALUATION[0]) + 0.3 * torch.randn(100, 16, 3, 3, generator=torch.Generator().manual_seed(0))
    oracle, options = make_oracle(LEAKY, noise_std=0.1), briefly(CASES[name])
    first, other = (fitted(options, oracle, seed=seed).reconstruct(released) for seed in (0, 1))
    assert not torch.equal(first, other)


@pytest.mark.parametrize("name", CASES)
def test_neither_fitting_nor_recovering_touches_torchs_own_generator(name: str) -> None:
    laws.torchs_own_generator_is_not_touched(case_of(name))


@pytest.mark.parametrize("name", CASES)
def test_every_fit_gives_a_verdict(name: str, cases: FittedCases) -> None:
    attack = cases[name].leaky
    verdict = attack.verdict
    if attack.sees == "release":
        assert verdict.num_parameters > 1000 or not ABILITIES[attack.options.name].learns
    else:
        assert verdict.reliable
        assert verdict.curve == []
        assert verdict.num_parameters == 0
    laws.every_fit_gives_a_verdict(cases[name])


@pytest.mark.parametrize("name", CASES)
def test_what_was_learned_can_be_written_down(name: str, short: FittedCases) -> None:
    """Bit for bit; an attack without a state says so when one is given to it."""
    laws.what_was_learned_can_be_written_down(short[name])


@pytest.mark.parametrize("name", ATTACKS)
def test_options_by_name_are_enough(name: str) -> None:
    laws.options_by_name_are_enough(case_of(name))


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
    phi = Standardiser.of(released)(released).flatten(1).double()
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
    assert attack.verdict.num_parameters == 40 * 144 + 144
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


@pytest.mark.slow
def test_a_global_decoder_overfits_64_images() -> None:
    options = learned(size="global", epochs=100, max_epochs=100, validation_fraction=0.01, lr=1.5e-3)
    assert overfit_error(options) < 0.1


@pytest.mark.parametrize("at_once", [1, 4])
def test_mirrored_images_come_with_their_own_releases(at_once: int) -> None:
    """Half of what is learned from, none of what chooses; an image and its release are always of one kind."""
    material = decoder.Material(make_oracle(LEAKY), learned(mirror=True, batch_size=32), seed=0)
    material.at_once = at_once  # as on a GPU
    own = {image.numpy().tobytes() for image in AUXILIARY[0]}
    mirrored = []
    for _ in range(30):
        released, x = material.batch()
        torch.testing.assert_close(released, material.standardise(LEAKY(x)))
        mirrored += [image.numpy().tobytes() not in own for image in x]
        back = [image.flip(-1).numpy().tobytes() for image in x]
        assert all(other in own for other, new in zip(back, mirrored[-32:], strict=True) if new)
    assert 0.42 < sum(mirrored) / len(mirrored) < 0.58
    assert {image.numpy().tobytes() for image in material.held_x} <= own


@pytest.mark.parametrize(
    ("count", "batch_size", "least_steps", "steps", "size"),
    [(320, 16, 1, 18, 16), (320, 256, 1, 1, 256), (320, 256, 36, 36, 8), (320, 16, 5, 18, 16), (20, 256, 150, 9, 2)],
)
def test_few_images_come_in_small_batches_where_an_epoch_must_have_steps(
    count: int, batch_size: int, least_steps: int, steps: int, size: int
) -> None:
    x, y = pictures(count, seed=1)
    options = learned(batch_size=batch_size, least_steps=least_steps)
    material = decoder.Material(make_oracle(LEAKY, data=(x, y)), options, seed=0)
    assert decoder.DecoderTraining(material).steps_per_epoch == steps
    assert [len(part) for part in material.batch()] == [size, size]


@pytest.mark.parametrize("at_once", [1, 3, 16])
def test_every_image_comes_once_an_epoch_in_batches_of_one_size(at_once: int) -> None:
    """Also where several batches are released together, as on a GPU, beyond the end of an epoch."""
    material = decoder.Material(make_oracle(LEAKY), learned(batch_size=48), seed=0)
    assert material.at_once == 1, "on a CPU nothing is gained"
    material.at_once, own = at_once, {image.numpy().tobytes() for image in material.x[material.train]}
    for _ in range(3):
        epoch = [material.batch()[1] for _ in range(6)]
        assert [len(x) for x in epoch] == [48] * 6
        assert {image.numpy().tobytes() for x in epoch for image in x} == own and len(own) == 288


def test_on_a_cpu_decoders_learn_in_float32() -> None:
    plain, mixed = (
        fitted(learned(epochs=0.5, max_epochs=0.5, precision=precision), make_oracle(LEAKY)).state()
        for precision in ("32-true", "bf16-mixed")
    )
    assert plain is not None
    assert mixed is not None
    assert all(torch.equal(plain[name], mixed[name]) for name in plain)


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


def test_a_decoder_has_the_verdict_of_its_budgets() -> None:
    attack = fitted(learned(epochs=1, max_epochs=4), make_oracle(LEAKY))
    verdict = attack.verdict
    assert not verdict.reliable
    assert [point.epochs for point in verdict.curve] == [1, 2, 4]
    assert verdict.gain_of_doubling is not None
    assert verdict.gain_of_doubling > 0.02
    assert [item.code for item in attack.findings] == ["not_converged"]
    assert "the last doubling of the budget gained" in attack.findings[0].text


def test_progress_is_told() -> None:
    told: list[tuple[str, float, float]] = []
    attack = build_attack(
        learned(epochs=2, max_epochs=4), progress=lambda stage, done, total, _: told.append((stage, done, total))
    )
    attack.fit(make_oracle(LEAKY), seed=0)
    assert told
    assert {stage.partition(": ")[0] for stage, _, _ in told} == {"decoder small"}
    assert {total for _, _, total in told} <= {2.0, 4.0}
    assert max(done for _, done, _ in told) <= 4


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
    out = Standardiser.of(released)(released)
    assert out.mean(0).tolist() == pytest.approx([0] * 6, abs=1e-4)
    assert out.std(0)[:5].tolist() == pytest.approx([1] * 5, rel=1e-4)
    assert float(out[:, 5].abs().max()) < 1e-4
    assert Standardiser.of(released[:1])(released[:1]).isfinite().all()
