"""What is particular to one network: published sizes, shapes and starting weights."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from attncem.base.types import ConfigError, DatasetSpec
from attncem.config.options.model import BottleneckOptions, ModelOptions
from attncem.models.networks import ARCHITECTURES, build_halves
from attncem.models.resnet import PaddedShortcut
from attncem.models.split import count_parameters, feature_shape
from attncem.models.thin_vgg import Separable
from attncem.models.vgg import Halve
from attncem.models.vit import SelfAttention

CIFAR = DatasetSpec("cifar", (3, 32, 32), 10, mean=(0.5,) * 3, std=(0.25,) * 3)
PUBLISHED = {
    "vgg11_bn": 9_756_426,
    "thin_vgg11_bn": 9_999_818,
    "resnet20": 269_722,
    "resnet18": 11_173_962,
    "mobilenet_v2": 2_236_682,
    "vit_tiny": 2_693_194,
}
"""Parameters without bottleneck at 10 classes; vit_tiny and thin_vgg11_bn are ours, the others are the published."""


def sized(side: int) -> DatasetSpec:
    return DatasetSpec("any", (3, side, side), 10, mean=(0.5,) * 3, std=(0.25,) * 3)


def client_shape(name: str, cut: int | str, side: int = 32) -> tuple[int, ...]:
    with torch.device("meta"):
        client, _ = build_halves(sized(side), ModelOptions(name=name, cut=cut))
        return tuple(client.eval()(torch.zeros(1, 3, side, side)).shape[1:])


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_networks_have_the_published_size(name: str, count: int) -> None:
    with torch.device("meta"):
        network = ARCHITECTURES[name](CIFAR, ModelOptions(name=name))
    assert sum(count_parameters(module) for _, module, _ in network.stages) + count_parameters(network.head) == count


# vgg


def test_vgg_at_cut_4_is_the_baselines() -> None:
    bottleneck = BottleneckOptions(channels=8, stride=1, kernel=3, relu=False)
    client, server = build_halves(CIFAR, ModelOptions(name="vgg11_bn", cut=4, bottleneck=bottleneck))
    assert count_parameters(client) == 85_256
    assert count_parameters(server[:-1]) == 9_159_296
    assert count_parameters(server[-1]) == 530_442
    assert feature_shape(client, CIFAR.shape) == (8, 8, 8)
    kinds = [type(layer).__name__ for layer in server[-1]]
    assert kinds[2:] == ["Dropout", "Linear", "ReLU", "Dropout", "Linear", "ReLU", "Linear"]


@pytest.mark.parametrize(
    ("cut", "shape"),
    [(1, (8, 32, 32)), (3, (8, 16, 16)), ("conv2", (8, 16, 16)), ("pool2", (8, 8, 8)), (12, (8, 2, 2))],
)
def test_vgg_cuts_count_convolutions_and_poolings(cut: int | str, shape: tuple[int, ...]) -> None:
    assert client_shape("vgg11_bn", cut) == shape


def test_vgg_starts_its_clients_convolutions_alone_from_xavier() -> None:
    torch.manual_seed(0)
    client, server = build_halves(CIFAR, ModelOptions(name="vgg11_bn", cut=4))
    of_client = [m for m in client.modules() if isinstance(m, nn.Conv2d)]
    of_server = [m for m in server.modules() if isinstance(m, nn.Conv2d)]
    assert (len(of_client), len(of_server)) == (3, 7)
    for conv in of_client:
        bound = math.sqrt(6 / (9 * (conv.in_channels + conv.out_channels)))
        assert 0.98 * bound < float(conv.weight.detach().abs().max()) <= bound
        assert conv.bias is not None and not conv.bias.any()
    for conv in of_server:
        assert float(conv.weight.detach().abs().max()) <= 1 / math.sqrt(9 * conv.in_channels)
        assert conv.bias is not None and conv.bias.any()


def test_vgg_at_32_px_needs_no_pooling_before_its_classifier() -> None:
    _, server = build_halves(CIFAR, ModelOptions(name="vgg11_bn", cut=4, width=4))
    server.eval()
    z = torch.rand(2, 8, 8, 8)
    with torch.no_grad():
        features = server[:-1](z)
        assert features.shape == (2, 32, 1, 1)
        assert torch.equal(server(z), server[-1][2:](features.flatten(1)))


@pytest.mark.parametrize(("side", "after"), [(1, 1), (2, 1), (3, 1), (7, 3), (8, 4)])
def test_halve_pools_while_there_is_something_to_pool(side: int, after: int) -> None:
    x = torch.rand(2, 3, side, side)
    assert Halve()(x).shape == (2, 3, after, after)
    if side > 1:
        assert torch.equal(Halve()(x), F.max_pool2d(x, 2))


def test_the_thin_networks_server_begins_as_vggs() -> None:
    halves = {}
    for name in ("vgg11_bn", "thin_vgg11_bn"):
        client, server = build_halves(CIFAR, ModelOptions(name=name, cut=4))
        assert feature_shape(client, CIFAR.shape) == (8, 8, 8)
        halves[name] = {key: value.shape for key, value in server.state_dict().items()}
    assert halves["vgg11_bn"] == halves["thin_vgg11_bn"]


@pytest.mark.parametrize(("cut", "shape"), [("stem", (8, 16, 16)), (2, (8, 8, 8)), ("deep", (8, 8, 8)), (5, (8, 8, 8))])
def test_the_thin_client_halves_the_image_twice(cut: int | str, shape: tuple[int, ...]) -> None:
    assert client_shape("thin_vgg11_bn", cut) == shape


def test_a_separable_layer_adds_its_input_where_it_can() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 6, 5, 5)
    same, wider = Separable(6, 6).eval(), Separable(6, 8).eval()
    with torch.no_grad():
        assert torch.equal(same(x), F.relu(x + same.body(x)))
        assert torch.equal(wider(x), F.relu(wider.body(x)))
    assert same.body[0].groups == 6


def test_the_thin_network_needs_an_even_width() -> None:
    with pytest.raises(ConfigError, match=r"model\.width=5: thin_vgg11_bn begins with half of it"):
        build_halves(CIFAR, ModelOptions(name="thin_vgg11_bn", cut=4, width=5))


@pytest.mark.parametrize("blocks", [0, 5])
def test_the_thin_client_is_as_deep_as_asked(blocks: int) -> None:
    client, _ = build_halves(CIFAR, ModelOptions(name="thin_vgg11_bn", cut=4, blocks=blocks))
    assert sum(isinstance(module, Separable) and module.residual for module in client.modules()) == blocks
    assert feature_shape(client, CIFAR.shape) == (8, 8, 8)


def test_other_networks_have_their_number_of_blocks() -> None:
    with pytest.raises(ConfigError, match=r"model\.blocks=5: resnet20 has a fixed number"):
        build_halves(CIFAR, ModelOptions(name="resnet20", blocks=5))


# resnet and mobilenet


@pytest.mark.parametrize(
    ("name", "cut", "shape"),
    [
        ("resnet20", "stem", (8, 32, 32)),
        ("resnet20", "layer2.0", (8, 16, 16)),
        ("resnet20", 9, (8, 8, 8)),
        ("resnet18", "layer1.1", (8, 32, 32)),
        ("resnet18", "layer4.0", (8, 4, 4)),
        ("mobilenet_v2", "block3", (8, 32, 32)),
        ("mobilenet_v2", "block4", (8, 16, 16)),
        ("mobilenet_v2", "block17", (8, 4, 4)),
    ],
)
def test_networks_keep_the_resolution_of_small_images(name: str, cut: int | str, shape: tuple[int, ...]) -> None:
    assert client_shape(name, cut) == shape


def test_the_padded_shortcut_keeps_what_it_passes_on() -> None:
    x = torch.rand(2, 3, 7, 7)
    out = PaddedShortcut(3, 5, 2)(x)
    assert out.shape == (2, 5, 4, 4)
    assert torch.equal(out[:, :3], x[:, :, ::2, ::2])
    assert not out[:, 3:].any()


# vit


@pytest.mark.parametrize(("side", "tokens"), [(16, 16), (28, 49), (32, 64), (48, 64), (64, 64)])
def test_vit_gives_a_square_of_tokens(side: int, tokens: int) -> None:
    assert client_shape("vit_tiny", "block2", side) == (tokens, 8)


def test_vit_narrows_and_widens_each_token_by_a_linear_layer() -> None:
    client, server = build_halves(CIFAR, ModelOptions(name="vit_tiny", cut="embed"))
    assert [(m.in_features, m.out_features) for m in client if isinstance(m, nn.Linear)] == [(192, 8)]
    assert isinstance(server[0], nn.Linear)
    assert (server[0].in_features, server[0].out_features) == (8, 192)


def test_vit_tokens_follow_the_rows_of_the_image() -> None:
    client, _ = build_halves(CIFAR, ModelOptions(name="vit_tiny", cut="embed"))
    x = torch.zeros(2, 3, 32, 32)
    x[1, :, 4:8, 20:24] = 1
    z = client.eval()(x)
    changed = (z[0] != z[1]).any(1).nonzero().flatten().tolist()
    assert changed == [8 * 1 + 5]


def test_attention_is_torchs_own() -> None:
    torch.manual_seed(0)
    ours, theirs = SelfAttention(12, 3), nn.MultiheadAttention(12, 3, batch_first=True)
    theirs.load_state_dict(
        {
            "in_proj_weight": ours.to_qkv.weight,
            "in_proj_bias": ours.to_qkv.bias,
            "out_proj.weight": ours.project.weight,
            "out_proj.bias": ours.project.bias,
        }
    )
    x = torch.randn(2, 5, 12)
    torch.testing.assert_close(ours(x), theirs(x, x, x, need_weights=False)[0])


@pytest.mark.parametrize(
    ("side", "options", "message"),
    [
        (32, {"width": 200}, r"model\.width=200: vit_tiny has 3 heads"),
        (32, {"bottleneck": {"stride": 2}}, r"model\.bottleneck\.stride=2: vit_tiny gives tokens"),
        (30, {}, r"30x30 images do not divide into patches of 4 px"),
    ],
)
def test_vit_refuses_what_it_cannot_do(side: int, options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_halves(sized(side), ModelOptions.model_validate({"name": "vit_tiny", **options}))
