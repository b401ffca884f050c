"""Gaussian mixtures a class: refits against scikit-learn, the penalty by hand, limits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from torch import Tensor

from attncem.base.types import ConfigError
from attncem.training.surrogates import build_surrogate
from attncem.training.surrogates.clusters import lloyd, one_hot
from attncem.training.surrogates.gmm import GaussianMixtureCEM, Mixture, maximise, principal_axes


def build(num_classes: int = 3, *, size: int = 4, noise_std: float = 0.1, **options: Any) -> GaussianMixtureCEM:
    surrogate = build_surrogate("gmm", feature_shape=(size,), num_classes=num_classes, noise_std=noise_std, **options)
    assert isinstance(surrogate, GaussianMixtureCEM)
    return surrogate


def features(counts: list[int], *, size: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    z = 5 * y.unsqueeze(1) + torch.randn(len(y), size, generator=generator, dtype=torch.float64)
    order = torch.randperm(len(y), generator=generator)
    return z[order], y[order]


def kmeans_start(samples: Tensor, centres: Tensor, *, full: bool) -> Mixture:
    """The mixture that KMeans gives one class from ``centres`` [K, D], as [1, K, ...]."""
    x = samples.unsqueeze(0)
    mask = torch.ones(x.shape[:2], dtype=torch.bool)
    found, labels = lloyd(x, mask, centres.unsqueeze(0), 50)
    return maximise(x, one_hot(labels, mask, found), found, reg_covar=1e-6, full=full)


def scikit_learn(samples: Tensor, start: Mixture, steps: int, *, full: bool) -> GaussianMixture:
    covariances = covariances_of(start.factors[0])
    precisions = torch.linalg.inv(covariances) if full else 1 / covariances
    other = GaussianMixture(
        start.weights.shape[1],
        covariance_type="full" if full else "diag",
        weights_init=start.weights[0].numpy(),
        means_init=start.means[0].numpy(),
        precisions_init=precisions.numpy(),
        max_iter=steps,
        tol=0,
        reg_covar=1e-6,
    )
    return other.fit(samples.numpy())


def covariances_of(factors: Tensor) -> Tensor:
    return factors @ factors.transpose(1, 2) if factors.dim() == 3 else factors.square()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("covariance", ["diagonal", "full"])
@pytest.mark.parametrize("steps", [1, 20])
def test_equals_scikit_learn_from_the_same_start(covariance: str, steps: int) -> None:
    full = covariance == "full"
    options = {"covariance": covariance, "em_iterations": steps, "small_sample_correction": False}
    surrogate = build(num_clusters=3, **options).double()
    surrogate.refresh([features([90, 60, 75])])
    before = surrogate.means.clone()
    z, y = features([70, 95, 80], seed=1)
    surrogate.refresh([(z[:50], y[:50]), (z[50:], y[50:])])
    for label in range(3):
        samples = z[y == label]
        other = scikit_learn(samples, kmeans_start(samples, before[label], full=full), steps, full=full)
        np.testing.assert_allclose(surrogate.means[label].numpy(), other.means_, atol=1e-9)
        np.testing.assert_allclose(surrogate.weights[label].numpy(), other.weights_, atol=1e-10)
        np.testing.assert_allclose(covariances_of(surrogate.factors[label]).numpy(), other.covariances_, atol=1e-9)
    assert surrogate.class_counts.tolist() == [70, 95, 80]


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_the_correction_adds_what_few_samples_miss(covariance: str) -> None:
    z, y = features([30, 8, 5])
    plain, corrected = (
        build(num_clusters=3, covariance=covariance, small_sample_correction=on).double() for on in (False, True)
    )
    for surrogate in (plain, corrected):
        surrogate.refresh([(z, y)])
    torch.testing.assert_close(corrected.means, plain.means)
    for label, count in enumerate([30, 8, 5]):
        hits = plain.weights[label] * count
        covariances = covariances_of(plain.factors[label])
        whole = torch.cov(z[y == label].T)
        within = torch.einsum("k,k...->...", hits, covariances)
        pooled = (within + (whole if covariance == "full" else whole.diagonal())) / (
            count - hits.clamp_max(1).sum() + 1
        )
        torch.testing.assert_close(corrected.pooled[label], pooled)
        for k in range(3):
            expected = covariances[k] + pooled / hits[k].clamp_min(1)
            torch.testing.assert_close(covariances_of(corrected.factors[label])[k], expected)


@pytest.mark.parametrize("full", [False, True], ids=["diagonal", "full"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums_in_parts_give_the_same(monkeypatch: pytest.MonkeyPatch, full: bool, dtype: torch.dtype) -> None:
    """A class of many samples is summed in parts, as in kmeans."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 2048, 6, generator=generator, dtype=torch.float64).to(dtype)
    shares = torch.randn(2, 2048, 3, generator=generator, dtype=torch.float64).softmax(2).to(dtype)
    means = torch.zeros(2, 3, 6, dtype=dtype)
    in_parts = maximise(x, shares, means, reg_covar=1e-6, full=full)
    monkeypatch.setattr("attncem.training.surrogates.clusters.PIECES", 1)
    at_once = maximise(x, shares, means, reg_covar=1e-6, full=full)
    assert full or dtype == torch.float64 or not torch.equal(in_parts.factors, at_once.factors), "no part was made"
    for one, other in zip(in_parts, at_once, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6 if dtype == torch.float32 else 1e-12)


def test_refits_start_from_the_stored_means() -> None:
    one, other = build().double(), build().double()
    one.refresh([features([60, 60, 60])])
    other.load_state_dict(one.state_dict())
    other.means.copy_(one.means.flip(1))
    for surrogate in (one, other):
        surrogate.refresh([features([60, 60, 60], seed=1)])
    torch.testing.assert_close(other.means, one.means.flip(1))


def test_float32_refits_equal_float64_ones() -> None:
    one, other = build(num_clusters=2), build(num_clusters=2).double()
    for surrogate in (one, other):
        surrogate.refresh([features([60, 60, 60])])
    for small, large in zip(one.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(small.double(), large.double(), rtol=1e-3, atol=1e-3)


def test_before_the_first_refresh_the_loss_is_zero_with_a_graph() -> None:
    z, y = features([4, 4, 4])
    for options in ({}, {"covariance": "full"}, {"pca_dim": 2}):
        z.grad = None
        output = build(**options)(z.requires_grad_(), y)
        output.loss.backward()
        assert output.loss == 0 and output.diagnostics["fitted"] == 0
        assert z.grad is not None and z.grad.abs().sum() == 0
        assert output.per_class.isnan().all()


def test_refresh_is_deterministic_and_ignores_the_global_generator() -> None:
    for options in ({}, {"pca_dim": 2}):
        one, other = build(**options), build(**options)
        torch.manual_seed(1)
        one.refresh([features([30, 20, 10])])
        torch.manual_seed(2)
        other.refresh([features([30, 20, 10])])
        assert all(torch.equal(a, b) for a, b in zip(one.buffers(), other.buffers(), strict=True))


def test_missing_classes_keep_their_state_and_new_ones_are_seeded() -> None:
    z, y = features([30, 30, 30])
    surrogate = build()
    surrogate.refresh([(z[y != 2], y[y != 2])])
    before = surrogate.factors.clone()
    output = surrogate(z, y)
    assert output.per_class.isnan().tolist() == [False, False, True]
    assert float(output.diagnostics["skipped"]) == pytest.approx(1 / 3)
    surrogate.refresh([(z[y == 2], y[y == 2])])
    assert torch.equal(surrogate.factors[:2], before[:2])
    assert surrogate.class_counts.tolist() == [30, 30, 30]


def test_missing_classes_are_forgotten_when_the_principal_directions_change() -> None:
    z, y = features([30, 30, 30])
    surrogate = build(pca_dim=2)
    surrogate.refresh([(z, y)])
    surrogate.refresh([(z[y != 2], y[y != 2])])
    assert surrogate.class_counts.tolist() == [30, 30, 0]


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_fewer_samples_than_components(covariance: str) -> None:
    z, y = features([2, 1, 40])
    z = z.float()
    surrogate = build(covariance=covariance)
    surrogate.refresh([(z, y)])
    assert all(buffer.isfinite().all() for buffer in surrogate.buffers())
    assert torch.allclose(surrogate.weights.sum(1), torch.ones(3))
    assert (surrogate.weights[0] > 0).sum() == 2 and (surrogate.weights[1] > 0).sum() == 1
    output = surrogate(z.requires_grad_(), y)
    output.loss.backward()
    assert output.loss.isfinite() and z.grad is not None and z.grad.isfinite().all()


def by_hand(**options: Any) -> GaussianMixtureCEM:
    """One class, one component at 0 with variance 0.5."""
    surrogate = build(1, num_clusters=1, **options).double()
    surrogate.factors.mul_(math.sqrt(0.5))
    surrogate.weights.fill_(1.0)
    surrogate.class_counts.fill_(100)
    surrogate.fitted.fill_(True)
    return surrogate


def test_shrinkage_and_floor_by_hand() -> None:
    z = torch.full((2, 4), 2.0, dtype=torch.float64)
    y = torch.zeros(2, dtype=torch.int64)
    mixed = 0.2 * 4 + 0.8 * 0.5
    output = by_hand()(z, y)
    assert float(output.diagnostics["shrinkage"]) == pytest.approx(0.2)
    assert float(output.loss) == pytest.approx(math.log(mixed) - math.log(0.125 * 0.01 + 1e-6))
    assert float(by_hand(variance_floor=0.05)(z, y).loss) == pytest.approx(math.log(mixed) - math.log(0.05))
    whole = by_hand(variance_floor=0.05, per_dimension_log=False)(z, y).loss
    assert float(whole) == pytest.approx(4 * math.log(mixed) - math.log(0.05))
    # All four dimensions move together: one large direction, three of the stored variance.
    full = by_hand(variance_floor=0.05, covariance="full")(z, y).loss
    expected = (math.log(0.2 * 16 + 0.8 * 0.5) + 3 * math.log(0.8 * 0.5)) / 4 - math.log(0.05)
    assert float(full) == pytest.approx(expected)


def test_the_documents_form_is_off_where_variances_are_small() -> None:
    """Without /D a determinant of D factors meets the floor of one: 0.5 ⁶⁴ is far below any τ."""
    z, y = torch.full((4, 64), 0.7, dtype=torch.float64), torch.zeros(4, dtype=torch.int64)
    assert by_hand(size=64)(z, y).loss > 5
    surrogate = by_hand(size=64, per_dimension_log=False)
    assert surrogate(z, y).loss == 0
    assert "per_dimension_log" in surrogate.caution and not by_hand().caution


@pytest.mark.parametrize("options", [{}, {"covariance": "full"}, {"pca_dim": 3}], ids=str)
def test_gradient_is_that_of_the_scatter_alone(options: dict[str, Any]) -> None:
    """Finite differences with one component, where the responsibilities are constant by themselves."""
    z, y = features([9, 8, 7])
    surrogate = build(num_clusters=1, **options).double()
    surrogate.refresh([(z, y)])
    assert torch.autograd.gradcheck(lambda x: surrogate(x, y[:10]).loss, z[:10].clone().requires_grad_())


def test_single_samples_are_skipped_and_classes_count_by_their_share() -> None:
    z, y = features([30, 30, 30])
    surrogate = build().double()
    surrogate.refresh([(z, y)])
    few = torch.cat([z[y == 0][:6], z[y == 1][:3], z[y == 2][:1]])
    output = surrogate(few, torch.tensor([0] * 6 + [1] * 3 + [2]))
    assert output.per_class.isnan().tolist() == [False, False, True]
    torch.testing.assert_close(output.loss, 0.6 * output.per_class[0] + 0.3 * output.per_class[1])


def test_principal_axes_equal_scikit_learn() -> None:
    generator = torch.Generator().manual_seed(0)
    spectrum = 0.7 ** torch.arange(30, dtype=torch.float64)
    x = torch.randn(400, 30, generator=generator, dtype=torch.float64) * spectrum
    x = x @ torch.linalg.qr(torch.randn(30, 30, generator=generator, dtype=torch.float64)).Q
    axes = principal_axes(x - x.mean(0), 5)
    other = torch.from_numpy(PCA(5, svd_solver="full").fit(x.numpy()).components_)
    torch.testing.assert_close((axes * other).sum(1).abs(), torch.ones(5, dtype=torch.float64), rtol=1e-9, atol=0)


def test_all_principal_directions_with_full_covariances_change_nothing() -> None:
    z, y = features([40, 40, 40])
    losses = []
    for options in ({}, {"pca_dim": 4}):
        surrogate = build(covariance="full", num_clusters=1, **options).double()
        surrogate.refresh([(z, y)])
        losses.append(surrogate(z[:20], y[:20]).loss)
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-9, atol=0)


def test_limits_are_named() -> None:
    with pytest.raises(ConfigError, match=r"covariance=full: z has 300 dimensions.* limited to 256; set .*pca_dim"):
        build(size=300, covariance="full")
    assert build(size=300, covariance="full", pca_dim=16).factors.shape == (3, 5, 16, 16)
    with pytest.raises(ConfigError, match=r"pca_dim=5: must be at most 4, the number of features"):
        build(pca_dim=5)


def test_a_singular_full_covariance_is_refused_with_a_way_out() -> None:
    z, y = features([3, 3, 3])
    with pytest.raises(ValueError, match=r"singular in float64; raise surrogate\.reg_covar"):
        build(covariance="full", num_clusters=1, reg_covar=1e-30).double().refresh([(1e3 * z, y)])


def test_chunks_of_classes_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = build()
    whole.refresh([features([30, 20, 10])])
    pieces = build()
    pieces.load_state_dict(whole.state_dict())
    again = features([25, 25, 25], seed=3)
    with monkeypatch.context() as patch:
        patch.setattr("attncem.training.surrogates.clusters.CHUNK_ELEMENTS", 1)
        pieces.refresh([again])
    whole.refresh([again])
    for one, other in zip(pieces.buffers(), whole.buffers(), strict=True):
        torch.testing.assert_close(one, other)
