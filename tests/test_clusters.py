"""What the refits of kmeans and gmm refuse alike."""

from __future__ import annotations

import math

import pytest
import torch

from attncem.training.surrogates import build_surrogate
from attncem.training.surrogates.base import Surrogate

both = pytest.mark.parametrize("name", ["kmeans", "gmm"])
Z, Y = torch.randn(15, 4, generator=torch.Generator().manual_seed(0)), torch.arange(15) % 3


def build(name: str, num_classes: int = 3) -> Surrogate:
    return build_surrogate(name, feature_shape=(4,), num_classes=num_classes, noise_std=0.1)


@both
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_features_that_are_not_finite_are_refused(name: str, value: float) -> None:
    z = Z.clone()
    z[3, 1] = value
    with pytest.raises(ValueError, match="NaN or infinity"):
        build(name).refresh([(z, Y)])


@both
def test_a_run_from_before_the_correction_is_read(name: str) -> None:
    surrogate = build(name)
    surrogate.refresh([(Z, Y)])
    state = surrogate.state_dict()
    del state["pooled"]
    other = build(name)
    other.load_state_dict(state)
    assert not other.get_buffer("pooled").any()
    assert other(Z, Y).loss < surrogate(Z, Y).loss
    with pytest.raises(RuntimeError, match="Missing key"):
        other.load_state_dict({})


@both
def test_wrong_features_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="at least one"):
        build(name).refresh([])
    with pytest.raises(ValueError, match="labels from 0 to 1, got 0 to 2"):
        build(name, 2).refresh([(Z, Y)])
    with pytest.raises(ValueError, match="z: expected shape"):
        build(name).refresh([(Z[:, :3], Y)])
