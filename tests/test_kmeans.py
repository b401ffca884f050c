"""The baseline's KMeans: refits, shrinkage and the class-index defect."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from torch import Tensor

from attncem.training.surrogates import build_surrogate
from attncem.training.surrogates.clusters import first_centres, lloyd, seed_centres
from attncem.training.surrogates.kmeans import KMeansCEM


def build(num_classes: int = 3, **options: Any) -> KMeansCEM:
    surrogate = build_surrogate("kmeans", feature_shape=(4,), num_classes=num_classes, noise_std=0.1, **options)
    assert isinstance(surrogate, KMeansCEM)
    return surrogate


def features(counts: list[int], *, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    z = 5 * y.unsqueeze(1) + torch.randn(len(y), 4, generator=generator, dtype=torch.float64)
    order = torch.randperm(len(y), generator=generator)
    return z[order].to(dtype), y[order]


@pytest.mark.parametrize("counts", [[70, 95, 80], [70, 1501, 80]], ids=["few", "many"])
def test_equals_scikit_learn_from_the_same_start(counts: list[int]) -> None:
    """Also where a class has so many samples that its sums are taken in parts."""
    z, y = features([90, 60, 75])
    surrogate = build(max_iterations=300).double()
    surrogate.refresh([(z, y)])
    z, y = features(counts, seed=1)
    start = surrogate.centres.clone()
    surrogate.refresh([(z[:50], y[:50]), (z[50:], y[50:])])
    for label in range(3):
        samples = z[y == label].numpy()
        other = KMeans(5, init=start[label].numpy(), n_init=1, max_iter=300, tol=0, algorithm="lloyd").fit(samples)
        np.testing.assert_allclose(surrogate.centres[label].numpy(), other.cluster_centers_, atol=1e-9)
        shares = np.bincount(other.labels_, minlength=5) / len(samples)
        np.testing.assert_allclose(surrogate.weights[label].numpy(), shares, atol=1e-12)
        for cluster in range(5):
            members = samples[other.labels_ == cluster]
            variance = np.square(members - members.mean(0)).mean()
            assert float(surrogate.variances[label, cluster]) == pytest.approx(variance)
    assert surrogate.class_counts.tolist() == counts


def test_the_correction_adds_what_few_samples_miss() -> None:
    """Sum of squares over N − K + 1 degrees of freedom, the last one the whole class's; a cluster of n misses 1/n."""
    z, y = features([7, 40, 12])
    plain, corrected = (build(num_clusters=3, small_sample_correction=on).double() for on in (False, True))
    for surrogate in (plain, corrected):
        surrogate.refresh([(z, y)])
    assert torch.equal(plain.variances, corrected.variances) and plain.pooled.eq(0).all()
    for label, count in enumerate([7, 40, 12]):
        within = count * float(plain.weights[label] @ plain.variances[label])
        whole = float(z[y == label].var(0).mean())
        assert float(corrected.pooled[label]) == pytest.approx((within + whole) / (count - 3 + 1))
        one = torch.full((1,), label), z[y == label][:1]
        cluster = int(corrected.explain(one[1], one[0])["shares"].argmax())
        share = float(plain.weights[label, cluster])
        before, after = (float(surrogate(one[1], one[0]).loss) / share for surrogate in (plain, corrected))
        added = float(corrected.pooled[label]) / (share * count)
        floor = 0.125 * 0.01 + 0.01
        assert floor * (math.exp(after) - math.exp(before)) == pytest.approx(added)


def test_many_samples_need_no_correction() -> None:
    z, y = features([5000, 5000, 5000])
    losses = []
    for on in (False, True):
        surrogate = build(small_sample_correction=on).double()
        surrogate.refresh([(z, y)])
        losses.append(float(surrogate(z[:300], y[:300]).loss))
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


def test_nobody_goes_to_a_centre_without_samples() -> None:
    z, y = features([2, 1, 40])
    surrogate = build()
    surrogate.refresh([(z, y)])
    shares = surrogate.explain(z, y)["shares"]
    assert (surrogate.weights[y][shares.bool()] > 0).all()


def test_before_the_first_refresh_the_loss_is_zero_with_a_graph() -> None:
    z, y = features([4, 4, 4])
    output = build()(z.requires_grad_(), y)
    output.loss.backward()
    assert output.loss == 0 and output.diagnostics["fitted"] == 0
    assert z.grad is not None and z.grad.abs().sum() == 0
    assert output.per_class.isnan().all()


def test_refresh_is_deterministic_and_ignores_the_global_generator() -> None:
    one, other = build(), build()
    torch.manual_seed(1)
    one.refresh([features([30, 20, 10])])
    torch.manual_seed(2)
    other.refresh([features([30, 20, 10])])
    assert torch.equal(one.centres, other.centres)


def test_missing_classes_keep_their_state_and_new_ones_are_seeded() -> None:
    z, y = features([30, 30, 30])
    surrogate = build()
    surrogate.refresh([(z[y != 2], y[y != 2])])
    before = surrogate.centres.clone()
    assert surrogate.class_counts.tolist() == [30, 30, 0]
    output = surrogate(z, y)
    assert output.per_class.isnan().tolist() == [False, False, True]
    assert float(output.diagnostics["skipped"]) == pytest.approx(1 / 3)
    surrogate.refresh([(z[y == 2], y[y == 2])])
    assert torch.equal(surrogate.centres[:2], before[:2])
    assert surrogate.class_counts.tolist() == [30, 30, 30]
    assert len(surrogate.centres[2].unique(dim=0)) == 5


def test_fewer_samples_than_clusters() -> None:
    z, y = features([2, 1, 40])
    surrogate = build()
    surrogate.refresh([(z, y)])
    assert torch.allclose(surrogate.weights.sum(1), torch.ones(3))
    assert (surrogate.weights[0] > 0).sum() == 2 and (surrogate.weights[1] > 0).sum() == 1
    assert surrogate.variances[:2].abs().max() < 1e-10
    assert surrogate(z, y).loss.isfinite()


def test_an_empty_cluster_keeps_its_centre_with_weight_zero() -> None:
    z, y = features([30], dtype=torch.float32)
    surrogate = build(1, num_clusters=3)
    surrogate.refresh([(z, y)])
    with torch.no_grad():
        surrogate.centres[0, 1] = 1e3
    surrogate.refresh([(z, y)])
    torch.testing.assert_close(surrogate.centres[0, 1], torch.full((4,), 1e3))
    assert surrogate.weights[0, 1] == 0 and surrogate.weights.sum() == pytest.approx(1)
    # Variances stay with their own cluster although the second is empty.
    assert surrogate.variances[0, 1] == 0 and surrogate.variances[0, 2] > 0


def test_shrinkage_by_hand() -> None:
    surrogate = build(1, num_clusters=1, gamma=0.01, var_threshold=0.125).double()
    surrogate.centres.zero_()
    surrogate.variances.fill_(0.5)
    surrogate.weights.fill_(1.0)
    surrogate.class_counts.fill_(100)
    surrogate.fitted.fill_(True)
    z = torch.full((2, 4), 2.0, dtype=torch.float64)
    output = surrogate(z, torch.zeros(2, dtype=torch.int64))
    assert float(output.diagnostics["shrinkage"]) == pytest.approx(0.2)
    assert float(output.loss) == pytest.approx(math.log(0.2 * 4 + 0.8 * 0.5 + 0.01) - math.log(0.125 * 0.01 + 0.01))
    surrogate.class_counts.fill_(20)
    assert float(surrogate(z, torch.zeros(2, dtype=torch.int64)).diagnostics["shrinkage"]) == pytest.approx(0.99)


def test_index_defect_reads_class_0_everywhere() -> None:
    z, y = features([30, 30, 30])
    changes = {}
    for defect in (False, True):
        surrogate = build(index_defect=defect)
        surrogate.refresh([(z, y)])
        for label in (0, 2):
            before = surrogate(z[y == 2][:4], y[y == 2][:4]).loss
            surrogate.variances[label] += 1
            changes[defect, label] = bool(surrogate(z[y == 2][:4], y[y == 2][:4]).loss != before)
    assert changes == {(False, 0): False, (False, 2): True, (True, 0): True, (True, 2): False}


def test_single_samples_are_kept_and_classes_count_alike() -> None:
    z, y = features([30, 30, 30])
    surrogate = build()
    surrogate.refresh([(z, y)])
    few = torch.cat([z[y == 0][:7], z[y == 1][:1]])
    output = surrogate(few, torch.tensor([0] * 7 + [1]))
    assert not output.per_class[:2].isnan().any()
    torch.testing.assert_close(output.loss, output.per_class[:2].mean())


def test_only_classes_not_seen_before_are_seeded() -> None:
    generator = torch.Generator().manual_seed(0)
    x, mask = torch.randn(2, 9, 3, generator=generator), torch.ones(2, 9, dtype=torch.bool)
    stored = torch.full((2, 2, 3), 7.0)
    assert first_centres(x, mask, stored, torch.tensor([True, True])) is stored
    centres = first_centres(x, mask, stored, torch.tensor([True, False]))
    assert torch.equal(centres[0], stored[0])
    assert torch.equal(centres[1], seed_centres(x, mask, 2)[1])


@pytest.mark.parametrize("held", [1, 2 * 24 * 4])
def test_clusters_a_few_at_a_time_give_the_same(monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    """One of the five clusters at a time, and two."""
    surrogate = build()
    surrogate.refresh([features([30, 20, 10])])
    z, y = features([8, 8, 8], seed=1)
    at_once = surrogate(z, y)
    monkeypatch.setattr("attncem.training.surrogates.kmeans.MANY_DIFFERENCES", held)
    torch.testing.assert_close(surrogate(z, y).loss, at_once.loss)


def test_seeds_are_samples_far_apart() -> None:
    """Two tight clumps: after the first seed the second comes from the other clump, distance decides."""
    clumps = torch.tensor([[0.0], [100.0]]).repeat_interleave(20, 0) + 1e-3 * torch.randn(40, 1)
    centres = seed_centres(clumps.unsqueeze(0), torch.ones(1, 40, dtype=torch.bool), 2)
    assert (centres.max() - centres.min()) > 90


def test_lloyd_ignores_padding() -> None:
    x = torch.randn(1, 20, 3, dtype=torch.float64)
    padded = torch.cat([x, torch.full((1, 7, 3), 50.0, dtype=torch.float64)], 1)
    mask = torch.arange(27).unsqueeze(0) < 20
    start = x[:, :4].clone()
    plain, _ = lloyd(x, mask[:, :20], start, 50)
    masked, _ = lloyd(padded, mask, start, 50)
    torch.testing.assert_close(plain, masked)


def test_chunks_of_classes_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    z, y = features([30, 20, 10])
    whole = build()
    whole.refresh([(z, y)])
    pieces = build()
    pieces.load_state_dict(whole.state_dict())
    monkeypatch.setattr("attncem.training.surrogates.clusters.CHUNK_ELEMENTS", 1)
    z, y = features([25, 25, 25], seed=3)
    whole_again = build()
    whole_again.load_state_dict(whole.state_dict())
    pieces.refresh([(z, y)])
    monkeypatch.undo()
    whole_again.refresh([(z, y)])
    torch.testing.assert_close(pieces.centres, whole_again.centres)
    torch.testing.assert_close(pieces.variances, whole_again.variances)
