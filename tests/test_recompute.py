"""What a surrogate keeps for the backward pass at a large feature, and that computing it again changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from attncem.training.surrogates import SURROGATES, Surrogate, build_surrogate, recompute

LARGE_SHAPE = (512, 7, 7)
CASES: list[tuple[str, dict[str, Any]]] = [
    ("none", {}),
    ("kmeans", {}),
    ("gmm", {}),
    ("capacity", {}),
    ("logdet", {}),
    ("gated", {}),
    ("gated", {"learn": "fit"}),
    ("gated", {"variant": "000"}),
    ("gated", {"variant": "002"}),
    ("gated", {"variant": "004"}),
    ("gated", {"projection": "linear", "variant": "002"}),
    ("slot", {}),
    ("slot", {"learn": "worst_case"}),
    ("slot", {"statistic": "hinge", "learn": "penalty", "weights_gradient": "through"}),
    ("slot", {"statistic": "softplus", "dimension_gate": True, "snr_gate": True, "class_gate": True}),
    ("slot", {"variant": "001"}),
    ("slot", {"variant": "003"}),
    ("slot", {"projection": "linear"}),
    ("slot", {"tokens": "spatial"}),
    ("slot", {"tokens": "spatial", "learn": "worst_case", "weights_gradient": "through"}),
    ("hybrid", {}),
    ("hybrid", {"variant": "000"}),
]


def make(name: str, options: dict[str, Any], shape: tuple[int, ...], **size: int) -> tuple[Surrogate, Tensor, Tensor]:
    """A surrogate at work (classes marked where it marks any) and a batch that wants a gradient."""
    torch.manual_seed(0)
    classes, count = size.get("num_classes", 10), size.get("count", 128)
    surrogate = build_surrogate(name, feature_shape=shape, num_classes=classes, noise_std=0.1, **options)
    z, y = torch.rand(count, *shape), torch.arange(count) % classes
    if name == "hybrid":
        surrogate(z, y)
        surrogate.refresh([])
    return surrogate, z.requires_grad_(), y


def kept_bytes(surrogate: Surrogate, z: Tensor, y: Tensor) -> int:
    """Bytes saved for the backward pass, beside z and the surrogate's own weights and buffers."""
    own = {t.untyped_storage().data_ptr() for t in (z, y, *surrogate.parameters(), *surrogate.buffers())}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept.setdefault(tensor.untyped_storage().data_ptr(), tensor)  # held: no address comes twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        surrogate(z, y)
    return sum(tensor.untyped_storage().nbytes() for address, tensor in kept.items() if address not in own)


def test_every_surrogate_is_measured() -> None:
    assert {name for name, _ in CASES} == set(SURROGATES)


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_at_512x7x7_and_batch_128_little_is_kept(name: str, options: dict[str, Any]) -> None:
    surrogate, z, y = make(name, options, LARGE_SHAPE)
    assert sum(parameter.numel() for parameter in surrogate.parameters()) <= 1_000_000
    assert kept_bytes(surrogate, z, y) <= 100e6


def test_without_recomputing_it_would_be_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recompute, "LARGE", 2**62)
    assert kept_bytes(*make("slot", {}, LARGE_SHAPE)) > 150e6


SMALL = {"slot_dim": 8, "num_heads": 2, "num_slots": 3}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gated", {}),
        ("gated", {"learn": "fit"}),
        ("gated", {"variant": "002"}),
        ("slot", SMALL),
        ("slot", {**SMALL, "learn": "worst_case"}),
        ("slot", {**SMALL, "variant": "001", "early_shut_off": False}),
        ("slot", {**SMALL, "tokens": "spatial", "weights_gradient": "through"}),
        ("slot", {**SMALL, "tokens": "spatial", "dropout": 0.5}),
        ("slot", {**SMALL, "statistic": "softplus", "dimension_gate": True, "snr_gate": True}),
        ("hybrid", {"slot": SMALL}),
    ],
    ids=str,
)
def test_what_is_computed_again_is_the_same(
    name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gradients(limit: int) -> list[Tensor]:
        monkeypatch.setattr(recompute, "LARGE", limit)
        surrogate, z, y = make(name, options, (4, 2, 2), count=24, num_classes=4)
        torch.manual_seed(1)
        output = surrogate(z, y)
        total = output.loss if output.fit_loss is None else output.loss + output.fit_loss
        total.backward()
        assert z.grad is not None
        own = [parameter.grad for parameter in surrogate.parameters() if parameter.grad is not None]
        return [total.detach(), z.grad, *own]

    kept, again = gradients(2**62), gradients(0)
    assert len(kept) == len(again) > 2
    assert all(torch.equal(one, other) for one, other in zip(kept, again, strict=True))
