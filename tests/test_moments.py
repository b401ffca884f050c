"""Class moments: groups, weights and their numerics."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attncem.training.surrogates import moments


def labelled(num_classes: int, batch: int = 24, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(num_classes, (batch,), generator=generator)
    return torch.randn(batch, 7, generator=generator, dtype=torch.float64), y


@pytest.mark.parametrize("num_classes", [1, 3, 24, 100])
def test_moments_equal_torch_class_by_class(num_classes: int) -> None:
    x, y = labelled(num_classes)
    groups = moments.group_by_class(y, num_classes, x.dtype)
    mean, variance = moments.class_moments(x, groups)
    assert groups.counts.shape == (min(24, num_classes),)
    for group, label in enumerate(groups.class_of_group.tolist()):
        samples = x[y == label]
        assert len(samples) == groups.counts[group]
        if len(samples):
            torch.testing.assert_close(mean[group], samples.mean(0))
            torch.testing.assert_close(variance[group], samples.var(0, unbiased=False))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-3, 12), min_size=1, max_size=20), st.integers(1, 10))
def test_groups_partition_the_labels_in_range(labels: list[int], num_classes: int) -> None:
    y = torch.tensor(labels)
    groups = moments.group_by_class(y, num_classes, torch.float64)
    valid = [value for value in labels if 0 <= value < num_classes]
    assert groups.counts.sum() == len(valid)
    assert {c for c in groups.class_of_group.tolist() if c < num_classes} == set(valid)
    for index, value in enumerate(labels):
        member = groups.members[index]
        assert member.sum() == (0 <= value < num_classes)
        assert all(groups.class_of_group[member] == value)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-3, 12), min_size=1, max_size=20), st.integers(1, 10))
def test_groups_of_pairs_are_those_of_all_but_for_single_samples(labels: list[int], num_classes: int) -> None:
    y = torch.tensor(labels)
    groups = moments.group_by_class(y, num_classes, torch.float64, smallest=2)
    assert len(groups.counts) == min(num_classes, max(1, len(labels) // 2))
    counts = {value: labels.count(value) for value in labels if 0 <= value < num_classes}
    if num_classes > len(groups.counts):
        counts = {value: count for value, count in counts.items() if count >= 2}
    found = dict(zip(groups.class_of_group.tolist(), groups.counts.tolist(), strict=True))
    assert {label: count for label, count in found.items() if count} == counts
    assert all(label == num_classes for label, count in found.items() if not count)
    for value, member, place in zip(labels, groups.members, groups.index.tolist(), strict=True):
        assert member.sum() == (value in counts)
        assert 0 <= place < len(groups.counts)
        assert value not in counts or (groups.class_of_group[place] == value and member[place])


@pytest.mark.parametrize("num_classes", [4, 100])
def test_softmax_within_class(num_classes: int) -> None:
    _, y = labelled(4)
    logits = torch.randn(24, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 50
    groups = moments.group_by_class(y, num_classes, logits.dtype)
    weights = moments.softmax_within_class(logits, groups)
    for group, label in enumerate(groups.class_of_group.tolist()):
        torch.testing.assert_close(weights[y == label, group], logits[y == label].softmax(0))
    torch.testing.assert_close(weights.sum(0), (groups.counts > 0).double())


def test_equal_logits_are_uniform() -> None:
    _, y = labelled(4)
    groups = moments.group_by_class(y, 4, torch.float64)
    weights = moments.softmax_within_class(torch.full((24,), 3.0, dtype=torch.float64), groups)
    torch.testing.assert_close(weights, moments.uniform_weights(groups))


def test_mixed_weights_bound_the_variance_from_below() -> None:
    x, y = labelled(3)
    groups = moments.group_by_class(y, 3, x.dtype)
    sharp = moments.softmax_within_class(1e3 * x[:, 0], groups)
    mixed = moments.mix_with_uniform(sharp, 0.5, groups)
    _, plain = moments.class_moments(x, groups)
    assert (moments.weighted_moments(x, sharp, groups)[1] < 0.5 * plain).any()
    assert (moments.weighted_moments(x, mixed, groups)[1] >= 0.5 * plain - 1e-12).all()


def test_variance_far_from_zero_keeps_its_digits() -> None:
    x, y = labelled(3, 300)
    x = 100 + 0.1 * x
    exact = moments.class_moments(x, moments.group_by_class(y, 3, x.dtype))[1]
    single = x.float()
    _, variance = moments.class_moments(single, moments.group_by_class(y, 3, single.dtype))
    again = moments.class_moments(single.double(), moments.group_by_class(y, 3, torch.float64))[1]
    assert (variance.double() / again).log().abs().max() < 1e-5
    squares = single.square().mean(0) - single.mean(0).square()
    assert (squares.double() / single.double().var(0, unbiased=False)).log().abs().max() > 1e-3
    torch.testing.assert_close(exact, again, rtol=1e-3, atol=0)


def test_scatter_leaves_nan_where_skipped() -> None:
    y = torch.tensor([7, 2, 7, 2, 5])
    groups = moments.group_by_class(y, 9, torch.float32)
    values = moments.scatter_to_classes(groups.counts * 10, groups.counts >= 2, groups, 9)
    assert values.nan_to_num(-1).tolist() == [-1, -1, 20, -1, -1, -1, -1, 20, -1]


def test_share_weighted_sum_and_mean_over_kept() -> None:
    y = torch.tensor([0, 0, 0, 1])
    groups = moments.group_by_class(y, 3, torch.float32)
    values = torch.tensor([4.0, 8.0, 100.0])
    keep = groups.counts >= 2
    assert moments.share_weighted_sum(values, keep, groups) == 3
    assert moments.mean_over_kept(values, keep) == 4
    assert moments.mean_over_kept(values, torch.zeros(3, dtype=torch.bool)) == 0


@pytest.mark.parametrize("num_classes", [3, 100])
def test_rows_of_samples_are_a_product_with_the_one_hot_table(num_classes: int) -> None:
    _, y = labelled(num_classes)
    y[5] = -1
    groups = moments.group_by_class(y, num_classes, torch.float64)
    inside = groups.members.any(1)
    table = torch.randn(len(groups.counts), 2, 3, dtype=torch.float64, requires_grad=True)
    rows = moments.rows_of_samples(table, groups)
    product = torch.einsum("bg,gsd->bsd", groups.one_hot, table)
    assert rows.shape == (24, 2, 3)
    torch.testing.assert_close(rows[inside], product[inside], rtol=0, atol=0)
    weights = torch.randn_like(rows)
    (gradient,) = torch.autograd.grad((rows * weights).sum(), table)
    (expected,) = torch.autograd.grad((product * weights).sum(), table)
    torch.testing.assert_close(gradient, expected)
