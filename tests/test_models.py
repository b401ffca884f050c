from __future__ import annotations

import math
import statistics
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from attncem.base.types import ConfigError, DatasetSpec
from attncem.config.options.channels import GaussianOptions, IdentityOptions
from attncem.config.options.model import ModelOptions, NoFrontEndOptions
from attncem.models.channels import GaussianChannel, IdentityChannel
from attncem.models.decoders import DECODERS, LARGEST_VIEW, GlobalDecoder, PublishedDecoder
from attncem.models.front_ends import NoFrontEnd
from attncem.models.networks import build_halves
from attncem.models.split import SplitModel, count_parameters, feature_shape

GREY = DatasetSpec("grey", (1, 28, 28), 10, mean=(0.3,), std=(0.4,))
COLOUR = DatasetSpec("colour", (3, 32, 32), 7, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
FEATURES = [(8, 7, 7), (8, 4, 4), (49, 16), (100,), (8, 32, 32), (8, 14, 14)]
IMAGES = [(1, 28, 28), (3, 32, 32)]


def identity() -> IdentityChannel:
    return IdentityChannel(IdentityOptions())


def noisy(noise_std: float = 0.1) -> GaussianChannel:
    return GaussianChannel(GaussianOptions(noise_std=noise_std))


def images(spec: DatasetSpec, count: int = 3) -> Tensor:
    return torch.rand(count, *spec.shape, generator=torch.Generator().manual_seed(1))


# networks: the contract of the whole table is in test_networks_table.py


def test_normalisation_happens_inside_the_encoder() -> None:
    x = images(COLOUR)
    out = NoFrontEnd(NoFrontEndOptions(), COLOUR)(x)
    for channel in range(3):
        expected = (x[:, channel] - COLOUR.mean[channel]) / COLOUR.std[channel]
        torch.testing.assert_close(out[:, channel], expected)
    client, _ = build_halves(COLOUR, ModelOptions())
    assert isinstance(client[0], NoFrontEnd)
    assert not [key for key in client.state_dict() if "mean" in key and "running" not in key]


@pytest.mark.parametrize(("number", "name"), [(1, "conv1"), (2, "conv2"), (3, "conv3"), (4, "conv4")])
def test_a_cut_has_a_number_and_a_name(number: int, name: str) -> None:
    shapes = [
        {key: value.shape for key, value in build_halves(GREY, ModelOptions(cut=cut))[0].state_dict().items()}
        for cut in (number, name, str(number))
    ]
    assert shapes[0] == shapes[1] == shapes[2]


@pytest.mark.parametrize("cut", [0, 5, -1, "conv5", "head", "9", "²", ""])
def test_a_cut_the_network_does_not_have_is_refused(cut: int | str) -> None:
    with pytest.raises(ConfigError, match=r"1 \(conv1\), 2 \(conv2\), 3 \(conv3\), 4 \(conv4\)") as caught:
        build_halves(GREY, ModelOptions(cut=cut))
    assert f"model.cut={cut}" in str(caught.value)


# split model


def test_release_has_the_shape_it_promises() -> None:
    client, server = build_halves(GREY, ModelOptions())
    model = SplitModel(client, noisy(), server).eval()
    x = images(GREY)
    shape = feature_shape(client, GREY.shape)
    assert shape == (8, 7, 7)
    assert model.release(x).shape == (3, *shape)
    assert model.release(x, copies=1).shape == (3, *shape)
    assert model.release(x, copies=4).shape == (3, 4, *shape)


def test_copies_are_releases_of_the_same_input_with_noise_of_their_own() -> None:
    model = SplitModel(nn.Flatten(), noisy(0.01), None).eval()
    x = images(GREY)
    released = model.release(x, copies=5)
    assert (released - x.flatten(1)[:, None]).abs().max() < 0.1
    assert (released[:, 0] - released[:, 1]).abs().max() > 0


def test_release_is_reproducible_from_a_generator() -> None:
    model = SplitModel(nn.Flatten(), noisy(), None)
    x = images(GREY)
    one = model.release(x, copies=2, generator=torch.Generator().manual_seed(1))
    assert torch.equal(one, model.release(x, copies=2, generator=torch.Generator().manual_seed(1)))
    assert not torch.equal(one, model.release(x, copies=2, generator=torch.Generator().manual_seed(2)))


@pytest.mark.parametrize("copies", [0, -1])
def test_no_copies_are_refused(copies: int) -> None:
    model = SplitModel(nn.Flatten(), identity(), None)
    with pytest.raises(ValueError, match=f"copies must be at least 1, got {copies}"):
        model.release(images(GREY), copies=copies)


def test_an_encoder_alone_releases_but_does_not_predict() -> None:
    model = SplitModel(nn.Flatten(), identity(), None)
    x = images(GREY)
    assert torch.equal(model.release(x), x.flatten(1))
    with pytest.raises(ValueError, match="no server half"):
        model(x)


class TokenEncoder(nn.Module):
    """Somebody's own encoder: 49 patches of 4 px as tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(16, 6)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        patches = nn.functional.unfold(x, 4, stride=4).transpose(1, 2)
        tokens: Tensor = self.drop(self.embed(patches))
        return tokens


def test_bring_your_own_halves() -> None:
    encoder, server = TokenEncoder(), nn.Sequential(nn.Flatten(), nn.Linear(49 * 6, 4))
    model = SplitModel(encoder, noisy(), server)
    assert feature_shape(encoder, (1, 28, 28)) == (49, 6)
    assert encoder.training
    model.eval()
    x = images(GREY)
    assert model.release(x, copies=2).shape == (3, 2, 49, 6)
    assert model(x).shape == (3, 4)
    assert {key.split(".")[0] for key in model.state_dict()} == {"encoder", "server"}
    loss = model(x).square().mean()
    loss.backward()
    assert encoder.embed.weight.grad is not None
    assert encoder.embed.weight.grad.abs().sum() > 0


def test_feature_shape_leaves_batch_norm_alone() -> None:
    client, _ = build_halves(GREY, ModelOptions())
    before = {key: value.clone() for key, value in client.state_dict().items()}
    feature_shape(client, GREY.shape)
    assert client.training
    assert all(torch.equal(before[key], value) for key, value in client.state_dict().items())


class Pair(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


class Pooled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(0)


@pytest.mark.parametrize("encoder", [Pair(), Pooled()])
def test_an_encoder_must_give_one_tensor_per_batch(encoder: nn.Module) -> None:
    with pytest.raises(ValueError, match="must map"):
        feature_shape(encoder, (1, 28, 28))


def test_parameters_are_counted() -> None:
    assert count_parameters(nn.Linear(3, 4)) == 16
    assert count_parameters(None) == 0


# decoders


@pytest.mark.parametrize(("blocks", "count"), [(8, 711_539), (4, 415_091)])
def test_published_decoder_has_the_published_size(blocks: int, count: int) -> None:
    decoder = PublishedDecoder((8, 8, 8), (3, 32, 32), width=64, blocks=blocks)
    assert count_parameters(decoder) == count


def test_the_table_holds_the_published_n8c64() -> None:
    assert count_parameters(DECODERS["published"]((8, 8, 8), (3, 32, 32))) == 711_539


@pytest.mark.parametrize(("feature", "image"), list(product(FEATURES, IMAGES)))
def test_strong_decoder_is_strong_and_without_batch_norm(feature: tuple[int, ...], image: tuple[int, int, int]) -> None:
    with torch.device("meta"):
        decoder = DECODERS["strong"](feature, image)
    assert count_parameters(decoder) >= 5_000_000
    assert not [m for m in decoder.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    assert [m for m in decoder.modules() if isinstance(m, nn.GroupNorm)]


def test_global_decoder_has_its_size() -> None:
    decoder = GlobalDecoder((8, 8, 8), (3, 32, 32))
    assert count_parameters(decoder) == 1_488_496
    assert decoder.small_shape == (7, 8, 8)
    assert decoder.view.length == 512


@pytest.mark.parametrize(
    ("feature", "entries"),
    [
        ((64, 32, 32), 64 * 11 * 11),
        ((64, 64, 16), 64 * 22 * 5),
        ((9000, 1, 1), LARGEST_VIEW),
        ((1024, 300), 300 * 5 * 5),
        ((30, 500), LARGEST_VIEW),
        ((20_000,), LARGEST_VIEW),
    ],
)
def test_global_decoder_of_large_features_stays_small(feature: tuple[int, ...], entries: int) -> None:
    with torch.device("meta"):
        decoder = GlobalDecoder(feature, (3, 64, 64))
        assert decoder(torch.zeros(2, *feature)).shape == (2, 3, 64, 64)
    assert decoder.view.length == decoder.linear.in_features == entries
    assert count_parameters(decoder.linear) + count_parameters(decoder.everywhere) < 6_000_000


def test_a_view_that_is_small_enough_is_the_feature_itself() -> None:
    tokens = torch.randn(2, 49, 16)
    view = GlobalDecoder((49, 16), (1, 28, 28)).view
    assert torch.equal(view(tokens), tokens.transpose(1, 2).flatten(1))
    assert torch.equal(GlobalDecoder((48, 16), (1, 28, 28)).view(tokens[:, :48]), tokens[:, :48].flatten(1))


def test_a_view_of_a_large_map_averages_neighbours() -> None:
    grid = torch.randn(2, 2, 128, 128)
    view = GlobalDecoder((2, 128, 128), (1, 28, 28)).view
    torch.testing.assert_close(view(grid), nn.functional.avg_pool2d(grid, 2).flatten(1))


def test_images_smaller_than_the_small_image() -> None:
    decoder = GlobalDecoder((4, 2, 2), (1, 6, 12))
    assert decoder.small_shape == (3, 6, 8)
    assert decoder(torch.randn(2, 4, 2, 2)).shape == (2, 1, 6, 12)


@pytest.mark.slow
def test_a_global_decoder_finds_what_the_feature_keeps_far_away() -> None:
    """One corner of the feature holds the brightness of the whole image; the published decoder's reach is too short."""
    generator = torch.Generator().manual_seed(4)
    brightness = torch.rand(64, 1, 1, 1, generator=generator)
    grid = torch.zeros(64, 1, 16, 16)
    grid[:, :, :1, :1] = brightness - 0.5
    x = brightness.expand(-1, 1, 16, 16)

    def error(decoder: nn.Module) -> float:
        adam = torch.optim.Adam(decoder.parameters(), lr=3e-3)
        for _ in range(100):
            loss = nn.functional.mse_loss(decoder(grid), x)
            adam.zero_grad()
            loss.backward()
            adam.step()
        with torch.no_grad():
            return float(nn.functional.mse_loss(decoder.eval()(grid), x) / x.var())

    with torch.random.fork_rng():
        torch.manual_seed(0)
        shapes = (1, 16, 16), (1, 16, 16)
        # A single start is a matter of rounding: dropout hides the corner in every fourth step.
        assert statistics.median(error(GlobalDecoder(*shapes, width=8, blocks=1)) for _ in range(5)) < 0.1
        assert min(error(PublishedDecoder(*shapes, width=8, blocks=1)) for _ in range(2)) > 0.7


def fits(size: str, feature: tuple[int, ...]) -> bool:
    """Whether a forward pass is quick on a CPU."""
    return size != "strong" or math.prod(feature) < 1000


@pytest.mark.parametrize(
    ("size", "feature", "image"), [c for c in product(DECODERS, FEATURES, IMAGES) if fits(c[0], c[1])]
)
def test_every_decoder_turns_every_feature_into_an_image(
    size: str, feature: tuple[int, ...], image: tuple[int, int, int]
) -> None:
    decoder = DECODERS[size](feature, image).eval()
    released = torch.randn(2, *feature, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        out = decoder(released)
        alone = torch.cat([decoder(released[:1]), decoder(released[1:])])
    assert out.shape == (2, *image)
    assert out.min() >= 0
    assert out.max() <= 1
    assert not torch.equal(out[0], out[1])
    torch.testing.assert_close(out, alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("feature", [(8, 32, 32), (8, 14, 14)])
def test_strong_decoder_of_large_maps_gives_the_right_shape(feature: tuple[int, ...]) -> None:
    with torch.device("meta"):
        decoder = DECODERS["strong"](feature, (1, 28, 28))
        assert decoder(torch.zeros(2, *feature)).shape == (2, 1, 28, 28)


@pytest.mark.parametrize("size", DECODERS)
def test_decoders_stay_finite_in_bf16(size: str) -> None:
    decoder = DECODERS[size]((8, 4, 4), (1, 28, 28))
    released = 30 * torch.randn(4, 8, 4, 4, generator=torch.Generator().manual_seed(3))
    with torch.autocast("cpu", torch.bfloat16):
        out = decoder(released)
        loss = nn.functional.mse_loss(out.float(), torch.rand(4, 1, 28, 28))
    loss.backward()
    assert out.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in decoder.parameters())


def test_tokens_keep_their_place_in_the_grid() -> None:
    decoder = DECODERS["small"]((49, 16), (1, 28, 28))
    tokens = torch.zeros(1, 49, 16)
    tokens[0, 7 * 2 + 5, 3] = 1
    grid = decoder.to_grid(tokens)
    assert grid.shape == (1, 16, 7, 7)
    assert grid[0, 3, 2, 5] == 1
    assert grid.sum() == 1


def test_tokens_that_make_no_square_pass_a_linear_layer() -> None:
    decoder = DECODERS["small"]((50, 4), (1, 28, 28))
    assert decoder(torch.randn(2, 50, 4)).shape == (2, 1, 28, 28)
    assert isinstance(decoder.to_grid.expand, nn.Linear)


def test_a_plain_module_can_be_the_channel() -> None:
    model = SplitModel(torch.nn.Flatten(), torch.nn.Hardtanh(0, 0.5), None)
    x = torch.rand(3, 1, 4, 4)
    assert torch.equal(model.release(x), x.flatten(1).clamp(0, 0.5))
    assert model.release(x, copies=2).shape == (3, 2, 16)
