"""What every network must keep at every cut."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
import torch
from torch import nn

from attncem.base.types import DatasetSpec
from attncem.config.options.channels import IdentityOptions
from attncem.config.options.model import ModelOptions
from attncem.models.channels import IdentityChannel
from attncem.models.networks import ARCHITECTURES, build_halves
from attncem.models.split import SplitModel
from attncem.testing import networks as laws
from attncem.testing.networks import GREY, NetworkCase, images

SMALL_CNN_WEIGHTS = {1: "6eaf5dcc671107ab", 2: "0a92b92eb96e1682", 3: "8fc58db5895807ab", 4: "9c0c296fd66dcb11"}
"""SHA-256 of the halves that version 0.1.0 built from seed 0, by cut."""


SIZES: dict[str, dict[str, Any]] = {"lean": {"macs": 3e5}}
"""Options that make a network small, where the width does not."""


def narrow(name: str, cut: str, **options: object) -> ModelOptions:
    """The network at a fraction of its width, so that a CPU runs it in milliseconds."""
    return case_of(name, cut).at(cut, **options)


def case_of(name: str, cut: str | None = None) -> NetworkCase:
    """A network for the shared laws."""
    return NetworkCase(name, cut, **SIZES.get(name, {"width": 4}))


CUTS = [(name, cut) for name in ARCHITECTURES for cut in case_of(name).cuts]


def halves(spec: DatasetSpec, options: ModelOptions, seed: int = 0) -> tuple[nn.Sequential, nn.Sequential]:
    torch.manual_seed(seed)
    return build_halves(spec, options)


def model(spec: DatasetSpec, options: ModelOptions, seed: int = 0) -> SplitModel:
    client, server = halves(spec, options, seed)
    return SplitModel(client, IdentityChannel(IdentityOptions()), server)


def fingerprint(*modules: nn.Module) -> str:
    digest = hashlib.sha256()
    for module in modules:
        for key, value in module.state_dict().items():
            digest.update(key.encode())
            digest.update(value.numpy().tobytes())
    return digest.hexdigest()[:16]


def test_small_cnn_has_the_weights_it_always_had() -> None:
    found = {cut: fingerprint(*halves(GREY, ModelOptions(cut=cut))) for cut in SMALL_CNN_WEIGHTS}
    assert found == SMALL_CNN_WEIGHTS
    assert fingerprint(*halves(GREY, ModelOptions(cut=2, width=16))) == found[2]


@pytest.mark.parametrize(("name", "cut"), CUTS)
@pytest.mark.parametrize("cutting", laws.CUTTINGS)
def test_the_halves_are_the_unsplit_network(name: str, cut: str, cutting: str) -> None:
    laws.equals_the_unsplit_network(case_of(name, cut), cut, cutting)


@pytest.mark.parametrize(("name", "cut"), CUTS)
def test_the_feature_has_one_shape_whatever_the_batch(name: str, cut: str) -> None:
    laws.the_feature_has_one_shape_whatever_the_batch(case_of(name, cut))


@pytest.mark.parametrize(("name", "cut"), CUTS)
def test_networks_stay_finite_in_bf16(name: str, cut: str) -> None:
    laws.it_stays_finite_in_bf16(case_of(name, cut))


@pytest.mark.parametrize(("name", "cut"), CUTS)
def test_a_seed_gives_the_weights_and_a_state_gives_the_model(name: str, cut: str) -> None:
    laws.a_seed_gives_the_weights_and_a_state_gives_the_model(case_of(name, cut))


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("side", [28, 32, 48, 64])
def test_every_network_takes_small_images_of_every_size(name: str, side: int) -> None:
    spec = DatasetSpec("any", (3, side, side), 5, mean=(0.5,) * 3, std=(0.2,) * 3)
    split = model(spec, narrow(name, "2")).eval()
    with torch.no_grad():
        assert split(images(spec, 2)).shape == (2, 5)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_unknown_cut_lists_the_cuts(name: str) -> None:
    laws.an_unknown_cut_lists_the_cuts(case_of(name))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_stage_names_are_unique_and_no_numbers(name: str) -> None:
    laws.stage_names_are_unique_and_no_numbers(case_of(name))


def test_the_help_names_every_network() -> None:
    text = ModelOptions.model_fields["name"].description or ""
    assert [name for name in ARCHITECTURES if name not in text] == []
