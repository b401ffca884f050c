from __future__ import annotations

import hashlib
import hmac
import math

import pytest
import torch
from torch import Tensor

from attncem.base.types import ConfigError, RunError
from attncem.config.loading.load import dump_config, load_config
from attncem.config.options.channels import (
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
from attncem.models.channels import (
    SYSTEM,
    Channel,
    ChannelChain,
    GaussianChannel,
    IdentityChannel,
    Secrets,
    Source,
    build_channel,
)
from attncem_edge import noise

KEY = b"k" * 32
KEYED = GaussianOptions(noise_std=1.0, noise="keyed")


class Doubling(Channel):
    def forward(self, z: Tensor, *, x: Tensor | None = None, generator: Source = None) -> Tensor:
        return 2 * z


class AddingOne(Channel):
    def forward(self, z: Tensor, *, x: Tensor | None = None, generator: Source = None) -> Tensor:
        return z + 1


def images(count: int = 4) -> Tensor:
    return torch.rand(count, 1, 6, 6, generator=torch.Generator().manual_seed(5))


def test_one_stage_is_built_alone_and_several_as_a_chain() -> None:
    assert isinstance(build_channel([IdentityOptions()]), IdentityChannel)
    chain = build_channel([GaussianOptions(noise_std=0.3), IdentityOptions(), GaussianOptions(noise_std=0.4)])
    assert isinstance(chain, ChannelChain)
    assert [type(stage) for stage in chain.stages] == [GaussianChannel, IdentityChannel, GaussianChannel]
    assert chain.noise_std == pytest.approx(0.5)


def test_a_chain_keeps_its_order() -> None:
    z = torch.ones(1, 2)
    assert ChannelChain([Doubling(), AddingOne()])(z).tolist() == [[3.0, 3.0]]
    assert ChannelChain([AddingOne(), Doubling()])(z).tolist() == [[4.0, 4.0]]


def test_noise_of_a_chain_adds_up() -> None:
    chain = build_channel([GaussianOptions(noise_std=0.3), GaussianOptions(noise_std=0.4)])
    released = chain(torch.zeros(200, 500), generator=torch.Generator().manual_seed(0))
    assert float(released.std()) == pytest.approx(0.5, rel=0.02)


def test_keyed_stages_of_a_chain_have_noise_of_their_own() -> None:
    chain = build_channel([KEYED, KEYED]).bind(KEY, "print").eval()
    z, x = torch.zeros(4, 2000), images()
    assert float(chain(z, x=x).std()) == pytest.approx(math.sqrt(2), rel=0.05)


def test_chains_in_a_chain_count_their_stages_on() -> None:
    inner = [build_channel([KEYED, IdentityOptions(), KEYED]) for _ in range(2)]
    outer = ChannelChain(inner).bind(KEY, "print").eval()
    flat = build_channel([KEYED, IdentityOptions(), KEYED] * 2).bind(KEY, "print").eval()
    z, x = torch.zeros(4, 2000), images()
    assert torch.equal(outer(z, x=x), flat(z, x=x))
    assert float(outer(z, x=x).std()) == pytest.approx(2, rel=0.05)


def test_secrets_of_a_chain_differ_from_stage_to_stage() -> None:
    given: list[bytes] = []

    class Kept(Secrets):
        def fresh(self) -> bytes:
            given.append(super().fresh())
            return given[-1]

    chain = build_channel([GaussianOptions(), DropoutOptions(), LaplaceOptions(), LocalDPOptions(), TopKOptions()])
    chain(torch.rand(5, 30), generator=Kept())
    assert len(set(given)) == len(given) == 20


@pytest.mark.parametrize("scheme", [0, 1])
@pytest.mark.parametrize("key", [b"", b"short"])
def test_a_channel_is_not_bound_to_a_short_key(scheme: int, key: bytes) -> None:
    if scheme == 0 and key:
        build_channel([KEYED]).bind(key, "print", scheme)
        return
    with pytest.raises(ValueError, match="needs a key of 32 bytes"):
        build_channel([KEYED]).bind(key, "print", scheme)


def test_a_channel_is_not_bound_to_a_scheme_of_tomorrow() -> None:
    with pytest.raises(ValueError, match="scheme 2 is not known"):
        build_channel([KEYED]).bind(KEY, "print", 2)


def keyed_normal(key: bytes, x: Tensor, like: Tensor, scheme: int = 1) -> Tensor:
    released: Tensor = build_channel([KEYED]).bind(key, "print", scheme).eval()(like, x=x)
    return released


@pytest.mark.parametrize("scheme", [0, 1])
def test_keyed_noise_is_standard_normal_and_uncorrelated_between_inputs(scheme: int) -> None:
    drawn = keyed_normal(KEY, images(50), torch.zeros(50, 400), scheme)
    assert float(drawn.mean()) == pytest.approx(0, abs=0.03)
    assert float(drawn.std()) == pytest.approx(1, abs=0.02)
    assert float((drawn @ drawn.T / 400).fill_diagonal_(0).abs().max()) < 0.3


def test_keyed_noise_is_drawn_from_the_secret_of_the_pixels() -> None:
    x = torch.tensor([0.0, 0.2, 1.0, 7.0]).view(1, 1, 2, 2)
    for position in (0, 1):
        chain = build_channel([IdentityOptions()] * position + [KEYED]).bind(KEY, "print").eval()
        secret = noise.keyed_secret(KEY, "print", position, bytes([0, 51, 255, 255]))
        expected = torch.from_numpy(noise.draw(secret, "normal", 6, position)).float()
        assert torch.equal(chain(torch.zeros(1, 2, 3), x=x).flatten(), expected)


@pytest.mark.parametrize("position", [0, 1])
def test_keyed_noise_of_old_runs_is_seeded_by_the_hmac_of_the_pixels(position: int) -> None:
    stage_key = hashlib.sha256(KEY + bytes([position])).digest()
    digest = hmac.digest(stage_key, bytes([0, 51, 255, 255]), "sha256")
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") // 2)
    x = torch.tensor([0.0, 0.2, 1.0, 7.0]).view(1, 1, 2, 2)
    chain = build_channel([IdentityOptions()] * position + [KEYED]).bind(KEY, "ignored", 0).eval()
    assert torch.equal(chain(torch.zeros(1, 3), x=x)[0], torch.randn(3, generator=generator))
    with pytest.raises(RunError, match=r"keyed noise of scheme 0 .* may not be released"):
        chain(torch.zeros(1, 3), x=x, generator=SYSTEM)


def test_one_changed_pixel_level_changes_the_keyed_noise() -> None:
    x = (images(1) * 255).round() / 255
    other = x.clone()
    other[0, 0, 3, 3] = (other[0, 0, 3, 3] + 1 / 255) % 1
    like = torch.zeros(1, 100)
    assert not torch.equal(keyed_normal(KEY, x, like), keyed_normal(KEY, other, like))
    assert torch.equal(keyed_normal(KEY, x, like), keyed_normal(KEY, x + 1e-5, like))


@pytest.mark.parametrize("scheme", [0, 1])
def test_keyed_noise_needs_one_input_for_each_sample(scheme: int) -> None:
    with pytest.raises(ValueError, match=r"zip|one input for each sample: 3 for 4"):
        keyed_normal(KEY, images(3), torch.zeros(4, 2), scheme)


def test_an_abstract_channel_releases_nothing() -> None:
    with pytest.raises(NotImplementedError):
        Channel()(torch.zeros(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gaussian_draws_the_generators_normal_numbers(dtype: torch.dtype) -> None:
    z = torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(0)).to(dtype)
    channel = build_channel([GaussianOptions(noise_std=0.3)])
    drawn = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(1))
    assert torch.equal(channel(z, generator=torch.Generator().manual_seed(1)), z + 0.3 * drawn.to(dtype))


def test_torchs_generators_draw_what_they_always_drew() -> None:
    """Training and audits of old runs meet the same numbers again."""
    generator = torch.Generator().manual_seed(0)
    minus, plus = (torch.empty(1, 3).exponential_(generator=generator) for _ in range(2))
    laplace = build_channel([LaplaceOptions(scale=1.0)])
    expected = laplace.noise_std / 2**0.5 * (plus - minus)
    assert torch.equal(laplace(torch.zeros(1, 3), generator=generator.manual_seed(0)), expected)
    kept = build_channel([DropoutOptions(rate=0.5)])(torch.ones(1, 3), generator=generator.manual_seed(0))
    assert torch.equal(kept == 0, torch.rand(1, 3, generator=generator.manual_seed(0)) < 0.5)


def test_the_documents_chain_carries_out_every_stage() -> None:
    options = [GaussianOptions(), LocalDPOptions(epsilon=50), DropoutOptions(rate=0.5), TopKOptions(keep=0.2)]
    chain = build_channel(options)
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
    assert build_channel(stages).bits_per_feature == bits


def test_noise_of_a_configuration_is_that_of_its_channel() -> None:
    stages = [{"name": "gaussian", "noise_std": 0.3}, {"name": "laplace", "scale": 0.2}, {"name": "local_dp"}]
    config = load_config({"channel": [*stages, {"name": "dropout"}]}).config
    assert config.noise_std == pytest.approx(build_channel(config.channel).noise_std, rel=1e-12)
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
    added = LocalDPOptions(clip=3, epsilon=epsilon, delta=delta).added_noise_std
    assert 6 * sigma < added < 6 * sigma * 1.001, "a slack for noise as it is drawn"
    if epsilon <= 1:
        assert sigma < math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def test_the_noise_of_local_dp_falls_with_epsilon_to_any_size() -> None:
    stds = [gaussian_mechanism_std(10.0**power, 1e-5, 1.0) for power in range(-4, 7)]
    assert stds == sorted(stds, reverse=True)
    assert stds[4] == pytest.approx(3.7306, abs=1e-3)
    assert stds[-1] == pytest.approx(1 / math.sqrt(2e6), rel=0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind", ["fresh", "keyed"])
def test_local_dp_lets_only_multiples_of_its_grid_leave(dtype: torch.dtype, kind: str) -> None:
    options = LocalDPOptions(noise=kind)
    channel = build_channel([options]).bind(KEY, "print").eval()
    released = channel(torch.randn(4, 50).to(dtype), x=images(), generator=SYSTEM).double()
    assert torch.equal((released / options.grid).round() * options.grid, released)
    in_training = channel.train()(torch.randn(4, 50).to(torch.float64), generator=torch.Generator())
    assert not torch.equal((in_training / options.grid).round() * options.grid, in_training)


def test_a_release_of_local_dp_is_the_clipped_feature_with_noise_to_the_grid() -> None:
    options = LocalDPOptions(noise="keyed", clip=0.5)
    z, x = torch.randn(4, 3, 5), images()
    numbers = keyed_normal(KEY, x, torch.zeros(4, 3, 5))
    expected = 0.5 * z / z.flatten(1).norm(dim=1).view(-1, 1, 1) + options.added_noise_std * numbers
    released = build_channel([options]).bind(KEY, "print").eval()(z, x=x)
    assert float((released - expected).abs().max()) < options.grid


def test_no_feature_is_seen_through_what_is_not_finite() -> None:
    z = torch.tensor([[math.nan, 1.0], [math.inf, 1.0], [1e30, -1e38]])
    assert build_channel([LocalDPOptions()])(z, generator=SYSTEM).isfinite().all()


@pytest.mark.parametrize("training", [True, False])
def test_local_dp_refuses_more_features_than_its_noise_can_hold(training: bool) -> None:
    large = build_channel([LocalDPOptions(epsilon=55)]).train(training)
    assert large(torch.zeros(1, 60)).shape == (1, 60)
    with pytest.raises(
        ConfigError, match=r"epsilon=55\.0.* has 8192 features: epsilon must lie between 0.002 and 50.1"
    ):
        large(torch.zeros(1, 8192))
    small = build_channel([LocalDPOptions(epsilon=1e-5)]).train(training)
    with pytest.raises(ConfigError, match=r"between 0.00024 and"):
        small(torch.zeros(1, 1000))
    with pytest.raises(ConfigError, match="no epsilon works"):
        small(torch.zeros(1, 2**22 + 1))


def test_the_largest_epsilon_is_said() -> None:
    with pytest.raises(ConfigError, match=r"epsilon=1000.*1 feature: epsilon must lie between 2.4e-07 and 59.1"):
        load_config({"channel": {"name": "local_dp", "epsilon": 1000}})
    assert load_config({"channel": {"name": "local_dp", "epsilon": 59.1}}).config.noise_std > 0
