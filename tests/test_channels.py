from __future__ import annotations

import hmac
import math

import pytest
import torch
from torch import Tensor

from attncem.channels import Channel, ChannelChain, GaussianChannel, IdentityChannel, build_channel, keyed_normal
from attncem.config.channels import (
    ChannelOptions,
    DropoutOptions,
    GaussianOptions,
    IdentityOptions,
    LaplaceOptions,
    LocalDPOptions,
    QuantiseOptions,
    TopKOptions,
    gaussian_mechanism_delta,
    gaussian_mechanism_std,
)
from attncem.config.load import dump_config, load_config
from attncem.types import ConfigError

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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gaussian_draws_the_generators_normal_numbers(dtype: torch.dtype) -> None:
    z = torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(0)).to(dtype)
    channel = build_channel([GaussianOptions(noise_std=0.3)], key=KEY)
    noise = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(1))
    assert torch.equal(channel(z, generator=torch.Generator().manual_seed(1)), z + 0.3 * noise.to(dtype))


def test_the_documents_chain_carries_out_every_stage() -> None:
    options = [GaussianOptions(), LocalDPOptions(epsilon=50), DropoutOptions(rate=0.5), TopKOptions(keep=0.2)]
    chain = build_channel(options, key=KEY)
    released = chain(torch.rand(8, 100), generator=torch.Generator().manual_seed(0))
    assert ((released != 0).sum(1) <= 20).all()
    assert chain.noise_std == pytest.approx(math.hypot(0.1, options[1].added_noise_std))


def test_channel_order_is_what_the_user_gave() -> None:
    def order(*names: str) -> str:
        return load_config({"channel": [{"name": name} for name in names]}).config.channel_order

    assert order("gaussian", "local_dp", "dropout", "top_k") == "gaussian → local_dp → dropout → top_k"
    assert order("identity", "dropout", "identity") == "identity → dropout → identity"
    assert order("top_k", "gaussian") == "top_k → gaussian; the documents: gaussian → top_k"


@pytest.mark.parametrize(
    ("stages", "bits"),
    [
        ([GaussianOptions(), QuantiseOptions(bits=4)], 4),
        ([QuantiseOptions(bits=4), GaussianOptions(), TopKOptions()], 4),
        ([QuantiseOptions(bits=2), QuantiseOptions(bits=4)], 2),
        ([QuantiseOptions(bits=2), GaussianOptions(noise="keyed")], None),
        ([QuantiseOptions(bits=2), DropoutOptions(noise="keyed"), QuantiseOptions(bits=4)], 4),
        ([GaussianOptions(), DropoutOptions()], None),
    ],
)
def test_bits_of_a_chain_hold_unless_a_later_stage_reads_the_input(stages: list[ChannelOptions], bits: int) -> None:
    assert build_channel(stages, key=KEY).bits_per_feature == bits


def test_noise_of_a_configuration_is_that_of_its_channel() -> None:
    stages = [{"name": "gaussian", "noise_std": 0.3}, {"name": "laplace", "scale": 0.2}, {"name": "local_dp"}]
    config = load_config({"channel": [*stages, {"name": "dropout"}]}).config
    assert config.noise_std == pytest.approx(build_channel(config.channel, key=KEY).noise_std, rel=1e-12)
    assert config.noise_std == pytest.approx(math.hypot(0.3, math.sqrt(2) * 0.2, LocalDPOptions().added_noise_std))


def test_a_relative_floor_needs_a_channel_that_adds_noise() -> None:
    kmeans = {"name": "kmeans"}
    dropping = [{"name": "top_k"}, {"name": "dropout"}]
    with pytest.raises(ConfigError, match=r"\(top_k → dropout; the documents: .*\) adds no noise: give it gaussian"):
        load_config({"channel": dropping, "surrogate": kmeans})
    with pytest.raises(ConfigError, match=r"channel\.noise_std, which is 0"):
        load_config({"channel": {"name": "laplace", "noise_std": 0}, "surrogate": kmeans})
    for name in ("laplace", "local_dp"):
        assert load_config({"channel": [*dropping, {"name": name}], "surrogate": kmeans}).config.noise_std > 0


def test_laplace_takes_a_scale_or_a_deviation() -> None:
    assert LaplaceOptions(scale=0.5).noise_std == pytest.approx(math.sqrt(2) / 2)
    config = load_config({"channel": {"name": "laplace", "scale": 0.1}}).config
    assert "scale: 0.1\n" in dump_config(config)
    assert load_config(config).config == config
    with pytest.raises(ConfigError, match=r"scale=0.1 and noise_std=0.3 disagree"):
        load_config(config, ["channel.noise_std=0.3"])


def hockey_stick(epsilon: float, sigma: float) -> float:
    """δ by summation: ∫ max(0, p − e^ε q) of two normals one apart."""
    t = torch.linspace(-12, 13, 400_001, dtype=torch.float64)
    p, q = (torch.exp(-0.5 * ((t * sigma - mean) / sigma) ** 2) / math.sqrt(2 * math.pi) for mean in (1.0, 0.0))
    return float((p - math.exp(epsilon) * q).clamp_min(0).sum() * (t[1] - t[0]))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-2])
def test_the_noise_of_local_dp_is_the_least_that_gives_epsilon_and_delta(epsilon: float, delta: float) -> None:
    sigma = gaussian_mechanism_std(epsilon, delta, 1.0)
    assert hockey_stick(epsilon, sigma) == pytest.approx(delta, rel=1e-3)
    assert gaussian_mechanism_delta(epsilon, sigma) <= delta < gaussian_mechanism_delta(epsilon, 0.999 * sigma)
    assert LocalDPOptions(clip=3, epsilon=epsilon, delta=delta).added_noise_std == pytest.approx(6 * sigma)
    if epsilon <= 1:
        assert sigma < math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def test_the_noise_of_local_dp_falls_with_epsilon_to_any_size() -> None:
    stds = [gaussian_mechanism_std(10.0**power, 1e-5, 1.0) for power in range(-4, 7)]
    assert stds == sorted(stds, reverse=True)
    assert stds[4] == pytest.approx(3.7306, abs=1e-3)
    assert stds[-1] == pytest.approx(1 / math.sqrt(2e6), rel=0.01)
