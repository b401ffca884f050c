"""The baseline CEM's penalty: scalar variance around per-class KMeans centres."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from attncem.config.surrogates import KMeansOptions
from attncem.surrogates import moments
from attncem.surrogates.base import Surrogate, exact_arithmetic
from attncem.types import SurrogateOutput

SHRINKAGE_FACTOR = 10.0
SHRINKAGE_LIMIT = 0.99
"""The baseline's a = 10 n / (π N), replaced by 0.99 when it reaches 1."""
ROUNDING = 1e-5
"""How far below 1 the ratio may be and still count as 1."""
PLAIN_OFFSET = 1e-3
"""Added to the variance when log_entropy is off."""
SEED = 0
"""Seed of the first centres: the same features give the same centres on every device."""
CHUNK_ELEMENTS = 2**27
"""Padded feature values that one refit step holds at most (512 MB in float32)."""


class KMeansCEM(Surrogate):
    """What the live code of the baseline (xiasong0501/CEM) computes, on the device and without loops over classes.

    ``refresh`` fits K centres a class. A batch then gives, for each class c and each cluster j hit by n of its
    samples, vb = mean over samples and dims of (z − μ_j)², a = 10 n / (π_j N_c) (0.99 when ≥ 1),
    v = a vb + (1 − a) v_j and r = relu(log(v + γ) − log(var_threshold σ² + γ)); log_entropy=False: r = v + 0.001.
    rob_loss = mean over the classes present of Σ_j π_j r; single samples are kept. N_c is the number of features
    of the class seen by ``refresh``. Classes that were never fitted are skipped; before the first ``refresh``
    the loss is 0. ``index_defect``: every class reads class 0's π and v_j, as the baseline does by mistake.
    """

    options_type = KMeansOptions
    needs_refresh = True
    options: KMeansOptions
    centres: Tensor
    variances: Tensor
    weights: Tensor
    class_counts: Tensor
    fitted: Tensor

    def __init__(
        self, options: KMeansOptions, *, feature_shape: Sequence[int], num_classes: int, noise_std: float
    ) -> None:
        super().__init__(options, feature_shape=feature_shape, num_classes=num_classes, noise_std=noise_std)
        clusters = (num_classes, options.num_clusters)
        self.register_buffer("centres", torch.zeros(*clusters, self.num_features))
        self.register_buffer("variances", torch.zeros(clusters))
        self.register_buffer("weights", torch.zeros(clusters))
        self.register_buffer("class_counts", torch.zeros(num_classes, dtype=torch.int64))
        self.register_buffer("fitted", torch.tensor(False))

    def _evaluate(self, z: Tensor, y: Tensor, noise: Tensor | None) -> SurrogateOutput:
        x = z.flatten(1)
        groups = moments.group_by_class(y, self.num_classes, x.dtype)
        row = groups.class_of_group.clamp_max(self.num_classes - 1)
        hits, spread = self._batch_variances(x, y, groups)
        prior_row = torch.zeros_like(row) if self.options.index_defect else row
        share = self.weights[prior_row].to(x.dtype)
        prior = self.variances[prior_row].to(x.dtype)
        shrinkage = self._shrinkage(hits, share, self.class_counts[row])
        entropy = self._entropy(shrinkage * spread + (1 - shrinkage) * prior)
        hit = hits > 0
        per_group = torch.where(hit, share * entropy, 0).sum(1)
        keep = (groups.counts > 0) & (self.class_counts[row] > 0)
        average = torch.where(keep, per_group, 0).sum() / keep.sum().clamp_min(1)
        loss = torch.where(self.fitted, average, 0)
        _, plain_variance = moments.class_moments(x.detach(), groups)
        counted = hit & keep.unsqueeze(1)
        num_counted = counted.sum().clamp_min(1)
        extra = {
            "active": (counted & (entropy > 0)).sum().to(x.dtype) / num_counted,
            "fitted": self.fitted.to(x.dtype),
            "shrinkage": torch.where(counted, shrinkage, 0).sum() / num_counted,
        }
        return self._report(loss, per_group, keep, groups, plain_variance, extra=extra)

    def _batch_variances(self, x: Tensor, y: Tensor, groups: moments.Groups) -> tuple[Tensor, Tensor]:
        """Samples n and mean squared distance vb of each (group, cluster), both [G, K]."""
        label = y.clamp(0, self.num_classes - 1)
        nearest = self._nearest(x.detach(), label)
        distance = (x - self.centres[label, nearest].to(x.dtype)).square().mean(1)
        chosen = nearest.unsqueeze(1) == torch.arange(self.options.num_clusters, device=x.device)
        hits = groups.one_hot.T @ chosen.to(x.dtype)
        spread = groups.one_hot.T @ torch.where(chosen, distance.unsqueeze(1), 0)
        return hits, spread / hits.clamp_min(1)

    def _nearest(self, x: Tensor, label: Tensor) -> Tensor:
        """Index [B] of the nearest centre of the sample's own class."""
        # One cluster at a time: [B, K, D] would be hundreds of MB, the expanded square loses near ties.
        distances = [
            (x - self.centres[label, cluster].to(x.dtype)).square().sum(1)
            for cluster in range(self.options.num_clusters)
        ]
        return torch.stack(distances, 1).argmin(1)

    def _shrinkage(self, hits: Tensor, share: Tensor, class_counts: Tensor) -> Tensor:
        expected = share * class_counts.unsqueeze(1).to(share.dtype)
        ratio = SHRINKAGE_FACTOR * hits / expected.clamp_min(torch.finfo(share.dtype).tiny)
        # π N is a count stored as a share: rounding must not decide on which side of 1 the ratio falls.
        return torch.where(ratio >= 1 - ROUNDING, SHRINKAGE_LIMIT, ratio)

    def _entropy(self, variance: Tensor) -> Tensor:
        if not self.options.log_entropy:
            return variance + PLAIN_OFFSET
        floor = self.options.var_threshold * self.noise_std**2 + self.options.gamma
        return ((variance + self.options.gamma).log() - math.log(floor)).relu()

    @torch.no_grad()
    def refresh(self, features: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Refit centres, variances and weights on the (z, y) pairs of a pass over the training set.

        The first fit of a class seeds its centres like k-means++, later ones start from the stored centres.
        Classes absent from the features keep their state.
        """
        x, y = self._collect(features)
        with exact_arithmetic(x):
            order = y.argsort(stable=True)
            counts = torch.bincount(y, minlength=self.num_classes)
            first = counts.cumsum(0) - counts
            longest = int(counts.max())
            chunk = max(1, CHUNK_ELEMENTS // (longest * self.num_features))
            slots = torch.arange(longest, device=x.device)
            for start in range(0, self.num_classes, chunk):
                rows = torch.arange(start, min(start + chunk, self.num_classes), device=x.device)
                mask = slots < counts[rows].unsqueeze(1)
                index = order[(first[rows].unsqueeze(1) + slots).clamp_max(len(y) - 1)]
                self._refit(rows, x[index], mask)
        self.class_counts.copy_(torch.where(counts > 0, counts, self.class_counts))
        self.fitted.fill_(True)

    def _collect(self, features: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        pairs = list(features)
        if not pairs:
            raise ValueError("refresh: expected at least one (z, y) pair, got none")
        for z, y in pairs:
            self._check_batch(z, y)
        x = torch.cat([z.detach().flatten(1).to(self.centres) for z, _ in pairs])
        y = torch.cat([y.to(self.centres.device).long() for _, y in pairs])
        if not bool(x.isfinite().all()):
            raise ValueError("refresh: the features hold NaN or infinity")
        if bool(((y < 0) | (y >= self.num_classes)).any()):
            raise ValueError(f"refresh: expected labels from 0 to {self.num_classes - 1}, got {y.min()} to {y.max()}")
        return x, y

    def _refit(self, rows: Tensor, x: Tensor, mask: Tensor) -> None:
        """Fit the classes in ``rows`` on x [R, M, D], padded; mask [R, M] marks the real samples."""
        members = mask.to(x.dtype).unsqueeze(2)
        counts = members.sum(1)
        # Centred on the class mean, so that the expanded square of the distance loses nothing.
        mean = (x * members).sum(1, keepdim=True) / counts.unsqueeze(1).clamp_min(1)
        x = (x - mean) * members
        known = (self.class_counts[rows] > 0).view(-1, 1, 1)
        centres = torch.where(known, self.centres[rows] - mean, seed_centres(x, mask, self.options.num_clusters))
        centres, labels = lloyd(x, mask, centres, self.options.max_iterations)
        chosen = _one_hot(labels, mask, centres)
        hits = chosen.sum(1)
        own = centres.gather(1, labels.unsqueeze(2).expand_as(x))
        distance = (x - own).square().mean(2, keepdim=True)
        present = counts > 0
        self._store(self.centres, rows, present.unsqueeze(2), centres + mean)
        self._store(self.variances, rows, present, (chosen * distance).sum(1) / hits.clamp_min(1))
        self._store(self.weights, rows, present, hits / counts.clamp_min(1))

    @staticmethod
    def _store(buffer: Tensor, rows: Tensor, present: Tensor, value: Tensor) -> None:
        buffer[rows] = torch.where(present, value, buffer[rows])


def seed_centres(x: Tensor, mask: Tensor, num_clusters: int) -> Tensor:
    """First centres [R, K, D]: samples drawn one by one with probability ∝ distance to the nearest one drawn.

    (k-means++ draws ∝ squared distance; the baseline does not.) With fewer distinct samples than clusters,
    some centres coincide.
    """
    generator = torch.Generator().manual_seed(SEED)
    distance = torch.where(mask, 1.0, 0.0).to(x.dtype)
    centres: list[Tensor] = []
    for _ in range(num_clusters):
        # A race of exponential clocks: the first to ring is sample m with probability ∝ distance_m.
        clock = torch.empty(mask.shape, dtype=torch.float64).exponential_(generator=generator).to(x)
        winner = torch.where(mask, clock / distance, torch.inf).argmin(1)
        centre = x.gather(1, winner.view(-1, 1, 1).expand(-1, 1, x.shape[2]))
        to_centre = (x - centre).square().sum(2).sqrt()
        distance = torch.minimum(distance, to_centre) if centres else to_centre
        centres.append(centre)
    return torch.cat(centres, 1)


def lloyd(x: Tensor, mask: Tensor, centres: Tensor, max_iterations: int) -> tuple[Tensor, Tensor]:
    """Lloyd's iterations in all classes at once, until no label changes: centres [R, K, D], labels [R, M].

    A cluster without samples keeps its centre.
    """
    labels = _nearest_centre(x, centres)
    for _ in range(max_iterations):
        chosen = _one_hot(labels, mask, centres)
        hits = chosen.sum(1).unsqueeze(2)
        centres = torch.where(hits > 0, chosen.transpose(1, 2) @ x / hits.clamp_min(1), centres)
        before, labels = labels, _nearest_centre(x, centres)
        if bool(((labels == before) | ~mask).all()):
            break
    return centres, labels


def _nearest_centre(x: Tensor, centres: Tensor) -> Tensor:
    """The argmin over k of |c_k|² − 2 x·c_k, [R, M]; x is centred on its class."""
    return (centres.square().sum(2).unsqueeze(1) - 2 * x @ centres.transpose(1, 2)).argmin(2)


def _one_hot(labels: Tensor, mask: Tensor, centres: Tensor) -> Tensor:
    clusters = torch.arange(centres.shape[1], device=labels.device)
    return ((labels.unsqueeze(2) == clusters) & mask.unsqueeze(2)).to(centres.dtype)
