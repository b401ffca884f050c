from __future__ import annotations

import hmac
import math

import pytest
import torch
from torch import Tensor

from attncem.channels import Channel, ChannelChain, GaussianChannel, IdentityChannel, build_channel, keyed_normal
from attncem.config.channels import GaussianOptions, IdentityOptions

KEY = b"k" * 32


class Doubling(Channel):
    def forward(self, z: Tensor, *, x: Tensor | None = None, generator: torch.Generator | None = None) -> Tensor:
        return 2 * z


class AddingOne(Channel):
    def forward(self, z: Tensor, *, x: Tensor | None = None, generator: torch.Generator | None = None) -> Tensor:
        return z + 1


def images(count: int = 4) -> Tensor:
    return torch.rand(count, 1, 6, 6, generator=torch.Generator().manual_seed(5))


def test_one_stage_is_built_alone_and_several_as_a_chain() -> None:
    assert isinstance(build_channel([IdentityOptions()], key=KEY), IdentityChannel)
    chain = build_channel([GaussianOptions(noise_std=0.3), IdentityOptions(), GaussianOptions(noise_std=0.4)], key=KEY)
    assert isinstance(chain, ChannelChain)
    assert [type(stage) for stage in chain.stages] == [GaussianChannel, IdentityChannel, GaussianChannel]
    assert chain.noise_std == pytest.approx(0.5)


def test_a_chain_keeps_its_order() -> None:
    z = torch.ones(1, 2)
    assert ChannelChain([Doubling(), AddingOne()])(z).tolist() == [[3.0, 3.0]]
    assert ChannelChain([AddingOne(), Doubling()])(z).tolist() == [[4.0, 4.0]]


def test_noise_of_a_chain_adds_up() -> None:
    chain = build_channel([GaussianOptions(noise_std=0.3), GaussianOptions(noise_std=0.4)], key=KEY)
    released = chain(torch.zeros(200, 500), generator=torch.Generator().manual_seed(0))
    assert float(released.std()) == pytest.approx(0.5, rel=0.02)


def test_keyed_stages_of_a_chain_have_keys_of_their_own() -> None:
    keyed = GaussianOptions(noise_std=1.0, noise="keyed")
    chain = build_channel([keyed, keyed], key=KEY).eval()
    z, x = torch.zeros(4, 2000), images()
    assert float(chain(z, x=x).std()) == pytest.approx(math.sqrt(2), rel=0.05)


def test_keyed_noise_needs_a_key() -> None:
    with pytest.raises(ValueError, match="needs a key"):
        GaussianChannel(GaussianOptions(noise="keyed"))


def test_keyed_noise_is_standard_normal_and_uncorrelated_between_inputs() -> None:
    noise = keyed_normal(KEY, images(50), torch.zeros(50, 400))
    assert float(noise.mean()) == pytest.approx(0, abs=0.03)
    assert float(noise.std()) == pytest.approx(1, abs=0.02)
    assert float((noise @ noise.T / 400).fill_diagonal_(0).abs().max()) < 0.3


def test_keyed_noise_is_seeded_by_the_hmac_of_the_pixels() -> None:
    digest = hmac.digest(KEY, bytes([0, 51, 255, 255]), "sha256")
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") // 2)
    x = torch.tensor([0.0, 0.2, 1.0, 7.0]).view(1, 1, 2, 2)
    assert torch.equal(keyed_normal(KEY, x, torch.zeros(1, 3))[0], torch.randn(3, generator=generator))


def test_one_changed_pixel_level_changes_the_keyed_noise() -> None:
    x = (images(1) * 255).round() / 255
    other = x.clone()
    other[0, 0, 3, 3] = (other[0, 0, 3, 3] + 1 / 255) % 1
    like = torch.zeros(1, 100)
    assert not torch.equal(keyed_normal(KEY, x, like), keyed_normal(KEY, other, like))
    assert torch.equal(keyed_normal(KEY, x, like), keyed_normal(KEY, x + 1e-5, like))


def test_keyed_noise_needs_one_input_for_each_feature() -> None:
    with pytest.raises(ValueError, match="zip"):
        keyed_normal(KEY, images(3), torch.zeros(4, 2))


def test_an_abstract_channel_releases_nothing() -> None:
    with pytest.raises(NotImplementedError):
        Channel()(torch.zeros(1))
