"""The log-determinant by the Gram matrix against the covariance itself."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from attncem.training.surrogates import build_surrogate
from attncem.training.surrogates.base import Surrogate
from attncem.training.surrogates.logdet import class_logdets
from attncem.training.surrogates.moments import group_by_class


def build(
    size: int, *, name: str = "logdet", num_classes: int = 3, noise_std: float = 0.5, **options: Any
) -> Surrogate:
    return build_surrogate(name, feature_shape=(size,), num_classes=num_classes, noise_std=noise_std, **options)


def features(count: int, size: int, *, num_classes: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(size, size, generator=generator, dtype=torch.float64)
    z = torch.randn(count, size, generator=generator, dtype=torch.float64) @ mixing
    y = torch.randint(num_classes, (count,), generator=generator)
    return z + y.unsqueeze(1), y


@pytest.mark.parametrize(("count", "size"), [(60, 4), (12, 40)], ids=["more samples", "more dimensions"])
def test_equals_the_determinant_of_the_covariance(count: int, size: int) -> None:
    z, y = features(count, size)
    found = class_logdets(z, group_by_class(y, 3, z.dtype), 0.5)
    for label in range(3):
        covariance = torch.cov(z[y == label].T, correction=0)
        expected = torch.linalg.slogdet(torch.eye(size, dtype=z.dtype) + covariance / 0.25).logabsdet
        torch.testing.assert_close(found[label], expected, rtol=1e-11, atol=0)


def test_gradient_is_that_of_finite_differences() -> None:
    z, y = features(9, 5)
    surrogate = build(5).double()
    assert torch.autograd.gradcheck(lambda x: surrogate(x, y).loss, z.requires_grad_())


def test_equals_capacity_in_one_dimension_and_never_exceeds_it() -> None:
    z, y = features(40, 1)
    torch.testing.assert_close(build(1)(z, y).loss, build(1, name="capacity")(z, y).loss, rtol=1e-12, atol=0)
    z, y = features(40, 6)
    assert 0 < build(6)(z, y).loss < build(6, name="capacity")(z, y).loss


def test_single_samples_have_no_spread_and_no_gradient() -> None:
    z, _ = features(3, 4)
    output = build(4)(z.requires_grad_(), torch.arange(3))
    output.loss.backward()
    assert output.loss == 0 and output.diagnostics["skipped"] == 1
    assert z.grad is not None and z.grad.abs().sum() == 0


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_float32_features_are_enough(scale: float) -> None:
    z, y = features(20, 30)
    z = (scale * z).float().requires_grad_()
    exact = z.detach().double().requires_grad_()
    surrogate = build(30)
    one, other = surrogate(z, y).loss, surrogate(exact, y).loss
    one.backward()
    other.backward()
    assert z.grad is not None and exact.grad is not None
    torch.testing.assert_close(one.double(), other, rtol=1e-6, atol=0)
    torch.testing.assert_close(z.grad.double(), exact.grad, rtol=1e-5, atol=1e-5 * float(exact.grad.abs().max()))


def test_a_factorisation_that_fails_gives_nan_and_not_a_number_that_looks_right() -> None:
    z, y = features(12, 4)
    z[0] = math.inf
    assert build(4)(z, y).loss.isnan()
