"""Moments of z inside the classes of one batch: pure functions with static shapes.

The batch is split into G groups, one per class: G is the number of classes, or the number that a batch can hold if that
is smaller. When there are no more classes than groups, group g is class g; otherwise groups are numbered in the order
of their first samples. Sums over a class are matrix products with a [B, G] matrix (deterministic on CUDA, unlike
scattered additions), and no table has one row of z per class of the data set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

_STEPS = 3
"""Steps towards the weights with the largest capacity."""


@dataclass(frozen=True)
class Groups:
    """Which samples of a batch share a class.

    ``members`` [B, G] bool; ``one_hot`` the same in the statistics' precision; ``index`` [B] the group of each sample;
    ``counts`` [G] samples per group; ``class_of_group`` [G] int64, num_classes for a group without samples. A sample
    whose label is out of range, or whose class has no group, is a member of none, regardless of its index.
    ``own_counts`` [G] and ``batch_size`` exclude the rows from a memory: these count in the moments, but not in a
    class's share of the batch.
    """

    members: Tensor
    one_hot: Tensor
    index: Tensor
    counts: Tensor
    class_of_group: Tensor
    own_counts: Tensor
    batch_size: int
    """B, including samples without a group."""

    @property
    def share(self) -> Tensor:
        """Share p_c of each group in the batch, [G]."""
        return self.own_counts / self.batch_size


def num_groups(batch: int, num_classes: int, smallest: int) -> int:
    """G: the number of classes that can have ``smallest`` samples or more in the batch."""
    return min(num_classes, max(1, batch // smallest))


def group_by_class(
    y: Tensor, num_classes: int, dtype: torch.dtype, *, num_own: int | None = None, smallest: int = 1
) -> Groups:
    """Groups of y [B] int64; ``dtype`` is that of the later moments. Rows after the first ``num_own`` are a memory's.

    If not every class can have a group, classes with fewer than ``smallest`` samples have none.
    """
    batch, index = len(y), torch.arange(num_groups(len(y), num_classes, smallest), device=y.device)
    has_group = (y >= 0) & (y < num_classes)
    group = y
    if num_classes > len(index):
        group, enough = _numbered(y, smallest)
        has_group = has_group & enough
    members = (group.unsqueeze(1) == index) & has_group.unsqueeze(1)
    class_of_group = torch.where(members, y.unsqueeze(1), num_classes).amin(0)
    one_hot = members.to(dtype)
    counts = one_hot.sum(0)
    own_counts = counts if num_own is None else one_hot[:num_own].sum(0)
    place = torch.where(has_group, group, 0)
    return Groups(members, one_hot, place, counts, class_of_group, own_counts, batch if num_own is None else num_own)


def _numbered(y: Tensor, smallest: int) -> tuple[Tensor, Tensor]:
    """Labels of ``smallest`` samples or more, numbered by first occurrence, and whether each sample has one, both [B].

    Without a sort and without a host read.
    """
    order = torch.arange(len(y), device=y.device)
    same = y.unsqueeze(1) == y
    first = torch.where(same, order, len(y)).amin(1)
    enough = same.sum(1) >= smallest
    begins = (first == order) & enough
    return (begins.cumsum(0) - 1)[first], enough


def halves(groups: Groups) -> tuple[Groups, Groups]:
    """Every second sample of each class, and the others."""
    # Counted pair by pair: torch 2.11 cannot compile a running sum over 256 or more rows of an intermediate table.
    place = torch.where(groups.members.any(1), groups.index, -1)
    rank = (place.unsqueeze(1) == place).tril().sum(1)
    odd = (rank % 2 == 1).unsqueeze(1)
    return _only(groups, odd), _only(groups, ~odd)


def _only(groups: Groups, chosen: Tensor) -> Groups:
    one_hot = groups.one_hot * chosen
    return replace(groups, members=groups.members & chosen, one_hot=one_hot, counts=one_hot.sum(0))


def of_positions(groups: Groups, positions: int) -> Groups:
    """Groups of the positions of all samples: each position has the group of its sample."""
    if positions == 1:
        return groups
    one_hot, index = (table.repeat_interleave(positions, 0) for table in (groups.one_hot, groups.index))
    return replace(groups, one_hot=one_hot, index=index)


def side_by_side(one: Groups, other: Groups) -> Groups:
    """Groups of the samples taken twice: the first copies have the groups of ``one``, the second those of ``other``."""
    index = torch.cat([one.index, other.index + len(one.counts)])
    return replace(one, one_hot=torch.block_diag(one.one_hot, other.one_hot), index=index)


def rows_of_samples(table: Tensor, groups: Groups) -> Tensor:
    """Rows [B, …] of table [G, …] by each sample's group; a sample without a group gets any row, without gradient."""
    rows: Tensor = _Rows.apply(table, groups.one_hot, groups.index)  # type: ignore[no-untyped-call]
    return rows


class _Rows(torch.autograd.Function):
    """table[index]. Its backward is a matrix product, because scattered additions have no fixed order on CUDA."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, one_hot: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(one_hot)
        return table[index]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (one_hot,) = ctx.saved_tensors
        return (one_hot.T @ gradient.flatten(1)).view(-1, *gradient.shape[1:]), None, None


def uniform_weights(groups: Groups) -> Tensor:
    """Weights 1/m of each class's samples, [B, G]; a column sums to 1, or to 0 for an empty group."""
    return groups.one_hot / groups.counts.clamp_min(1)


def softmax_within_class(logits: Tensor, groups: Groups) -> Tensor:
    """Softmax of logits [B] over the samples of each class, as weights [B, G]."""
    lowest = torch.finfo(logits.dtype).min
    table = torch.where(groups.members, logits.unsqueeze(1), lowest)
    return table.softmax(0) * groups.one_hot


def mix_with_uniform(weights: Tensor, share: float, groups: Groups) -> Tensor:
    """(1 − ρ) a + ρ / m: its variance is at least ρ times the unweighted one."""
    return (1 - share) * weights + share * uniform_weights(groups)


def doubtful_weights(doubts: Tensor, share: float, groups: Groups) -> Tensor:
    """Weights [B, G] that grow with each sample's doubt [B] inside its class, mixed with uniform ones."""
    inside = groups.one_hot * _positive(doubts).unsqueeze(1)
    total = inside.sum(0)
    return mix_with_uniform(inside / torch.where(total > 0, total, 1), share, groups)


def _positive(doubts: Tensor) -> Tensor:
    """The doubts, a little above 0: samples that are all sure weigh alike."""
    return doubts.clamp_min(torch.finfo(doubts.dtype).tiny)


def shares_by_doubt(doubts: Tensor, share: float, groups: Groups) -> Groups:
    """The same groups with the class shares of what is sent: by the sum of doubts, mixed with the shares of the batch.

    Doubtful classes are sent more often, so their spread counts more. Classes without a pair of samples, which count
    in no sum, keep their shares.
    """
    paired = groups.counts >= 2
    of_class = torch.where(paired, groups.one_hot.T @ _positive(doubts), 0)
    total = of_class.sum()
    doubtful = of_class / torch.where(total > 0, total, 1) * torch.where(paired, groups.own_counts, 0).sum()
    doubtful = torch.where(paired, doubtful, groups.own_counts)
    return replace(groups, own_counts=(1 - share) * doubtful + share * groups.own_counts)


def largest_capacity(x: Tensor, noise_std: float, share: float, groups: Groups) -> Tensor:
    """Weights [B, G] under which x [B, D] of a class has about the largest Σ_d log(1 + var_d/σ²), without a gradient.

    Multiplicative steps, as for D-optimal designs: w_m ∝ w_m · mean_d (x_m − μ)²/(σ² + var_d); then mixed with uniform
    weights.
    """
    x, weights = x.detach(), uniform_weights(groups)
    for _ in range(_STEPS):
        mean, variance = weighted_moments(x, weights, groups)
        scale = rows_of_samples(variance, groups) + noise_std**2
        leverage = ((x - rows_of_samples(mean, groups)).square() / scale).mean(1)
        weights = weights * leverage.unsqueeze(1)
        total = weights.sum(0)
        weights = torch.where(total > 0, weights / torch.where(total > 0, total, 1), uniform_weights(groups))
    return mix_with_uniform(weights, share, groups)


def weighted_moments(x: Tensor, weights: Tensor, groups: Groups) -> tuple[Tensor, Tensor]:
    """Mean and variance of x [B, D] under weights [B, G], both [G, D]; zeros for an empty group.

    Centred first, then the weighted sum of the squares: E[x²] − μ² loses the variance of a compact class.
    """
    mean = weights.T @ x
    return mean, second_moment(x, mean, weights, groups)


def second_moment(x: Tensor, centre: Tensor, weights: Tensor, groups: Groups) -> Tensor:
    """Σ_m w_m (x_m − centre of its class)², [G, D]; centre [G, D]."""
    return weights.T @ (x - rows_of_samples(centre, groups)).square()


def class_moments(x: Tensor, groups: Groups) -> tuple[Tensor, Tensor]:
    """Mean and population variance (weights 1/m) of each class, both [G, D]."""
    return weighted_moments(x, uniform_weights(groups), groups)


def unbiased(variance: Tensor, groups: Groups) -> Tensor:
    """A variance [G, D] of m samples around their mean, times m / (m − 1); otherwise two samples give half of it."""
    factor = groups.counts / (groups.counts - 1).clamp_min(1)
    return variance * factor.unsqueeze(1)


def unbiased_for_weights(variance: Tensor, weights: Tensor) -> Tensor:
    """A weighted variance [G, D] divided by 1 − Σ w²: m / (m − 1) for equal weights 1/m."""
    return variance / (1 - weights.square().sum(0)).clamp_min(torch.finfo(variance.dtype).eps).unsqueeze(1)


def share_weighted_sum(per_group: Tensor, keep: Tensor, groups: Groups) -> Tensor:
    """Σ_c p_c L_c over the groups kept, p_c = m_c / B; per_group [G], keep [G] bool."""
    return (torch.where(keep, per_group, 0) * groups.own_counts).sum() / groups.batch_size


def mean_over_kept(values: Tensor, keep: Tensor) -> Tensor:
    """Mean of values [G] or [G, D] over the groups kept; 0 when none is."""
    per_group = values.flatten(1).mean(1) if values.dim() > 1 else values
    return torch.where(keep, per_group, 0).sum() / keep.sum().clamp_min(1)


def of_each_sample(by_group: Mapping[str, Tensor], groups: Groups) -> dict[str, Tensor]:
    """Values [G] or [G, D] as rows of the samples: those of the sample's class, zeros for a sample without a class."""
    return {name: groups.one_hot @ values for name, values in by_group.items()}


def scatter_to_classes(per_group: Tensor, keep: Tensor, groups: Groups, num_classes: int) -> Tensor:
    """Values of the groups kept at their class's place in [num_classes]; nan elsewhere."""
    # One spare place takes the groups not kept, so that no shape depends on the data.
    place = torch.where(keep, groups.class_of_group, num_classes)
    table = torch.full((num_classes + 1,), torch.nan, dtype=per_group.dtype, device=per_group.device)
    return table.scatter(0, place, per_group)[:num_classes]
