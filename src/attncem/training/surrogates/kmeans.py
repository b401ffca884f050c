"""The baseline CEM's penalty: scalar variance around per-class KMeans centres."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from attncem.base.types import SurrogateOutput
from attncem.config.options.surrogates import KMeansOptions
from attncem.training.surrogates import clusters, moments
from attncem.training.surrogates.base import Surrogate, exact_arithmetic
from attncem.training.surrogates.floor import VarianceFloor

PLAIN_OFFSET = 1e-3
"""Added to the variance when log_entropy is off."""
MANY_DIFFERENCES = 2**22
"""Most differences between samples and centres in memory (16 MB in float32), unless one cluster has more."""


class KMeansCEM(Surrogate):
    """The computation of the baseline's live code (xiasong0501/CEM), on the device and without loops over classes.

    ``refresh`` fits K centres per class. For each class c of a batch and each cluster j hit by n of its samples, vb =
    mean over samples and dims of (z − μ_j)², a = 10 n / (π_j N_c) (0.99 when ≥ 1), v = a vb + (1 − a) v_j and r =
    relu(log(v + γ) − log(τ + γ)), τ = var_threshold σ² or ``variance_floor``; log_entropy=False: r = v + 0.001. The n_j
    samples of a cluster lie closer to their own centre than to the true mean: ``small_sample_correction`` adds pooled_c
    / n_j to v, which the baseline does not do. rob_loss = mean over the classes present of Σ_j π_j r; single samples
    are kept. N_c is the number of features of the class in the last ``refresh``. Classes that were never fitted are
    skipped; before the first ``refresh`` the loss is 0. ``index_defect``: every class reads class 0's π and v_j, a
    mistake of the baseline. ``per_dimension`` (ours) keeps a variance of each dimension, and r is the mean of its
    dimensions' values: d below is D, else 1.
    """

    options_type = KMeansOptions
    needs_refresh = True
    part = "cluster"
    options: KMeansOptions
    centres: Tensor
    variances: Tensor
    weights: Tensor
    class_counts: Tensor
    fitted: Tensor
    pooled: Tensor

    def __init__(
        self, options: KMeansOptions, *, feature_shape: Sequence[int], num_classes: int, noise_std: float
    ) -> None:
        super().__init__(options, feature_shape=feature_shape, num_classes=num_classes, noise_std=noise_std)
        relative = options.var_threshold * noise_std**2
        self.floor = VarianceFloor(options.variance_floor, default=relative, noise_std=noise_std)
        sizes = (num_classes, options.num_clusters)
        spread = (self.num_features,) if options.per_dimension else ()
        self.register_buffer("centres", torch.zeros(*sizes, self.num_features))
        self.register_buffer("variances", torch.zeros(*sizes, *spread))
        self.register_buffer("weights", torch.zeros(sizes))
        self.register_buffer("class_counts", torch.zeros(num_classes, dtype=torch.int64))
        self.register_buffer("fitted", torch.tensor(False))
        self.register_buffer("pooled", torch.zeros(num_classes, *spread))

    def _evaluate(self, z: Tensor, y: Tensor, noise: Tensor | None) -> SurrogateOutput:
        x = z.flatten(1)
        groups = moments.group_by_class(y, self.num_classes, x.dtype)
        row = groups.class_of_group.clamp_max(self.num_classes - 1)
        hits, spread = self._batch_variances(x, y, groups)
        prior_row = torch.zeros_like(row) if self.options.index_defect else row
        share = self.weights[prior_row].to(x.dtype)
        prior, pooled = (self._wide(stored[prior_row]).to(x.dtype) for stored in (self.variances, self.pooled))
        shrinkage = clusters.shrinkage(hits, share, self.class_counts[row])
        fitted_to = clusters.fitted_samples(share, self.class_counts[prior_row])
        missing = pooled.unsqueeze(1) / fitted_to.clamp_min(1).unsqueeze(2)
        variance = shrinkage.unsqueeze(2) * spread + (1 - shrinkage).unsqueeze(2) * prior + missing
        entropy = self._entropy(variance).mean(2)
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
            "cluster_samples": torch.where(counted, fitted_to, 0).sum() / num_counted,
            "plain_loss": moments.share_weighted_sum(
                self._entropy(self._dimensions(plain_variance)).mean(1), keep, groups
            ),
        }
        return self._report(loss, per_group, keep, groups, plain_variance, extra=extra)

    def _explain(self, z: Tensor, y: Tensor) -> dict[str, Tensor]:
        if not bool(self.fitted):
            return {}
        nearest = self._nearest(z.flatten(1), y.clamp(0, self.num_classes - 1))
        return {"shares": torch.nn.functional.one_hot(nearest, self.options.num_clusters).to(z.dtype)}

    def _dimensions(self, squares: Tensor) -> Tensor:
        """Squares […, D] as [..., d]: of each dimension, or their mean."""
        return squares if self.options.per_dimension else squares.mean(-1, keepdim=True)

    def _wide(self, stored: Tensor) -> Tensor:
        """A stored variance with its last axis d; a scalar one has none."""
        return stored if self.options.per_dimension else stored.unsqueeze(-1)

    def _batch_variances(self, x: Tensor, y: Tensor, groups: moments.Groups) -> tuple[Tensor, Tensor]:
        """Number of samples n [G, K] and mean squared distance vb [G, K, d] of each (group, cluster)."""
        label = y.clamp(0, self.num_classes - 1)
        nearest = self._nearest(x.detach(), label)
        distance = self._dimensions((x - self.centres[label, nearest].to(x.dtype)).square())
        chosen = nearest.unsqueeze(1) == torch.arange(self.options.num_clusters, device=x.device)
        hits = groups.one_hot.T @ chosen.to(x.dtype)
        parts = torch.where(chosen.unsqueeze(2), distance.unsqueeze(1), 0)
        spread = (groups.one_hot.T @ parts.flatten(1)).unflatten(1, parts.shape[1:])
        return hits, spread / hits.clamp_min(1).unsqueeze(2)

    def _nearest(self, x: Tensor, label: Tensor) -> Tensor:
        """Index [B] of the nearest centre of the sample's own class."""
        # A few clusters at a time: [B, K, D] can take hundreds of MB, and the expanded square loses near ties.
        some = max(1, MANY_DIFFERENCES // x.numel())
        x = x.unsqueeze(1)
        distances = [(x - part[label].to(x.dtype)).square().sum(2) for part in self.centres.split(some, 1)]
        distance = torch.cat(distances, 1)
        if self.options.small_sample_correction:
            # A centre without samples, such as one of two that coincide, has weight 0: its samples do not count.
            distance = torch.where(self.weights[label] > 0, distance, torch.inf)
        return distance.argmin(1)

    def _entropy(self, variance: Tensor) -> Tensor:
        if not self.options.log_entropy:
            return variance + PLAIN_OFFSET
        return ((variance + self.options.gamma).log() - self.floor.log(self.options.gamma)).relu()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        clusters.add_pooled(state_dict, prefix, self.pooled)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    @torch.no_grad()
    def refresh(self, features: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Refit centres, variances and weights on the (z, y) pairs of a pass over the training set.

        The first fit of a class seeds its centres like k-means++, later ones start from the stored centres.
        Classes absent from the features keep their state.
        """
        x, y = clusters.collect(self._checked(features), self.num_classes, self.centres)
        counts = torch.bincount(y, minlength=self.num_classes)
        with exact_arithmetic(x):
            for rows, padded, mask in clusters.padded_classes(x, y, counts):
                self._refit(rows, padded, mask)
        self.class_counts.copy_(torch.where(counts > 0, counts, self.class_counts))
        self.fitted.fill_(True)

    def _refit(self, rows: Tensor, x: Tensor, mask: Tensor) -> None:
        """Fit the classes in ``rows`` on x [R, M, D], padded; mask [R, M] marks the real samples."""
        x, mean = clusters.centred(x, mask)
        centres = clusters.first_centres(x, mask, self.centres[rows] - mean, self.class_counts[rows] > 0)
        centres, labels = clusters.lloyd(x, mask, centres, self.options.max_iterations)
        chosen = clusters.one_hot(labels, mask, centres)
        hits = chosen.sum(1)
        own = centres.gather(1, labels.unsqueeze(2).expand_as(x))
        counts = mask.sum(1, keepdim=True).to(x.dtype)
        present = mask.any(1)
        squares = self._squares(chosen, x - own)
        if self.options.small_sample_correction:
            around_mean = self._dimensions(x.square()).sum(1)
            pooled = clusters.pooled_variance(squares.sum(1), around_mean, hits)
            clusters.store(self.pooled, rows, present, pooled.view_as(self.pooled[rows]))
        clusters.store(self.centres, rows, present, centres + mean)
        variances = squares / hits.clamp_min(1).unsqueeze(2)
        clusters.store(self.variances, rows, present, variances.view_as(self.variances[rows]))
        clusters.store(self.weights, rows, present, hits / counts.clamp_min(1))

    def _squares(self, chosen: Tensor, away: Tensor) -> Tensor:
        """Sum of squared distances of each cluster, [R, K, d], of samples [R, M, D] in clusters chosen [R, M, K]."""
        if self.options.per_dimension:
            return chosen.transpose(1, 2) @ away.square()
        return (chosen * away.square().mean(2, keepdim=True)).sum(1).unsqueeze(2)
