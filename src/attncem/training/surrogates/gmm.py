"""Gaussian mixtures per class, refit once per epoch: the log-determinants of their covariances (002)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attncem.base.types import ConfigError, SurrogateOutput
from attncem.config.options.surrogates import GMMOptions
from attncem.training.surrogates import clusters, moments
from attncem.training.surrogates.base import Surrogate, exact_arithmetic
from attncem.training.surrogates.floor import VarianceFloor

MAX_FULL_DIMENSIONS = 256
"""Largest dimension of a full covariance: 256 × 256 takes 0.5 MB per component in a step."""
OVERSAMPLING = 10
POWER_ROUNDS = 8
"""Extra directions and iterations of the subspace iteration for the principal directions."""
SINGULAR = (
    "covariance=full needs more samples per component than dimensions: with fewer the determinant is too small and "
    "the penalty is close to 0 (diagnostic singular: share of such components)"
)
WHOLE_DETERMINANT = (
    "per_dimension_log=false compares the determinant of all dimensions with the floor of one: "
    "where variances are below 1 the penalty stays 0"
)


class Mixture(NamedTuple):
    """Mixtures of R classes: weights [R, K], means [R, K, d], factors of the covariances.

    A factor is the Cholesky factor [R, K, d, d] of a full covariance, or the standard deviations [R, K, d] of a
    diagonal one: rounded to float32, it still belongs to a covariance.
    """

    weights: Tensor
    means: Tensor
    factors: Tensor


class GaussianMixtureCEM(Surrogate):
    """The baseline's penalty as described in 002, made differentiable.

    ``refresh`` fits K Gaussians per class: KMeans (from the stored means, at first from seeds), then ``em_iterations``
    steps of expectation maximisation. For a batch, the responsibilities r in each sample's own class are constants. The
    scatter around the stored means is S_k = Σ_m r_mk (z_m − μ_k)(z_m − μ_k)ᵀ / n_k, n_k = Σ_m r_mk. With the a of
    ``kmeans``, Σ̂_k = a S_k + (1 − a) Σ_k and L_c = Σ_k π_k max(0, logdet Σ̂_k / D − log τ), τ = var_threshold σ² + γ
    or ``variance_floor``; ``per_dimension_log=False``: without /D. Classes that were never fitted are skipped, so
    before the first ``refresh`` the loss is 0. With ``pca_dim`` all this happens in the leading principal directions of
    the last refit's features around their class means; variance outside them is not penalised (diagnostic
    ``kept_variance``: the share inside). ``small_sample_correction`` adds pooled_c / n_k to the Σ_k and S_k of a
    component fitted to n_k samples, which lie closer to their own mean than to the true one.
    """

    options_type = GMMOptions
    needs_refresh = True
    part = "component"
    options: GMMOptions
    means: Tensor
    factors: Tensor
    weights: Tensor
    class_counts: Tensor
    fitted: Tensor
    pooled: Tensor
    origin: Tensor
    axes: Tensor

    def __init__(
        self, options: GMMOptions, *, feature_shape: Sequence[int], num_classes: int, noise_std: float
    ) -> None:
        super().__init__(options, feature_shape=feature_shape, num_classes=num_classes, noise_std=noise_std)
        self.num_dimensions = self._checked_dimensions()
        relative = options.var_threshold * noise_std**2 + options.gamma
        self.floor = VarianceFloor(options.variance_floor, default=relative, noise_std=noise_std)
        self.is_full = options.covariance == "full"
        cautions = {WHOLE_DETERMINANT: not options.per_dimension_log, SINGULAR: self.is_full}
        self.caution = "; ".join(text for text, applies in cautions.items() if applies)
        sizes = (num_classes, options.num_clusters, self.num_dimensions)
        # Unit covariances before the first fit: a skipped class still has finite gradients.
        units = torch.eye(self.num_dimensions).expand(*sizes, -1).clone() if self.is_full else torch.ones(sizes)
        self.register_buffer("means", torch.zeros(sizes))
        self.register_buffer("factors", units)
        self.register_buffer("weights", torch.zeros(sizes[:2]))
        self.register_buffer("class_counts", torch.zeros(num_classes, dtype=torch.int64))
        self.register_buffer("fitted", torch.tensor(False))
        self.register_buffer("pooled", torch.zeros(num_classes, *units.shape[2:]))
        if options.pca_dim is not None:
            self.register_buffer("origin", torch.zeros(self.num_features))
            self.register_buffer("axes", torch.zeros(options.pca_dim, self.num_features))

    def _checked_dimensions(self) -> int:
        reduced = self.options.pca_dim
        if reduced is not None and reduced > self.num_features:
            raise ConfigError(
                f"surrogate.pca_dim={reduced}: must be at most {self.num_features}, the number of features of z"
            )
        size = self.num_features if reduced is None else reduced
        if self.options.covariance == "full" and size > MAX_FULL_DIMENSIONS:
            raise ConfigError(
                f"surrogate.covariance=full: z has {size} dimensions, a full covariance is limited to "
                f"{MAX_FULL_DIMENSIONS}; set surrogate.pca_dim to at most {MAX_FULL_DIMENSIONS} or choose diagonal"
            )
        return size

    def _evaluate(self, z: Tensor, y: Tensor, noise: Tensor | None) -> SurrogateOutput:
        raw = z.flatten(1)
        x = self._working(self._reduced(raw))
        groups = self._groups(y, x.dtype)
        row = groups.class_of_group.clamp_max(self.num_classes - 1)
        with torch.no_grad():
            responsibility = self._responsibilities(x.detach(), y.clamp(0, self.num_classes - 1), groups, row)
        hits = groups.one_hot.T @ responsibility
        share = self.weights[row].to(x.dtype)
        shrinkage = clusters.shrinkage(hits, share, self.class_counts[row])
        fitted_to = clusters.fitted_samples(share, self.class_counts[row])
        logdet = self._logdets(x, groups, row, responsibility, hits, shrinkage, fitted_to)
        excess = (logdet / self._divisor - self.floor.log()).relu()
        keep = (groups.counts >= 2) & (self.class_counts[row] > 0)
        counted = keep.unsqueeze(1) & (share > 0)
        num_counted = counted.sum().clamp_min(1)
        extra = {
            "active": (counted & (excess > 0)).sum().to(raw.dtype) / num_counted,
            "fitted": self.fitted.to(raw.dtype),
            "shrinkage": torch.where(counted, shrinkage, 0).sum().to(raw.dtype) / num_counted,
            "cluster_samples": torch.where(counted, fitted_to, 0).sum().to(raw.dtype) / num_counted,
        }
        if self.is_full:
            too_few = fitted_to <= self.num_dimensions
            extra["singular"] = (counted & too_few).sum().to(raw.dtype) / num_counted
        raw_groups = self._groups(y, raw.dtype)
        _, plain_variance = moments.class_moments(raw.detach(), raw_groups)
        if self.options.pca_dim is not None:
            _, kept = moments.class_moments(x.detach(), groups)
            extra["kept_variance"] = moments.mean_over_kept(share_of(kept, plain_variance), keep)
        plain = ((plain_variance + self.options.reg_covar).log().mean(1) - self.floor.log()).relu()
        extra["plain_loss"] = moments.share_weighted_sum(plain, keep, raw_groups)
        per_group = (share * excess).sum(1).to(raw.dtype)
        return self._output(per_group, keep, raw_groups, plain_variance, extra=extra)

    def _explain(self, z: Tensor, y: Tensor) -> dict[str, Tensor]:
        if not bool(self.fitted):
            return {}
        x = self._working(self._reduced(z.flatten(1)))
        groups = moments.group_by_class(y, self.num_classes, x.dtype)
        row = groups.class_of_group.clamp_max(self.num_classes - 1)
        shares = self._responsibilities(x, y.clamp(0, self.num_classes - 1), groups, row)
        return {"shares": shares.to(z.dtype)}

    @property
    def _divisor(self) -> int:
        return self.num_dimensions if self.options.per_dimension_log else 1

    def _working(self, x: Tensor) -> Tensor:
        """Full covariances are factored in float64: a class has fewer samples than they have directions."""
        return x.double() if self.is_full else x

    def _reduced(self, x: Tensor) -> Tensor:
        if self.options.pca_dim is None:
            return x
        return (x - self.origin.to(x.dtype)) @ self.axes.to(x.dtype).T

    def _responsibilities(self, x: Tensor, label: Tensor, groups: moments.Groups, row: Tensor) -> Tensor:
        """Responsibility [B, K] of each component of the sample's class for the sample."""
        logits = self.weights[label].to(x.dtype).log()
        means, factors = self.means.to(x.dtype), self.factors.to(x.dtype)
        columns = []
        for k in range(self.options.num_clusters):
            if self.is_full:
                # Every sample under every group, then its own: smaller than one [d, d] factor per sample.
                table = log_density(x.expand(len(row), -1, -1), means[row, k], factors[row, k])
                columns.append(torch.where(groups.members.T, table, 0).sum(0))
            else:
                columns.append(log_density(x.unsqueeze(1), means[label, k], factors[label, k]).squeeze(1))
        known = (self.class_counts[label] > 0).unsqueeze(1)
        return torch.where(known, logits + torch.stack(columns, 1), 0).softmax(1)

    def _logdets(
        self,
        x: Tensor,
        groups: moments.Groups,
        row: Tensor,
        responsibility: Tensor,
        hits: Tensor,
        shrinkage: Tensor,
        fitted_to: Tensor,
    ) -> Tensor:
        """The value logdet Σ̂_k of each (group, component), [G, K]."""
        columns = []
        pooled = self.pooled[row].to(x.dtype)
        # One component at a time: [B, K, D] is hundreds of MB for large features.
        for k in range(self.options.num_clusters):
            mean, factor = self.means[row, k].to(x.dtype), self.factors[row, k].to(x.dtype)
            deviation = x - moments.rows_of_samples(mean, groups)
            weights = groups.one_hot * responsibility[:, k : k + 1]
            total = hits[:, k].clamp_min(torch.finfo(x.dtype).tiny)
            a, missing = shrinkage[:, k], clusters.missing_variance(pooled, fitted_to[:, k])
            if self.is_full:
                scatter = (weights.T.unsqueeze(2) * deviation).transpose(1, 2) @ deviation
                a, total = a.view(-1, 1, 1), total.view(-1, 1, 1)
                mixed = a * (scatter / total + missing) + (1 - a) * (factor @ factor.transpose(1, 2))
                root, failed = torch.linalg.cholesky_ex(mixed)
                value = 2 * root.diagonal(dim1=1, dim2=2).log().sum(1)
                columns.append(torch.where(failed == 0, value, torch.nan))
            else:
                a, total = a.unsqueeze(1), total.unsqueeze(1)
                scatter = weights.T @ deviation.square()
                columns.append((a * (scatter / total + missing) + (1 - a) * factor.square()).log().sum(1))
        return torch.stack(columns, 1)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        clusters.add_pooled(state_dict, prefix, self.pooled)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    @torch.no_grad()
    def refresh(self, features: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Refit the mixtures on the (z, y) pairs of a pass over the training set.

        Classes absent from the features keep their state; with ``pca_dim`` they count as not fitted, as the
        principal directions are new.
        """
        x, y = clusters.collect(self._checked(features), self.num_classes, self.means)
        counts = torch.bincount(y, minlength=self.num_classes)
        with exact_arithmetic(x):
            if self.options.pca_dim is not None:
                x = self._renew_axes(x, y, counts)
            for rows, padded, mask in clusters.padded_classes(x, y, counts):
                self._refit(rows, self._working(padded), mask)
        keeps = counts > 0 if self.options.pca_dim is None else torch.ones_like(counts, dtype=torch.bool)
        self.class_counts.copy_(torch.where(keeps, counts, self.class_counts))
        self.fitted.fill_(True)

    def _renew_axes(self, x: Tensor, y: Tensor, counts: Tensor) -> Tensor:
        """The features in new principal directions of the spread inside classes; the stored means are converted too.

        The principal directions of all features would be those that separate the classes: they contain little spread.
        """
        restored = self.means @ self.axes + self.origin
        self.origin.copy_(x.mean(0))
        self.axes.copy_(principal_axes(clusters.around_class_means(x, y, counts), len(self.axes)))
        self.means.copy_(self._reduced(restored))
        return self._reduced(x)

    def _refit(self, rows: Tensor, x: Tensor, mask: Tensor) -> None:
        """Fit the classes in ``rows`` on x [R, M, d], padded; mask [R, M] marks the real samples."""
        x, mean = clusters.centred(x, mask)
        stored = self.means[rows].to(x.dtype) - mean
        centres = clusters.first_centres(x, mask, stored, self.class_counts[rows] > 0)
        centres, labels = clusters.lloyd(x, mask, centres, self.options.max_iterations)
        chosen = clusters.one_hot(labels, mask, centres)
        start = maximise(x, chosen, centres, reg_covar=self.options.reg_covar, full=self.is_full)
        mixture = fit_mixtures(x, mask, start, self.options.em_iterations, reg_covar=self.options.reg_covar)
        present = mask.any(1)
        if self.options.small_sample_correction:
            mixture, pooled = corrected(mixture, x, mask)
            clusters.store(self.pooled, rows, present, pooled)
        clusters.store(self.means, rows, present, mixture.means + mean)
        clusters.store(self.factors, rows, present, mixture.factors)
        clusters.store(self.weights, rows, present, mixture.weights)


def fit_mixtures(x: Tensor, mask: Tensor, start: Mixture, steps: int, *, reg_covar: float) -> Mixture:
    """The mixtures after ``steps`` of expectation maximisation in all classes at once; x [R, M, d], mask [R, M]."""
    mixture = start
    full = start.factors.dim() > start.means.dim()
    for _ in range(steps):
        responsibility = expect(x, mask, mixture)
        mixture = maximise(x, responsibility, mixture.means, reg_covar=reg_covar, full=full)
    return mixture


def corrected(mixture: Mixture, x: Tensor, mask: Tensor) -> tuple[Mixture, Tensor]:
    """Mixtures fitted to centred x [R, M, d] with the small-sample correction; pooled (co)variances [R, d(, d)]."""
    hits = clusters.fitted_samples(mixture.weights, mask.sum(1))
    full = mixture.factors.dim() > mixture.means.dim()
    covariances = mixture.factors @ mixture.factors.mT if full else mixture.factors.square()
    within = torch.einsum("rk,rk...->r...", hits, covariances)
    pooled = clusters.pooled_variance(within, clusters.sums(x, x) if full else x.square().sum(1), hits)
    added = torch.stack([clusters.missing_variance(pooled, column) for column in hits.unbind(1)], 1)
    factors = _cholesky(covariances + added) if full else (covariances + added).sqrt()
    return mixture._replace(factors=factors), pooled


def expect(x: Tensor, mask: Tensor, mixture: Mixture) -> Tensor:
    """Responsibility of each component for each sample, [R, M, K]; zeros for padding."""
    pairs = zip(mixture.means.unbind(1), mixture.factors.unbind(1), strict=True)
    densities = torch.stack([log_density(x, mean, factor) for mean, factor in pairs], 2)
    shares = (mixture.weights.log().unsqueeze(1) + densities).softmax(2)
    return torch.where(mask.unsqueeze(2), shares, 0)


def maximise(x: Tensor, responsibility: Tensor, means: Tensor, *, reg_covar: float, full: bool) -> Mixture:
    """Mixtures whose moments are those of x [R, M, d] under the responsibilities [R, M, K].

    A component without samples gets weight 0 and keeps its place in ``means``.
    """
    hits = responsibility.sum(1)
    total = hits.clamp_min(torch.finfo(x.dtype).tiny).unsqueeze(2)
    means = torch.where(hits.unsqueeze(2) > 0, clusters.sums(responsibility, x) / total, means)
    factors = []
    for k in range(hits.shape[1]):
        deviation = x - means[:, k : k + 1]
        weights = responsibility[:, :, k : k + 1]
        if full:
            scatter = clusters.sums(weights * deviation, deviation) / total[:, k : k + 1]
            factors.append(_cholesky(scatter + reg_covar * torch.eye(x.shape[2], dtype=x.dtype, device=x.device)))
        else:
            factors.append((clusters.sums(weights, deviation.square()).squeeze(1) / total[:, k] + reg_covar).sqrt())
    return Mixture(hits / hits.sum(1, keepdim=True).clamp_min(1), means, torch.stack(factors, 1))


def log_density(x: Tensor, mean: Tensor, factor: Tensor) -> Tensor:
    """Log density [R, M] of x [R, M, d] under R Gaussians, without its constant −(d/2) log 2π."""
    deviation = x - mean.unsqueeze(1)
    if factor.dim() > mean.dim():
        white: Tensor = torch.linalg.solve_triangular(factor, deviation.transpose(1, 2), upper=False)
        return -0.5 * white.square().sum(1) - factor.diagonal(dim1=1, dim2=2).log().sum(1, keepdim=True)
    return -0.5 * (deviation / factor.unsqueeze(1)).square().sum(2) - factor.log().sum(1, keepdim=True)


def share_of(part: Tensor, whole: Tensor) -> Tensor:
    """Share [G] of a class's variance [G, D] that lies in some directions, whose variances are ``part`` [G, d]."""
    total = whole.sum(1)
    return torch.where(total > 0, part.sum(1).to(total.dtype) / total, 1).clamp_max(1)


def principal_axes(x: Tensor, num_axes: int) -> Tensor:
    """The leading principal directions [num_axes, D] of centred x [N, D], by subspace iteration."""
    generator = torch.Generator().manual_seed(clusters.SEED)
    width = min(num_axes + OVERSAMPLING, x.shape[1])
    basis: Tensor = torch.randn(x.shape[1], width, generator=generator, dtype=torch.float64).to(x)
    for _ in range(POWER_ROUNDS):
        basis = torch.linalg.qr(x.T @ (x @ basis)).Q
    reduced = x @ basis
    vectors: Tensor = torch.linalg.eigh(reduced.T @ reduced).eigenvectors
    return (basis @ vectors.flip(1)[:, :num_axes]).T


def _cholesky(covariance: Tensor) -> Tensor:
    factor: Tensor
    factor, failed = torch.linalg.cholesky_ex(covariance)
    if bool(failed.any()):
        raise ValueError(
            "refresh: a full covariance is singular in float64; raise surrogate.reg_covar or choose "
            "surrogate.covariance=diagonal"
        )
    return factor
