"""Slow, obvious versions of every surrogate: loops over classes, the oracle of the tests.

They share no code with the fast versions, only the weights and buffers of the module they are given.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from attncem.config.surrogates import GatedOptions
from attncem.surrogates.base import Surrogate
from attncem.surrogates.capacity import CapacityPenalty
from attncem.surrogates.gated import GatedAttentionCEM
from attncem.surrogates.gmm import GaussianMixtureCEM
from attncem.surrogates.kmeans import KMeansCEM
from attncem.surrogates.logdet import LogDetPenalty
from attncem.surrogates.projection import LinearProjection, PointwiseProjection, RandomProjection

Reference = Callable[[Surrogate, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(module, z, y) → (loss, per_class [num_classes], nan where skipped)."""


def none_reference(surrogate: Surrogate, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """0 for every class with two samples or more."""
    return _share_weighted(surrogate, z, y, lambda x, share: x.new_zeros(()))


def capacity_reference(surrogate: Surrogate, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """mean_d ½ log(1 + var/σ²) class by class."""
    assert isinstance(surrogate, CapacityPenalty)

    def penalty(x: Tensor, share: float) -> Tensor:
        variance = x.flatten(1).var(0, unbiased=False)
        if not surrogate.options.per_dimension:
            variance = variance.mean()
        return (0.5 * torch.log(1 + variance / surrogate.noise_std**2)).mean()

    return _share_weighted(surrogate, z, y, penalty)


def logdet_reference(surrogate: Surrogate, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """½ logdet(I + Σ/σ²) / D from the [D, D] covariance, class by class."""
    assert isinstance(surrogate, LogDetPenalty)

    def penalty(x: Tensor, share: float) -> Tensor:
        x = x.flatten(1)
        covariance = torch.cov(x.T, correction=0).reshape(x.shape[1], x.shape[1])
        matrix = torch.eye(x.shape[1], dtype=x.dtype) + covariance / surrogate.noise_std**2
        return 0.5 * torch.logdet(matrix) / x.shape[1]

    return _share_weighted(surrogate, z, y, penalty)


def gmm_reference(surrogate: Surrogate, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Responsibilities, scatter and log-determinants with whole covariances, sample by sample, class by class."""
    assert isinstance(surrogate, GaussianMixtureCEM)
    x = z.flatten(1)
    per_class = x.new_full((surrogate.num_classes,), math.nan)
    loss = x.new_zeros(())
    for label in range(surrogate.num_classes):
        samples = x[y == label]
        if len(samples) >= 2 and surrogate.class_counts[label] > 0:
            per_class[label] = _gmm_class(surrogate, samples, label)
            loss = loss + len(samples) / len(x) * per_class[label]
    return loss, per_class


def gated_reference(surrogate: Surrogate, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Attention, moments, statistic and gates class by class."""
    assert isinstance(surrogate, GatedAttentionCEM)
    return _share_weighted(surrogate, z, y, lambda x, share: _gated_class(surrogate, x, share))


def kmeans_reference(surrogate: Surrogate, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The baseline's formula, sample by sample, cluster by cluster; mean over the classes present."""
    assert isinstance(surrogate, KMeansCEM)
    x = z.flatten(1)
    per_class = x.new_full((surrogate.num_classes,), math.nan)
    for label in range(surrogate.num_classes):
        if (y == label).any() and surrogate.class_counts[label] > 0:
            per_class[label] = _kmeans_class(surrogate, x[y == label], label)
    present = per_class[~per_class.isnan()]
    return (present.mean() if len(present) else x.new_zeros(())), per_class


REFERENCES: dict[str, Reference] = {
    "none": none_reference,
    "kmeans": kmeans_reference,
    "gmm": gmm_reference,
    "capacity": capacity_reference,
    "logdet": logdet_reference,
    "gated": gated_reference,
}
"""The oracle of every surrogate by name."""


def _share_weighted(
    surrogate: Surrogate, z: Tensor, y: Tensor, penalty: Callable[[Tensor, float], Tensor]
) -> tuple[Tensor, Tensor]:
    """Σ (m_c / B) L_c over the classes with two samples or more."""
    per_class = z.new_full((surrogate.num_classes,), math.nan)
    loss = z.new_zeros(())
    for label in range(surrogate.num_classes):
        samples = z[y == label]
        if len(samples) >= 2:
            share = len(samples) / len(z)
            per_class[label] = penalty(samples, share)
            loss = loss + share * per_class[label]
    return loss, per_class


def _gated_class(surrogate: GatedAttentionCEM, z: Tensor, share: float) -> Tensor:
    options = surrogate.options
    weights = _attention(surrogate, z)
    x = z.flatten(1)
    x = _normalise(x) if options.variance_space == "layernorm" else x
    mean = sum((w * row for w, row in zip(weights, x, strict=True)), x.new_zeros(x.shape[1]))
    variance = sum((w * (row - mean) ** 2 for w, row in zip(weights, x, strict=True)), x.new_zeros(x.shape[1]))
    if options.scalar_variance:
        variance = variance.sum().reshape(1)
    entries = _statistic(options, variance, surrogate.noise_std)
    if surrogate.dimension_gate is not None:
        inner, outer = surrogate.dimension_gate.inner, surrogate.dimension_gate.outer
        hidden = torch.relu(inner.weight @ _normalise(torch.log(variance + options.gamma)) + inner.bias)
        entries = entries * torch.sigmoid(outer.weight @ hidden + outer.bias)
    if options.snr_gate:
        ratio = variance / (mean**2 + options.gamma)
        entries = entries * torch.sigmoid(options.snr_sharp * (ratio - options.snr_thresh))
    value = entries.mean()
    if options.class_gate:
        value = value / (1 + math.exp(-options.class_gate_a * (share - options.class_gate_b)))
    if options.slot_power is not None:
        value = value * share**options.slot_power
    return value


def _attention(surrogate: GatedAttentionCEM, z: Tensor) -> Tensor:
    pooling = surrogate.pooling
    scores = []
    for sample in z:
        x = _project(surrogate, sample)
        x = _normalise(x) if surrogate.options.layer_norm else x
        hidden = torch.tanh(pooling.value_weight @ x) * torch.sigmoid(pooling.gate_weight @ x)
        scores.append((pooling.score_weight * hidden).sum())
    powers = torch.exp(torch.stack(scores) - max(scores))
    weights = powers / powers.sum()
    if surrogate.options.learn == "worst_case":
        mix = surrogate.options.uniform_mix
        weights = (1 - mix) * weights + mix / len(z)
    return weights


def _project(surrogate: GatedAttentionCEM, sample: Tensor) -> Tensor:
    projection = surrogate.pooling.projection
    if isinstance(projection, PointwiseProjection):
        channels_first = sample.T if sample.dim() == 2 else sample
        positions = channels_first.reshape(channels_first.shape[0], -1)
        mixed = torch.stack([projection.channel_weight @ column for column in positions.T], 1)
        return projection.weight @ mixed.reshape(-1)
    x = sample.reshape(-1)
    if isinstance(projection, LinearProjection):
        for weight in projection.weights:
            x = weight @ x
    if isinstance(projection, RandomProjection):
        x = projection.weight @ x
    return x


def _normalise(x: Tensor) -> Tensor:
    """LayerNorm without affine over the last dimension."""
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + 1e-5)


def _statistic(options: GatedOptions, variance: Tensor, noise_std: float) -> Tensor:
    if options.statistic == "capacity":
        return 0.5 * torch.log(1 + variance / noise_std**2)
    floor = options.var_threshold * noise_std**2 if options.variance_floor is None else options.variance_floor
    excess = torch.log(variance + options.gamma) - math.log(floor + options.gamma)
    if options.statistic == "hinge":
        return torch.clamp(excess, min=0)
    if options.statistic == "difference":
        return torch.clamp(excess, min=options.difference_bound)
    beta = options.softplus_beta
    return torch.log(1 + torch.exp(beta * (excess - options.margin_m))) / beta


def _kmeans_class(surrogate: KMeansCEM, x: Tensor, label: int) -> Tensor:
    options = surrogate.options
    members: dict[int, list[Tensor]] = {}
    for row in x:
        distances = [float(((row - centre) ** 2).sum()) for centre in surrogate.centres[label]]
        members.setdefault(distances.index(min(distances)), []).append(row)
    total = x.new_zeros(())
    read = 0 if options.index_defect else label
    for cluster, rows in members.items():
        share = float(surrogate.weights[read, cluster])
        expected = share * int(surrogate.class_counts[label])
        shrinkage = 10 * len(rows) / expected if expected > 0 else math.inf
        shrinkage = 0.99 if shrinkage > 0.99999 else shrinkage  # 1, give or take the rounding of the share
        batch_variance = ((torch.stack(rows) - surrogate.centres[label, cluster]) ** 2).mean()
        variance = shrinkage * batch_variance + (1 - shrinkage) * surrogate.variances[read, cluster]
        total = total + share * _baseline_entropy(surrogate, variance)
    return total


def _baseline_entropy(surrogate: KMeansCEM, variance: Tensor) -> Tensor:
    options = surrogate.options
    if not options.log_entropy:
        return variance + 0.001
    floor = options.var_threshold * surrogate.noise_std**2
    return torch.clamp(torch.log((variance + options.gamma) / (floor + options.gamma)), min=0)


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
    floor = options.var_threshold * surrogate.noise_std**2 + options.gamma
    floor = floor if options.variance_floor is None else options.variance_floor
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
        if options.covariance == "diagonal":
            scatter = torch.diag(torch.diag(scatter))
        logdet = torch.linalg.slogdet(shrinkage * scatter + (1 - shrinkage) * covariance).logabsdet
        logdet = logdet / x.shape[1] if options.per_dimension_log else logdet
        total = total + weight * torch.clamp(logdet - math.log(floor), min=0)
    return total
