"""Every channel against one contract; a new one is tested by adding a line to CASES."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from attncem.base.types import ConfigError
from attncem.config.loading.load import load_config
from attncem.config.options.channels import (
    DropoutOptions,
    GaussianOptions,
    IdentityOptions,
    LaplaceOptions,
    LocalDPOptions,
    QuantiseOptions,
    ShapedOptions,
    TopKOptions,
)
from attncem.models.channels import CHANNELS, SYSTEM, Channel, build_channel
from attncem.testing import channels as laws
from attncem.testing.channels import SHAPES, ChannelCase, Counted, features, seeded
from attncem_edge import noise


@dataclass(frozen=True)
class Case:
    """A channel's options; whether it draws at random, whether that follows the input, and whether z stays as it is."""

    options: Any
    random: bool = False
    keyed: bool = False
    silent: bool = False


NOISES: dict[str, Any] = {
    "gaussian": GaussianOptions(noise_std=0.2),
    "laplace": LaplaceOptions(scale=0.2),
    "shaped": ShapedOptions(noise_std=0.2),
    "local_dp": LocalDPOptions(clip=0.5, epsilon=8.0, delta=1e-4),
    "dropout": DropoutOptions(rate=0.3),
    "dropout rescaled": DropoutOptions(rate=0.3, rescale=True),
}
SILENT: dict[str, Any] = {
    "identity": IdentityOptions(),
    "gaussian without noise": GaussianOptions(noise_std=0.0),
    "gaussian keyed without noise": GaussianOptions(noise_std=0.0, noise="keyed"),
    "laplace without noise": LaplaceOptions(noise_std=0.0),
    "shaped without noise": ShapedOptions(noise_std=0.0),
    "dropout of nothing": DropoutOptions(rate=0.0, noise="keyed"),
    "top_k of all": TopKOptions(keep=1.0),
}
CASES = (
    {name: Case(options, silent=True) for name, options in SILENT.items()}
    | {name: Case(options, random=True) for name, options in NOISES.items()}
    | {f"{name} keyed": Case(o.model_copy(update={"noise": "keyed"}), True, True) for name, o in NOISES.items()}
    | {"top_k": Case(TopKOptions(keep=0.3)), "quantise": Case(QuantiseOptions(bits=3, low=0.1, high=0.8))}
)
FRESH = [name for name, case in CASES.items() if case.random and not case.keyed]
KEYED = [name for name, case in CASES.items() if case.keyed]
REPEATABLE = [name for name, case in CASES.items() if case.keyed or not case.random]
NOISY = [name for name in (*FRESH, *KEYED) if CASES[name].options.adds_noise]
DROPPING = [name for name in (*FRESH, *KEYED) if CASES[name].options.name == "dropout"]
BAD = [
    *[("gaussian", "noise_std", -1), ("gaussian", "noise", "sometimes")],
    *[("laplace", "noise_std", -1), ("laplace", "scale", -0.1), ("laplace", "noise", 3)],
    *[("shaped", "noise_std", -1), ("shaped", "tilt", 4), ("shaped", "tilt", "low")],
    *[("local_dp", "clip", 0), ("local_dp", "epsilon", 0), ("local_dp", "delta", 0), ("local_dp", "delta", 1)],
    *[("local_dp", "epsilon", 60), ("local_dp", "epsilon", 1e308), ("local_dp", "epsilon", 1e-9)],
    *[("local_dp", "delta", 1e-40), ("local_dp", "clip", 1e20)],
    *[("dropout", "rate", 1), ("dropout", "rate", -0.1), ("dropout", "rescale", "perhaps")],
    *[("top_k", "keep", 0), ("top_k", "keep", 1.5), ("top_k", "noise", "keyed"), ("identity", "noise_std", 1)],
    *[("quantise", "bits", 0), ("quantise", "bits", 17), ("quantise", "bits", 1.5), ("quantise", "low", 1.0)],
]


def case_of(name: str) -> ChannelCase:
    """A case for the shared laws."""
    case = CASES[name]
    return ChannelCase(CHANNELS[case.options.name], case.options, random=case.random)


def make(name: str, *, training: bool = False) -> Channel:
    return case_of(name).make(training=training)


def test_no_channel_is_left_out() -> None:
    assert {case.options.name for case in CASES.values()} == set(CHANNELS)
    for name, channel in CHANNELS.items():
        assert channel.options_type.model_fields["name"].default == name


@pytest.mark.parametrize("name", CASES)
def test_shape_and_type_are_kept(name: str) -> None:
    laws.shape_and_type_are_kept(case_of(name))


@pytest.mark.parametrize("name", CASES)
def test_the_feature_itself_is_not_changed(name: str) -> None:
    laws.the_feature_itself_is_not_changed(case_of(name))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.options.name != "local_dp"])
@pytest.mark.parametrize("training", [True, False])
def test_the_gradient_is_that_of_what_passes(name: str, training: bool) -> None:
    z, x = features()
    z += 0.01
    released, found = laws.gradient(case_of(name), z, x, training=training)
    torch.testing.assert_close(found, expected_gradient(CASES[name].options, z, released))


def expected_gradient(options: Any, z: Tensor, released: Tensor) -> Tensor:
    if options.name == "quantise":
        return ((z >= options.low) & (z <= options.high)).float()
    if options.name == "dropout" and options.rescale:
        return (released != 0) / (1 - options.rate)
    return (released != 0).float() if options.name in ("dropout", "top_k") else torch.ones_like(z)


@pytest.mark.parametrize("name", [*FRESH, *KEYED])
def test_training_noise_is_always_fresh(name: str) -> None:
    laws.training_noise_is_always_fresh(case_of(name))


@pytest.mark.parametrize("name", FRESH)
def test_fresh_noise_differs_at_every_release_and_follows_a_generator(name: str) -> None:
    laws.fresh_noise_differs_at_every_release_and_follows_a_generator(case_of(name))


@pytest.mark.parametrize("name", [*FRESH, *KEYED])
def test_what_leaves_a_device_has_a_secret_for_each_sample_and_release(name: str) -> None:
    """Fresh noise, and keyed noise that has no key yet: each from secrets of its own, in any batch."""
    laws.what_leaves_a_device_has_a_secret_for_each_sample_and_release(case_of(name))


@pytest.mark.parametrize("name", [*FRESH, *KEYED])
def test_what_leaves_a_device_never_asks_torch_for_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no seed of torch, of which all 2^32 can be tried, can repeat it."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("torch was asked for random numbers")

    secrets, draw, before = [], noise.draw, torch.get_rng_state()
    monkeypatch.setattr(noise, "draw", lambda secret, *rest: (secrets.append(secret), draw(secret, *rest))[1])
    for called in ("Generator", "manual_seed", "seed", "rand", "randn", "normal"):
        monkeypatch.setattr(torch, called, refuse)
    for called in ("normal_", "uniform_", "exponential_"):
        monkeypatch.setattr(Tensor, called, refuse)
    make(name)(torch.ones(3, 7), x=torch.arange(75).view(3, 1, 5, 5) / 75, generator=SYSTEM)
    assert torch.equal(torch.get_rng_state(), before)
    assert {len(secret) for secret in secrets} == {32}
    assert len(set(secrets)) == len(secrets) == 3


def release_many(name: str, z: Tensor, training: bool, secret: bool) -> Tensor:
    x = torch.rand(len(z), 1, 5, 5, generator=seeded(3))
    released: Tensor = make(name, training=training)(z, x=x, generator=Counted() if secret else seeded(4))
    return released


@pytest.mark.parametrize("name", NOISY)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("secret", [True, False])
def test_noise_has_the_size_of_its_law(name: str, training: bool, secret: bool) -> None:
    drawn = release_many(name, torch.zeros(100, 500), training, secret)
    noise_std = make(name).noise_std
    size = {"laplace": noise_std / 2**0.5}.get(CASES[name].options.name, noise_std * (2 / torch.pi) ** 0.5)
    assert float(drawn.abs().mean()) == pytest.approx(size, rel=0.02)


@pytest.mark.parametrize("name", CASES)
def test_noise_has_the_deviation_it_says(name: str) -> None:
    laws.noise_has_the_deviation_it_says(case_of(name))
    assert name not in NOISY or make(name).noise_std > 0


@pytest.mark.parametrize("name", DROPPING)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("secret", [True, False])
def test_dropout_zeroes_the_share_it_says(name: str, training: bool, dtype: torch.dtype, secret: bool) -> None:
    released = release_many(name, torch.ones(100, 500, dtype=dtype), training, secret)
    options = CASES[name].options
    assert float((released == 0).float().mean()) == pytest.approx(options.rate, abs=0.01)
    kept = float(released[released != 0].float().unique())
    assert kept == pytest.approx(1 / (1 - options.rate) if options.rescale else 1, rel=0.01)
    assert make(name).noise_std == 0


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("constant", [True, False])
def test_top_k_keeps_the_largest_share_of_each_sample(shape: tuple[int, ...], constant: bool) -> None:
    z = torch.ones(6, *shape) if constant else features(shape)[0] + 0.01
    z = z * torch.tensor([1.0, 2, 3, 100, 200, 300]).view(-1, *[1] * len(shape))
    released = make("top_k")(z)
    kept = released.flatten(1) != 0
    assert kept.sum(1).tolist() == [round(0.3 * z[0].numel())] * 6
    assert torch.equal(released[released != 0], z[released != 0])
    lowest_kept = released.flatten(1).masked_fill(~kept, 1e9).amin(1)
    assert (z.flatten(1).masked_fill(kept, 0).amax(1) <= lowest_kept).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("bits", [1, 2, 5])
def test_quantise_has_so_many_levels_and_takes_the_nearest(dtype: torch.dtype, bits: int) -> None:
    z = torch.linspace(-1, 2, 3000, dtype=dtype).view(3, -1)
    channel = build_channel([QuantiseOptions(bits=bits, low=-0.25, high=1.5)])
    released = channel(z)
    assert channel.bits_per_feature == bits
    assert len(released.unique()) == 2**bits
    assert (float(released.min()), float(released.max())) == (-0.25, 1.5)
    rounding = 0.51 * 1.75 / (2**bits - 1) + (0.01 if dtype == torch.bfloat16 else 0)
    assert float((released - z.clamp(-0.25, 1.5)).abs().max()) <= rounding
    assert torch.equal(channel(released), released)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("secret", [True, False])
def test_local_dp_bounds_the_norm_before_its_noise(shape: tuple[int, ...], training: bool, secret: bool) -> None:
    z = features(shape)[0] * torch.tensor([0.0, 1e-3, 1e-2, 1, 1e3, 1e6]).view(-1, *[1] * len(shape))
    x = features()[1]
    channel = make("local_dp", training=training)
    drawn = channel(torch.zeros_like(z), x=x, generator=Counted() if secret else seeded(1))
    clipped = channel(z, x=x, generator=Counted() if secret else seeded(1)) - drawn
    norms = clipped.flatten(1).norm(dim=1)
    rounding = channel.options.grid * z[0].numel() ** 0.5 if secret else 1e-5
    assert (norms <= 0.5 + rounding).all()
    torch.testing.assert_close(norms, z.flatten(1).norm(dim=1).clamp_max(0.5), rtol=1e-4, atol=rounding)


@pytest.mark.parametrize("name", SILENT)
@pytest.mark.parametrize("training", [True, False])
def test_without_noise_z_is_released_as_it_is(name: str, training: bool) -> None:
    z, _ = features()
    channel = make(name, training=training)
    assert torch.equal(channel(z), z)
    assert channel.noise_std == 0


@pytest.mark.parametrize("name", REPEATABLE)
def test_a_release_depends_on_its_own_sample_alone(name: str) -> None:
    laws.a_release_depends_on_its_own_sample_alone(case_of(name))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.random])
def test_what_draws_nothing_is_the_same_in_training(name: str) -> None:
    laws.what_draws_nothing_is_the_same_in_training(case_of(name))


@pytest.mark.parametrize("name", KEYED)
def test_keyed_noise_follows_the_input_alone(name: str) -> None:
    laws.keyed_noise_follows_the_input_alone(case_of(name))


@pytest.mark.parametrize("name", KEYED)
def test_without_a_key_keyed_noise_is_drawn_as_fresh_noise_is(name: str) -> None:
    z, x = features()
    fresh = CASES[name].options.model_copy(update={"noise": "fresh"})
    channel, other = (build_channel([options]).eval() for options in (CASES[name].options, fresh))
    assert channel.reads_input
    assert torch.equal(channel(z, generator=seeded(1)), other(z, x=x, generator=seeded(1)))


@pytest.mark.parametrize("name", KEYED)
def test_a_copy_of_a_channel_has_its_key(name: str) -> None:
    z, x = features()
    channel = make(name)
    assert torch.equal(deepcopy(channel)(z, x=x), channel(z, x=x))


@pytest.mark.parametrize("name", KEYED)
def test_keyed_noise_needs_the_inputs(name: str) -> None:
    laws.keyed_noise_needs_the_inputs(case_of(name))


@pytest.mark.parametrize("name", CASES)
def test_no_secret_and_no_weight_lies_in_the_state(name: str) -> None:
    laws.no_secret_and_no_weight_lies_in_the_state(case_of(name))


@pytest.mark.parametrize(("name", "option", "value"), BAD)
def test_bad_options_are_refused_by_name(name: str, option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"channel\.0.*{option}"):
        load_config({"channel": [{"name": name, option: value}]})
