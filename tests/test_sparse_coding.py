"""The sparse coding layer at the end of the client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from attncem.base.progress import silent
from attncem.base.types import ConfigError
from attncem.config.loading.load import load_config
from attncem.config.options.channels import IdentityOptions
from attncem.config.options.model import ModelOptions
from attncem.data.specs import DATASETS
from attncem.judging.opening import open_run
from attncem.models.channels import IdentityChannel
from attncem.models.cost import count_cost
from attncem.models.networks import build_halves
from attncem.models.sparse_coding import SparseCoding
from attncem.models.split import SplitModel, count_parameters, feature_shape
from attncem.training.train import train

CIFAR, GREY = DATASETS["cifar10"], DATASETS["fashion_mnist_mini"]


def layer(shape: tuple[int, ...] = (3, 2, 2), threshold: float = 0.3) -> SparseCoding:
    torch.manual_seed(0)
    return SparseCoding(shape, threshold)


def client(**options: Any) -> nn.Sequential:
    torch.manual_seed(0)
    return build_halves(CIFAR, ModelOptions.model_validate({"name": "vgg11_bn", "cut": 4, **options}))[0]


def test_by_hand() -> None:
    own, z = layer(), 2 * torch.randn(5, 3, 2, 2)
    w = own.dictionary.detach()
    found = own(z).detach()
    for sample, out in zip(z.flatten(1), found.flatten(1), strict=True):
        codes = torch.tensor([float(row @ sample) for row in w])
        shrunk = torch.tensor([u - 0.3 if u > 0.3 else u + 0.3 if u < -0.3 else 0.0 for u in codes.tolist()])
        torch.testing.assert_close(out, sum(u * row for u, row in zip(shrunk, w, strict=True)))
    assert found.shape == z.shape


def test_rows_start_with_norm_one_and_get_a_gradient() -> None:
    own = layer()
    torch.testing.assert_close(own.dictionary.detach().norm(dim=1), torch.ones(12))
    own(torch.randn(4, 3, 2, 2)).square().sum().backward()
    assert own.dictionary.grad is not None and own.dictionary.grad.any()


def test_weak_codes_vanish() -> None:
    assert not layer(threshold=100.0)(torch.randn(4, 3, 2, 2)).any()
    own, z = layer(threshold=0.0), torch.randn(4, 12)
    w = own.dictionary.detach()
    torch.testing.assert_close(own(z).detach(), z @ w.T @ w)


def test_the_baselines_client() -> None:
    plain, coded = client(), client(sparse_coding={"threshold": 0.01})
    assert (count_parameters(plain), count_parameters(coded)) == (85_256, 347_400)
    assert [type(part).__name__ for part in coded][-3:] == ["Conv2d", "SparseCoding", "Sigmoid"]
    assert feature_shape(coded, CIFAR.shape) == (8, 8, 8)


def test_its_cost_is_counted() -> None:
    def macs(encoder: nn.Module) -> int:
        return count_cost(SplitModel(encoder, IdentityChannel(IdentityOptions()), None), CIFAR.shape).client_macs

    assert macs(client(sparse_coding={})) - macs(client()) == 2 * 512 * 512


@pytest.mark.parametrize(
    "name", ["small_cnn", "vgg11_bn", "thin_vgg11_bn", "resnet20", "resnet18", "mobilenet_v2", "vit_tiny"]
)
def test_maps_and_tokens(name: str) -> None:
    given = {"name": name, "cut": 1 if name == "vit_tiny" else 4, "width": 64 if name == "vit_tiny" else 8}
    options = ModelOptions.model_validate({**given, "sparse_coding": {}, "bottleneck": {"channels": 2}})
    encoder, server = build_halves(GREY, options)
    z = encoder(torch.rand(3, *GREY.shape))
    assert server(z).shape == (3, 10)
    assert z.isfinite().all() and float(z.detach().min()) >= 0 and float(z.detach().max()) <= 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_precision(dtype: torch.dtype) -> None:
    own, z = layer().to(dtype), torch.randn(4, 3, 2, 2, dtype=dtype)
    assert own(z).dtype == dtype and own(z).isfinite().all()


def test_too_many_features_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"model.sparse_coding: z has 8192 values here.*at most 4096"):
        client(sparse_coding={}, bottleneck=None)
    with pytest.raises(ConfigError, match=r"model.sparse_coding.threshold"):
        load_config(None, ["model.sparse_coding.threshold=-1"])


def test_it_trains_and_is_restored(tmp_path: Path, tiny: dict[str, Any]) -> None:
    settings = {**tiny, "model.sparse_coding.threshold": 0.05, "training.epochs": 1}
    run = train("demo-none", settings, out=tmp_path / "run", progress=silent)
    opened = open_run(run)
    model, checkpoint = opened.model, opened.checkpoint
    (own,) = [part for part in model.encoder.modules() if isinstance(part, SparseCoding)]
    assert own.threshold == 0.05
    (key,) = [key for key in checkpoint.weights["client"] if key.endswith("dictionary")]
    assert torch.equal(own.dictionary, checkpoint.weights["client"][key])
    assert (own.dictionary.norm(dim=1) - 1).abs().max() > 1e-4, "it has learnt"
