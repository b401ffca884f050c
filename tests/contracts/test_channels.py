"""Every channel against one contract; a new one is tested by adding a line to CASES."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from attncem.channels import CHANNELS, Channel, build_channel
from attncem.config.channels import GaussianOptions, IdentityOptions

KEY, OTHER_KEY = b"a" * 32, b"b" * 32
SHAPES = [(8, 4, 4), (49, 6), (100,)]


@dataclass(frozen=True)
class Case:
    """A channel's options; whether it draws at random, and whether that follows the input."""

    options: Any
    random: bool = False
    keyed: bool = False


CASES = {
    "identity": Case(IdentityOptions()),
    "gaussian": Case(GaussianOptions(noise_std=0.2), random=True),
    "gaussian keyed": Case(GaussianOptions(noise_std=0.2, noise="keyed"), random=True, keyed=True),
    "gaussian without noise": Case(GaussianOptions(noise_std=0.0)),
    "gaussian keyed without noise": Case(GaussianOptions(noise_std=0.0, noise="keyed")),
}
FRESH = [name for name, case in CASES.items() if case.random and not case.keyed]
KEYED = [name for name, case in CASES.items() if case.keyed]
SILENT = [name for name, case in CASES.items() if not case.random]


def make(name: str, *, key: bytes = KEY, training: bool = False) -> Channel:
    channel = build_channel([CASES[name].options], key=key)
    channel.train(training)
    return channel


def features(shape: tuple[int, ...] = (8, 4, 4), count: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    return torch.rand(count, *shape, generator=generator), torch.rand(count, 1, 5, 5, generator=generator)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_no_channel_is_left_out() -> None:
    assert {case.options.name for case in CASES.values()} == set(CHANNELS)
    for name, channel in CHANNELS.items():
        assert channel.options_type.model_fields["name"].default == name


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_shape_and_type_are_kept(name: str, shape: tuple[int, ...], training: bool, dtype: torch.dtype) -> None:
    z, x = features(shape)
    released = make(name, training=training)(z.to(dtype), x=x)
    assert released.shape == z.shape
    assert released.dtype == dtype
    assert released.isfinite().all()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("training", [True, False])
def test_the_feature_itself_is_not_changed(name: str, training: bool) -> None:
    z, x = features()
    before = z.clone()
    make(name, training=training)(z, x=x)
    assert torch.equal(z, before)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("training", [True, False])
def test_the_gradient_reaches_z(name: str, training: bool) -> None:
    z, x = features()
    z.requires_grad_()
    make(name, training=training)(z, x=x).sum().backward()
    assert z.grad is not None
    assert torch.equal(z.grad, torch.ones_like(z))


@pytest.mark.parametrize("name", [*FRESH, *KEYED])
def test_training_noise_is_always_fresh(name: str) -> None:
    z, x = features()
    channel = make(name, training=True)
    assert not torch.equal(channel(z, x=x), channel(z, x=x))
    assert not torch.equal(channel(z), channel(z))
    assert torch.equal(channel(z, generator=seeded(1)), channel(z, generator=seeded(1)))


@pytest.mark.parametrize("name", FRESH)
def test_fresh_noise_differs_at_every_release_and_follows_a_generator(name: str) -> None:
    z, x = features()
    channel = make(name)
    assert not torch.equal(channel(z, x=x), channel(z, x=x))
    assert torch.equal(channel(z, x=x, generator=seeded(1)), channel(z, x=x, generator=seeded(1)))
    assert not torch.equal(channel(z, x=x, generator=seeded(1)), channel(z, x=x, generator=seeded(2)))


@pytest.mark.parametrize("name", FRESH)
def test_equal_inputs_in_a_batch_get_noise_of_their_own(name: str) -> None:
    released = make(name)(torch.zeros(2, 50), x=torch.zeros(2, 1, 5, 5))
    assert not torch.equal(released[0], released[1])


@pytest.mark.parametrize("name", [*FRESH, *KEYED])
@pytest.mark.parametrize("training", [True, False])
def test_noise_has_the_deviation_it_says(name: str, training: bool) -> None:
    channel = make(name, training=training)
    x = torch.rand(100, 1, 5, 5, generator=seeded(3))
    noise = channel(torch.zeros(100, 500), x=x, generator=seeded(4))
    assert float(noise.std()) == pytest.approx(channel.noise_std, rel=0.02)
    assert float(noise.mean()) == pytest.approx(0, abs=0.02 * channel.noise_std)
    assert channel.noise_std == CASES[name].options.noise_std


@pytest.mark.parametrize("name", SILENT)
@pytest.mark.parametrize("training", [True, False])
def test_without_noise_z_is_released_as_it_is(name: str, training: bool) -> None:
    z, _ = features()
    channel = make(name, training=training)
    assert torch.equal(channel(z), z)
    assert channel.noise_std == 0


@pytest.mark.parametrize("name", KEYED)
@pytest.mark.parametrize("shape", SHAPES)
def test_keyed_noise_follows_the_input_alone(name: str, shape: tuple[int, ...]) -> None:
    z, x = features(shape)
    channel = make(name)
    released = channel(z, x=x)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    assert torch.equal(channel(z, x=x), released)
    assert torch.equal(channel(z, x=x, generator=seeded(9)), released)
    assert torch.equal(channel(z[order], x=x[order]), released[order])
    assert torch.equal(torch.cat([channel(z[i : i + 1], x=x[i : i + 1]) for i in range(6)]), released)
    copies = channel(z.repeat_interleave(3, 0), x=x.repeat_interleave(3, 0)).view(6, 3, *shape)
    assert torch.equal(copies, released[:, None].expand_as(copies))


@pytest.mark.parametrize("name", KEYED)
def test_keyed_noise_differs_between_inputs_and_keys(name: str) -> None:
    z, x = torch.zeros(6, 50), features()[1]
    released = make(name)(z, x=x)
    assert len({tuple(row) for row in released.tolist()}) == 6
    assert not torch.equal(make(name, key=OTHER_KEY)(z, x=x), released)


@pytest.mark.parametrize("name", KEYED)
def test_keyed_noise_needs_the_inputs(name: str) -> None:
    with pytest.raises(ValueError, match="needs the inputs x"):
        make(name)(features()[0])


@pytest.mark.parametrize("name", CASES)
def test_no_secret_and_no_weight_lies_in_the_state(name: str) -> None:
    assert make(name).state_dict() == {}
