"""Clustering: how much of the division into classes the observed releases show without a single label."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attncem.base.seeding import derive_seed
from attncem.base.texts import written
from attncem.base.types import NotApplicable
from attncem.config.options.probes import ClusteringOptions
from attncem.judging.judges import Probe
from attncem.judging.probes.base import Numbers, Standardised
from attncem.records.findings import finding

if TYPE_CHECKING:
    from attncem.judging.case import Case

Integers = NDArray[np.int64]

_SCALED = 2000
"""Number of releases that standardise the others."""
_PERMUTATIONS = 100
"""Permutations of the labels whose mean score is the chance level."""
_ROUNDING = 1e-6
"""Components with less variance than this, relative to the largest or to 1, are rounding."""
_RIDGE = 1e-3
"""Added to the variances of the mixture, relative to the mean variance of the components."""


class Clustering(Probe):
    """Clusters of the observed releases, each matched to a class: by k-means, and by a Gaussian mixture.

    The adversary knows the number of classes. It needs no images, labels or queries: the labels of the evaluation
    images only match the clusters to classes, after all clusters are fixed.
    """

    options_type = ClusteringOptions
    options: ClusteringOptions
    needs = frozenset({"observed"})

    def score(self, case: Case, *, seed: int) -> Mapping[str, Numbers]:
        """For each method: whether the image's cluster is matched to its class, and its part of the information."""
        if not case.subject.spec.num_classes:
            raise NotApplicable(written("subject.lacks.labels"))
        labels = case.y.cpu().numpy()
        if len(np.unique(labels)) < 2:
            raise NotApplicable(written("reason.one_class"))
        seen = torch.cat([part.flatten(1).cpu() for part in case.seen_by(self, len(case.x))])
        with import_module("threadpoolctl").threadpool_limits(1):  # sums of several threads differ between two runs
            clusters = self._clusters(seen, case.subject.spec.num_classes, seed)
        values: dict[str, Numbers] = {}
        for method, of_each in clusters.items():
            blind = chance_scores(of_each, labels, derive_seed(seed, "permutations"))
            self.chance |= {f"{method}_accuracy": blind[0], f"{method}_nats": blind[1]}
            values[f"{method}_accuracy"] = matched(of_each, labels)
            values[f"{method}_nats"] = information(of_each, labels)
        return values

    def _clusters(self, seen: Tensor, count: int, seed: int) -> dict[str, Integers]:
        """The cluster of each release by each method, fitted on at most `fitted` of them."""
        order = np.random.default_rng(derive_seed(seed, "clusters")).permutation(len(seen))
        part = order[: self.options.fitted]
        if len(part) < len(seen):
            self.findings.append(finding("clusters_of_part", fitted=len(part), count=len(seen)))
        state = derive_seed(seed, "starts") % 2**31
        features = components(seen, part, self.options.components, state)
        clusters: dict[str, Integers] = {}
        for done, (method, fit) in enumerate(_METHODS.items()):
            self.progress("clustering", done, len(_METHODS), {})
            clusters[method] = fitted(fit, features, part, count, self.options.starts, state)
        return clusters


def components(seen: Tensor, part: Integers, count: int, state: int) -> Numbers:
    """The first principal components of the standardised releases; none where nothing varies."""
    standardised = Standardised(seen[part[:_SCALED]])
    flat = np.concatenate([standardised(rows).float().numpy() for rows in seen.split(_SCALED)])
    if not flat[part].any():
        return np.zeros((len(seen), 0))
    pca = import_module("sklearn.decomposition").PCA(min(count, len(part), flat.shape[1]), random_state=state)
    pca.fit(flat[part])
    variances = pca.explained_variance_
    kept = variances > _ROUNDING * max(1.0, float(variances[0]))
    features: Numbers = pca.transform(flat)[:, kept].astype(np.float64)
    return features


Fit = Callable[[Numbers, int, int, int], Any]
"""Clusters of the features: their number, the number of starts, the random state. The result has `predict`."""


def fitted(fit: Fit, features: Numbers, part: Integers, count: int, starts: int, state: int) -> Integers:
    """The cluster of each row; there are at most as many clusters as rows that differ."""
    learned = features[part]
    count = min(count, len(np.unique(learned, axis=0))) if features.shape[1] else 1
    if count < 2:
        return np.zeros(len(features), dtype=np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", import_module("sklearn.exceptions").ConvergenceWarning)
        clusters: Integers = fit(learned, count, starts, state).predict(features).astype(np.int64)
    return clusters


def _kmeans(features: Numbers, count: int, starts: int, state: int) -> Any:
    """The k-means clusters with the smallest sum of squares of several starts."""
    return import_module("sklearn.cluster").KMeans(count, n_init=starts, random_state=state).fit(features)


def _mixture(features: Numbers, count: int, starts: int, state: int) -> Any:
    """The Gaussian mixture with the highest likelihood of several starts; its clusters share one covariance."""
    mixture = import_module("sklearn.mixture").GaussianMixture(
        count,
        covariance_type="tied",
        n_init=starts,
        reg_covar=_RIDGE * float(features.var(0).mean()),
        random_state=state,
    )
    return mixture.fit(features)


_METHODS: dict[str, Fit] = {"kmeans": _kmeans, "mixture": _mixture}


def matched(clusters: Integers, labels: Integers) -> Numbers:
    """Whether each image is of the class of its cluster, under the one-to-one matching with the most such images."""
    from scipy.optimize import linear_sum_assignment  # its import takes time that other probes avoid

    pairs = linear_sum_assignment(_counts(clusters, labels), maximize=True)
    class_of = np.full(clusters.max() + 1, -1)
    class_of[pairs[0]] = pairs[1]
    right: Numbers = (class_of[clusters] == labels).astype(np.float64)
    return right


def information(clusters: Integers, labels: Integers) -> Numbers:
    """Pointwise information in nats, whose mean is the mutual information of cluster and class."""
    counts = _counts(clusters, labels)
    shares = counts.sum(1)[clusters] * counts.sum(0)[labels] / len(labels)
    nats: Numbers = np.log(counts[clusters, labels] / shares)
    return nats


def chance_scores(clusters: Integers, labels: Integers, seed: int) -> tuple[float, float]:
    """Mean accuracy and information of the clusters for permuted labels, which do not depend on the releases.

    The matching is chosen after the fact, so even these labels fit better than 1 / classes.
    """
    rng = np.random.default_rng(seed)
    permuted = [rng.permutation(labels) for _ in range(_PERMUTATIONS)]
    accuracy = np.mean([matched(clusters, one).mean() for one in permuted])
    return float(accuracy), float(np.mean([information(clusters, one).mean() for one in permuted]))


def _counts(clusters: Integers, labels: Integers) -> Numbers:
    """Number of images of each cluster [rows] and class [columns]."""
    counts = np.zeros((clusters.max() + 1, labels.max() + 1))
    np.add.at(counts, (clusters, labels), 1)
    return counts
