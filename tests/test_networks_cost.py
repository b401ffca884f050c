from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from attncem.base.types import DatasetSpec
from attncem.config.options.channels import IdentityOptions
from attncem.config.options.model import ModelOptions
from attncem.models.channels import IdentityChannel
from attncem.models.cost import Cost, count_cost
from attncem.models.networks import ARCHITECTURES, build_halves
from attncem.models.split import SplitModel

CIFAR = DatasetSpec("cifar", (3, 32, 32), 10, mean=(0.5,) * 3, std=(0.25,) * 3)
GREY = DatasetSpec("grey", (1, 28, 28), 10, mean=(0.3,), std=(0.4,))


def split(client: nn.Module, server: nn.Module | None = None) -> SplitModel:
    return SplitModel(client, IdentityChannel(IdentityOptions()), server)


def built(spec: DatasetSpec, **options: object) -> SplitModel:
    return split(*build_halves(spec, ModelOptions.model_validate(options)))


def conv(side: int, inputs: int, outputs: int) -> int:
    return side * side * 9 * inputs * outputs


def test_vgg_at_cut_4_counted_by_hand() -> None:
    client = conv(32, 3, 64) + conv(16, 64, 128) + conv(8, 128, 8)
    convolutions = conv(8, 8, 128) + conv(8, 128, 256) + conv(8, 256, 256) + conv(4, 256, 512) + conv(4, 512, 512)
    server = convolutions + 2 * conv(2, 512, 512) + 2 * 512 * 512 + 512 * 10
    assert count_cost(built(CIFAR, name="vgg11_bn", cut=4), CIFAR.shape) == Cost(
        client_macs=client,
        server_macs=server,
        client_parameters=85_256,
        server_parameters=9_159_296 + 530_442,
        bytes_per_query=4 * 512,
        client_activation_bytes=4 * 64 * (32 * 32 + 16 * 16),  # the first pooling
    )


class Residual(nn.Module):
    """x plus a branch, or after it; `first` makes a second branch before."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        out = x
        for branch in self.branches:
            out = out + branch(x)
        return out


MAP = 4 * 28 * 28
"""Bytes of one channel of an image of 28 px."""


@pytest.mark.parametrize(
    ("layer", "channels"),
    [
        (nn.Identity(), 1),
        (nn.Conv2d(1, 6, 1), 1 + 6),
        (nn.Sequential(nn.Conv2d(1, 6, 1), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 2, 1)), 6 + 2),
        (nn.Sequential(nn.Conv2d(1, 6, 1), nn.MaxPool2d(2)), 6 + 6 / 4),
        # the image waits while the branch computes; the sum takes the place of the branch
        (Residual(nn.Sequential(nn.Conv2d(1, 6, 1), nn.GELU(), nn.Conv2d(6, 1, 1))), 1 + 6 + 1),
        # the sum of the image and the first branch waits beside the image, which the second branch reads
        (Residual(nn.Conv2d(1, 1, 3, padding=1), nn.Sequential(nn.Conv2d(1, 6, 1), nn.Conv2d(6, 1, 1))), 6 + 1 + 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_peak_activations_counted_by_hand(layer: nn.Module, channels: float) -> None:
    assert count_cost(split(layer), GREY.shape).client_activation_bytes == channels * MAP


def test_the_thin_client_costs_no_more_than_vggs_and_leaves_the_server_as_it_is() -> None:
    def separable(side: int, inputs: int, outputs: int) -> int:
        return side * side * inputs * (9 + outputs)

    thin, vgg = (count_cost(built(CIFAR, name=name, cut=4), CIFAR.shape) for name in ("thin_vgg11_bn", "vgg11_bn"))
    widening = conv(16, 3, 32) + separable(16, 32, 64) + separable(8, 64, 128)
    assert thin.client_macs == widening + 17 * separable(8, 128, 128) + conv(8, 128, 8)
    assert 0.99 * vgg.client_macs < thin.client_macs <= vgg.client_macs
    assert (thin.server_macs, thin.server_parameters) == (vgg.server_macs, vgg.server_parameters)
    assert thin.bytes_per_query == vgg.bytes_per_query


def test_small_cnn_counted_by_hand() -> None:
    client = conv(28, 1, 16) + conv(14, 16, 32) + conv(7, 32, 8)
    server = conv(7, 8, 32) + conv(7, 32, 64) + conv(7, 64, 64) + conv(3, 64, 128) + 128 * 10
    cost = count_cost(built(GREY, cut=2), GREY.shape)
    assert (cost.client_macs, cost.server_macs, cost.bytes_per_query) == (client, server, 4 * 8 * 7 * 7)
    weights = 9 * 16 + 32 + 9 * 16 * 32 + 64
    assert cost.client_parameters == weights + 9 * 32 * 8 + 8


def test_vit_counted_by_hand() -> None:
    block = 64 * 12 * 192 * 192 + 2 * 64 * 64 * 192
    cost = count_cost(built(CIFAR, name="vit_tiny", cut="block1"), CIFAR.shape)
    assert cost.client_macs == 64 * 48 * 192 + block + 64 * 192 * 8
    assert cost.server_macs == 64 * 8 * 192 + 5 * block + 192 * 10
    assert cost.bytes_per_query == 4 * 64 * 8


@pytest.mark.parametrize(("name", "spec"), list(product(ARCHITECTURES, [CIFAR, GREY])))
def test_the_count_is_that_of_torchs_own_counter(name: str, spec: DatasetSpec) -> None:
    size = {"macs": 1e6} if name == "lean" else {"width": 8}
    model = built(spec, name=name, cut=2, **size).eval()
    cost = count_cost(model, spec.shape)
    # torch's counter does not see the CPU's fused attention, only its products written out
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, *spec.shape))
    assert 2 * (cost.client_macs + cost.server_macs) == counter.get_total_flops()


class Attending(nn.Module):
    """Somebody's own encoder around torch's attention layer."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(28, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.squeeze(1)
        out: Tensor = self.attention(rows, value=rows[:, :7], need_weights=False, key=rows[:, :7])[0]
        return out


def test_torchs_attention_is_counted() -> None:
    projections = 28 * 28 * (28 + 7 + 7 + 28)
    assert count_cost(split(Attending()), GREY.shape).client_macs == projections + 2 * 28 * 7 * 28


def test_torchs_transformer_layer_is_counted_whole() -> None:
    layer = nn.Sequential(nn.Flatten(1, 2), nn.TransformerEncoderLayer(28, 4, 50, batch_first=True))
    block = 28 * (4 * 28 * 28 + 2 * 28 * 50) + 2 * 28 * 28 * 28
    assert count_cost(split(layer), GREY.shape).client_macs == block


@pytest.mark.parametrize(
    ("layer", "macs"),
    [
        (nn.Conv2d(1, 6, 3, padding=1, stride=2), 14 * 14 * 9 * 6),
        (nn.ConvTranspose2d(1, 6, 3, stride=2), 28 * 28 * 9 * 6),
        (nn.Linear(28, 5), 28 * 28 * 5),
        (nn.Flatten(), 0),
    ],
)
def test_layers_counted_by_hand(layer: nn.Module, macs: int) -> None:
    assert count_cost(split(layer), GREY.shape).client_macs == macs


def test_grouped_convolutions_count_their_groups() -> None:
    grouped = nn.Sequential(nn.Conv2d(1, 4, 1), nn.Conv2d(4, 8, 3, padding=1, groups=4))
    assert count_cost(split(grouped), GREY.shape).client_macs == 28 * 28 * (4 + 9 * 8)


def test_a_layer_called_twice_counts_twice() -> None:
    layer = nn.Linear(28, 28)
    cost = count_cost(split(nn.Sequential(layer, layer)), GREY.shape)
    assert (cost.client_macs, cost.client_parameters) == (2 * 28**3, 28 * 29)


def test_an_encoder_alone_has_no_server_to_count() -> None:
    cost = count_cost(split(nn.Linear(28, 5)), GREY.shape)
    assert (cost.server_macs, cost.server_parameters) == (0, 0)


def test_counting_leaves_no_trace() -> None:
    model = built(GREY, cut=2)
    model.encoder[1].eval()  # type: ignore[index]
    modes = [module.training for module in model.modules()]
    state = {key: value.clone() for key, value in model.state_dict().items()}
    count_cost(model, GREY.shape)
    assert [module.training for module in model.modules()] == modes
    assert not [module for module in model.modules() if module._forward_hooks]
    assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())
