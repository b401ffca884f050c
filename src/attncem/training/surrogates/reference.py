"""Slow, obvious versions of every surrogate: loops over classes, the oracle of the tests.

They share no code with the fast versions, only the weights and buffers of the module.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from attncem.training.surrogates.base import Surrogate
from attncem.training.surrogates.capacity import CapacityPenalty
from attncem.training.surrogates.gated import GatedAttentionCEM
from attncem.training.surrogates.gmm import GaussianMixtureCEM
from attncem.training.surrogates.hybrid import HybridCEM
from attncem.training.surrogates.kmeans import KMeansCEM
from attncem.training.surrogates.logdet import LogDetPenalty
from attncem.training.surrogates.reference_parts import dimension_gate, floor_of, normalise, project, soft
from attncem.training.surrogates.reference_slot import slot_class
from attncem.training.surrogates.slot import SlotCrossAttentionCEM


class Reference(Protocol):
    """(module, z, y) → (loss, per_class [num_classes], nan where skipped); ``noise`` as for the module itself."""

    def __call__(
        self, surrogate: Surrogate, z: Tensor, y: Tensor, noise: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The slow values of one batch."""
        ...


def none_reference(surrogate: Surrogate, z: Tensor, y: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """0 for every class with two samples or more."""
    return _share_weighted(surrogate, z, y, lambda x, share: x.new_zeros(()))


def capacity_reference(
    surrogate: Surrogate, z: Tensor, y: Tensor, noise: Tensor | None = None, doubts: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """mean_d ½ log(1 + var/σ²) class by class; with doubts, or for sample_weights=worst, of weighted samples."""
    assert isinstance(surrogate, CapacityPenalty)
    mix = surrogate.options.uniform_mix

    def capacity(variance: Tensor) -> Tensor:
        variance = variance if surrogate.options.per_dimension else variance.mean()
        return (0.5 * torch.log(1 + variance / surrogate.noise_std**2)).mean()

    def penalty(x: Tensor, share: float) -> Tensor:
        if surrogate.options.sample_weights == "worst":
            weights = _worst_weights(x.flatten(1), surrogate.noise_std**2, mix)
            return capacity(_moments(x.flatten(1), weights)[1] * len(x) / (len(x) - 1))
        return capacity(x.flatten(1).var(0, unbiased=True))

    def doubtful(x: Tensor, share: float, weights: list[float]) -> Tensor:
        weights = _mixed(weights, mix)
        return capacity(_moments(x.flatten(1), weights)[1] / (1 - sum(w * w for w in weights)))

    if doubts is not None:
        return _doubt_weighted(surrogate, z, y, doubts, mix, doubtful)
    return _share_weighted(surrogate, z, y, penalty)


def logdet_reference(surrogate: Surrogate, z: Tensor, y: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """½ logdet(I + Σ/σ²) / D from the [D, D] covariance, class by class."""
    assert isinstance(surrogate, LogDetPenalty)

    def penalty(x: Tensor, share: float) -> Tensor:
        x = x.flatten(1)
        covariance = torch.cov(x.T, correction=1).reshape(x.shape[1], x.shape[1])
        matrix = torch.eye(x.shape[1], dtype=x.dtype) + covariance / surrogate.noise_std**2
        return 0.5 * torch.logdet(matrix) / x.shape[1]

    return _share_weighted(surrogate, z, y, penalty)


def gmm_reference(surrogate: Surrogate, z: Tensor, y: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Responsibilities, scatter and log-determinants with whole covariances, sample by sample, class by class."""
    assert isinstance(surrogate, GaussianMixtureCEM)
    x = z.flatten(1)
    per_class = x.new_full((surrogate.num_classes,), math.nan)
    loss = x.new_zeros(())
    for label in range(surrogate.num_classes):
        samples, share = _samples(surrogate, x, y, label)
        if len(samples) >= 2 and surrogate.class_counts[label] > 0:
            per_class[label] = _gmm_class(surrogate, samples, label)
            loss = loss + share * per_class[label]
    return loss, per_class


def gated_reference(
    surrogate: Surrogate, z: Tensor, y: Tensor, noise: Tensor | None = None, doubts: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Attention, moments, statistic and gates class by class; with doubts, the attention is multiplied with them."""
    assert isinstance(surrogate, GatedAttentionCEM)
    if doubts is not None:
        mix = surrogate.options.uniform_mix
        return _doubt_weighted(
            surrogate, z, y, doubts, mix, lambda x, share, weights: _gated_class(surrogate, x, share, weights)
        )
    return _share_weighted(surrogate, z, y, lambda x, share: _gated_class(surrogate, x, share))


def kmeans_reference(surrogate: Surrogate, z: Tensor, y: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The baseline's formula, sample by sample, cluster by cluster; mean over the classes present."""
    assert isinstance(surrogate, KMeansCEM)
    x = z.flatten(1)
    per_class = x.new_full((surrogate.num_classes,), math.nan)
    for label in range(surrogate.num_classes):
        if (y == label).any() and surrogate.class_counts[label] > 0:
            per_class[label] = _kmeans_class(surrogate, x[y == label], label)
    present = per_class[~per_class.isnan()]
    return (present.mean() if len(present) else x.new_zeros(())), per_class


def slot_reference(surrogate: Surrogate, z: Tensor, y: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Slots, enhanced samples, moments, gates class by class; without the early shut-off's state."""
    assert isinstance(surrogate, SlotCrossAttentionCEM)
    options = surrogate.options
    per_class = z.new_full((surrogate.num_classes,), math.nan)
    loss, processed = z.new_zeros(()), 0.0
    for label in range(surrogate.num_classes):
        samples, share = _samples(surrogate, z, y, label)
        if len(samples) < 2:
            continue
        drawn = z.new_zeros(options.num_slots, options.slot_dim) if noise is None else noise[label].to(z)
        with torch.no_grad():
            per_class[label] = slot_class(surrogate, samples, drawn, share)
        loss = loss + share * per_class[label]
        processed += share
    return (loss / processed if options.divide_by_processed and processed else loss), per_class


def hybrid_reference(surrogate: Surrogate, z: Tensor, y: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The gated loop over every class, and the slot loop over the marked ones, one after the other."""
    assert isinstance(surrogate, HybridCEM)
    loss, per_class = gated_reference(surrogate.gated, z, y)
    place = torch.full_like(y, -1)
    marked = [int(label) for label in surrogate.risk_classes if surrogate.places[label] >= 0]
    for index, label in enumerate(marked):
        place[y == label] = index
    drawn = None if noise is None else noise[surrogate.risk_classes]
    slot_loss, slot_values = slot_reference(surrogate.slot, z, place, drawn)
    weight = surrogate.options.slot_weight
    for index, label in enumerate(marked):
        per_class[label] = per_class[label] + weight * slot_values[index]
    return loss + weight * slot_loss, per_class


REFERENCES: dict[str, Reference] = {
    "none": none_reference,
    "kmeans": kmeans_reference,
    "gmm": gmm_reference,
    "capacity": capacity_reference,
    "logdet": logdet_reference,
    "gated": gated_reference,
    "slot": slot_reference,
    "hybrid": hybrid_reference,
}
"""The oracle of every surrogate by name."""


def _share_weighted(
    surrogate: Surrogate, z: Tensor, y: Tensor, penalty: Callable[[Tensor, float], Tensor]
) -> tuple[Tensor, Tensor]:
    """Σ (m_c / B) L_c over the classes with two samples or more."""
    per_class = z.new_full((surrogate.num_classes,), math.nan)
    loss = z.new_zeros(())
    for label in range(surrogate.num_classes):
        samples, share = _samples(surrogate, z, y, label)
        if len(samples) >= 2:
            per_class[label] = penalty(samples, share)
            loss = loss + share * per_class[label]
    return loss, per_class


def _doubt_weighted(
    surrogate: Surrogate,
    z: Tensor,
    y: Tensor,
    doubts: Tensor,
    mix: float,
    penalty: Callable[[Tensor, float, list[float]], Tensor],
) -> tuple[Tensor, Tensor]:
    """Σ p_c L_c over the classes with two samples or more: p_c by the doubts about them, mixed with m_c / B."""
    per_class = z.new_full((surrogate.num_classes,), math.nan)
    loss = z.new_zeros(())
    paired = [label for label in range(surrogate.num_classes) if int((y == label).sum()) >= 2]
    sums = {label: sum(doubts[y == label].tolist()) for label in paired}
    counts = {label: int((y == label).sum()) for label in paired}
    for label in paired:
        doubtful = sums[label] / sum(sums.values()) * sum(counts.values())
        share = ((1 - mix) * doubtful + mix * counts[label]) / len(y)
        weights = [float(doubt) / sums[label] for doubt in doubts[y == label]]
        per_class[label] = penalty(z[y == label], share, weights)
        loss = loss + share * per_class[label]
    return loss, per_class


def _mixed(weights: list[float], mix: float) -> list[float]:
    """Weights mixed with equal ones."""
    return [(1 - mix) * weight + mix / len(weights) for weight in weights]


def _moments(x: Tensor, weights: list[float]) -> tuple[Tensor, Tensor]:
    """Mean and variance of weighted rows."""
    mean = sum((w * row for w, row in zip(weights, x, strict=True)), x.new_zeros(x.shape[1]))
    return mean, sum((w * (row - mean) ** 2 for w, row in zip(weights, x, strict=True)), x.new_zeros(x.shape[1]))


def _worst_weights(x: Tensor, noise: float, mix: float) -> list[float]:
    """Three multiplicative steps towards the weights with the largest capacity, mixed with equal ones."""
    x, weights = x.detach(), [1 / len(x)] * len(x)
    for _ in range(3):
        mean, variance = _moments(x, weights)
        leverage = [float(((row - mean) ** 2 / (variance + noise)).mean()) for row in x]
        products = [weight * each for weight, each in zip(weights, leverage, strict=True)]
        weights = [part / sum(products) for part in products] if sum(products) > 0 else weights
    return _mixed(weights, mix)


def _samples(surrogate: Surrogate, z: Tensor, y: Tensor, label: int) -> tuple[Tensor, float]:
    """A class's samples, followed by its remembered ones, and its share of the batch; nothing for an absent class."""
    own = z[y == label]
    memory = surrogate.memory
    if memory is None or len(own) == 0:
        return own, len(own) / len(z)
    remembered = [own]
    for feature, stored_at in zip(memory.features[label], memory.stored_at[label].tolist(), strict=True):
        if stored_at >= 0 and int(memory.step) - stored_at <= memory.max_age:
            remembered.append(feature.reshape(1, *z.shape[1:]))
    return torch.cat(remembered), len(own) / len(z)


def _gated_class(surrogate: GatedAttentionCEM, z: Tensor, share: float, doubts: list[float] | None = None) -> Tensor:
    options = surrogate.options
    weights = _attention(surrogate, z, doubts)
    x = z.flatten(1)
    x = normalise(x) if options.variance_space == "layernorm" else x
    mean, variance = _moments(x, weights.tolist())
    if options.small_sample_correction:
        variance = variance / (1 - (weights**2).sum()) if doubts else variance * len(x) / (len(x) - 1)
    if options.scalar_variance:
        variance = variance.sum().reshape(1)
    entries = _statistic(surrogate, variance)
    if surrogate.dimension_gate is not None:
        entries = entries * dimension_gate(surrogate.dimension_gate, variance, options.gamma)
    if options.snr_gate:
        ratio = variance / (mean**2 + options.gamma)
        entries = entries * torch.sigmoid(options.snr_sharp * (ratio - options.snr_thresh))
    value = entries.mean()
    if options.class_gate:
        value = value / (1 + math.exp(-options.class_gate_a * (share - options.class_gate_b)))
    if options.slot_power is not None:
        value = value * share**options.slot_power
    return value


def _attention(surrogate: GatedAttentionCEM, z: Tensor, doubts: list[float] | None = None) -> Tensor:
    pooling = surrogate.pooling
    scores = []
    for sample in z:
        x = project(pooling.projection, sample)
        x = normalise(x) if surrogate.options.layer_norm else x
        hidden = torch.tanh(pooling.value_weight @ x) * torch.sigmoid(pooling.gate_weight @ x)
        scores.append((pooling.score_weight * hidden).sum())
    powers = torch.exp(torch.stack(scores) - max(scores))
    powers = powers if doubts is None else powers * z.new_tensor(doubts)
    weights = powers / powers.sum()
    if surrogate.options.learn == "worst_case" or doubts is not None:
        mix = surrogate.options.uniform_mix
        weights = (1 - mix) * weights + mix / len(z)
    return weights


def _statistic(surrogate: GatedAttentionCEM, variance: Tensor) -> Tensor:
    options, floor = surrogate.options, floor_of(surrogate)
    if options.statistic == "capacity":
        return 0.5 * torch.log(1 + variance / surrogate.noise_std**2)
    excess = torch.log(variance + options.gamma) - math.log(floor + options.gamma)
    if options.statistic == "hinge":
        return torch.clamp(excess, min=0)
    if options.statistic == "difference":
        return torch.clamp(soft(excess, options.softness), min=options.difference_bound)
    beta = options.softplus_beta
    return torch.log(1 + torch.exp(beta * (excess - options.margin_m))) / beta


def _kmeans_class(surrogate: KMeansCEM, x: Tensor, label: int) -> Tensor:
    options = surrogate.options
    members: dict[int, list[Tensor]] = {}
    for row in x:
        distances = [float(((row - centre) ** 2).sum()) for centre in surrogate.centres[label]]
        if options.small_sample_correction:
            used = surrogate.weights[label] > 0
            distances = [d if use else math.inf for d, use in zip(distances, used, strict=True)]
        members.setdefault(distances.index(min(distances)), []).append(row)
    total = x.new_zeros(())
    read = 0 if options.index_defect else label
    for cluster, rows in members.items():
        share = float(surrogate.weights[read, cluster])
        expected = share * int(surrogate.class_counts[label])
        shrinkage = 10 * len(rows) / expected if expected > 0 else math.inf
        shrinkage = 0.99 if shrinkage > 0.99999 else shrinkage  # 1, up to the rounding of the share
        squares = (torch.stack(rows) - surrogate.centres[label, cluster]) ** 2
        batch_variance = squares.mean(0) if options.per_dimension else squares.mean()
        variance = shrinkage * batch_variance + (1 - shrinkage) * surrogate.variances[read, cluster]
        variance = variance + surrogate.pooled[read] / max(share * int(surrogate.class_counts[read]), 1)
        total = total + share * _baseline_entropy(surrogate, variance).mean()
    return total


def _baseline_entropy(surrogate: KMeansCEM, variance: Tensor) -> Tensor:
    options = surrogate.options
    if not options.log_entropy:
        return variance + 0.001
    return torch.clamp(torch.log((variance + options.gamma) / (floor_of(surrogate) + options.gamma)), min=0)


def _gmm_class(surrogate: GaussianMixtureCEM, x: Tensor, label: int) -> Tensor:
    options = surrogate.options
    if options.pca_dim is not None:
        x = torch.stack([surrogate.axes @ (row - surrogate.origin) for row in x])
    covariances = []
    for factor in surrogate.factors[label]:
        root = factor if options.covariance == "full" else torch.diag(factor)
        covariances.append(root @ root.T)
    joint = x.new_zeros(len(x), options.num_clusters)
    for k, (mean, covariance) in enumerate(zip(surrogate.means[label], covariances, strict=True)):
        if surrogate.weights[label, k] > 0:
            density = torch.distributions.MultivariateNormal(mean, covariance).log_prob(x)
            joint[:, k] = density + torch.log(surrogate.weights[label, k])
        else:
            joint[:, k] = -math.inf
    powers = torch.exp(joint - joint.amax(1, keepdim=True))
    shares = powers / powers.sum(1, keepdim=True)
    floor = floor_of(surrogate)
    total = x.new_zeros(())
    for k, (mean, covariance) in enumerate(zip(surrogate.means[label], covariances, strict=True)):
        weight = float(surrogate.weights[label, k])
        count = float(shares[:, k].sum())
        if weight == 0:
            continue
        shrinkage = 10 * count / (weight * int(surrogate.class_counts[label]))
        shrinkage = 0.99 if shrinkage > 0.99999 else shrinkage
        scatter = torch.zeros_like(covariance)
        for share, row in zip(shares[:, k], x, strict=True):
            scatter = scatter + share * torch.outer(row - mean, row - mean) / max(count, 1e-300)
        missing = surrogate.pooled[label] / max(weight * int(surrogate.class_counts[label]), 1)
        if options.covariance == "diagonal":
            scatter, missing = torch.diag(torch.diag(scatter)), torch.diag(missing)
        scatter = scatter + missing
        logdet = torch.linalg.slogdet(shrinkage * scatter + (1 - shrinkage) * covariance).logabsdet
        logdet = logdet / x.shape[1] if options.per_dimension_log else logdet
        total = total + weight * torch.clamp(logdet - math.log(floor), min=0)
    return total
