"""What probes share: standardised releases, a linear head in closed form, and statistics as means over images.

A row's score is the mean of a number of each image, with a bootstrap interval. Balanced accuracy and the area under
the curve are no such means. Their linearised values are: they average exactly to the statistic, and their spread equals
its error to first order (for the area this is the variance of DeLong et al. 1988).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Numbers = NDArray[np.float64]

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
"""Ridge strengths tried, relative to the mean eigenvalue of the features' scatter."""
_RANK = 1e-10
"""Directions with less scatter than this, relative to the largest or to 1, are rounding."""
_ROUNDING = 1e-5
"""An entry of a release that varies by less than this share of the releases' size counts as constant."""


class Standardised:
    """Centres and scales releases by those that the adversary learns from, and flattens them to [B, features].

    An entry that hardly varies is divided by a tenth of the mean deviation. Rounding stays small; it could otherwise
    reveal how images were batched.
    """

    def __init__(self, released: Tensor) -> None:
        flat = released.flatten(1).double()
        std = flat.std(0)
        least = max(0.1 * float(std.mean()), _ROUNDING * float(flat.square().mean().sqrt()), 1e-12)
        self._mean, self._std = flat.mean(0), std.clamp_min(least)

    def __call__(self, released: Tensor) -> Tensor:
        """(released - mean) / std, in double precision."""
        return (released.flatten(1).double() - self._mean) / self._std


@dataclass(frozen=True)
class Head:
    """A linear map from features to scores; ``left_out`` holds each row's scores by a map fitted without that row."""

    centre: Tensor
    weights: Tensor
    bias: Tensor
    left_out: Tensor
    error: float

    def __call__(self, features: Tensor) -> Tensor:
        """Scores [B, targets]."""
        return (features.double() - self.centre) @ self.weights + self.bias


def fit_head(features: Tensor, targets: Tensor, strengths: Sequence[float] = STRENGTHS) -> Head:
    """Ridge regression in closed form, with the strength of the lowest leave-one-out error, which is exact."""
    features, targets = features.double(), targets.double()
    centre, bias = features.mean(0), targets.mean(0)
    phi, wanted = features - centre, targets - bias
    values, vectors = _spectrum(phi)
    inside = phi @ vectors
    moment = inside.T @ wanted
    scale = values.mean() if len(values) else torch.ones((), dtype=phi.dtype, device=phi.device)
    heads = []
    for strength in strengths:
        shrunk = values + strength * scale
        solution = moment / shrunk[:, None]
        own = (inside.square() / shrunk).sum(1) + 1 / len(phi)
        missed = (wanted - inside @ solution) / (1 - own).clamp_min(1e-6)[:, None]
        heads.append(Head(centre, vectors @ solution, bias, targets - missed, float(missed.square().mean())))
    return min(heads, key=lambda head: head.error)


def _spectrum(phi: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of phi'phi, without rounding directions; uses the smaller of the two products."""
    wide = phi.shape[1] > len(phi)
    values, vectors = torch.linalg.eigh(phi @ phi.T if wide else phi.T @ phi)
    kept = values > _RANK * max(1.0, float(values[-1]))
    values, vectors = values[kept], vectors[:, kept]
    return values, phi.T @ vectors / values.sqrt() if wide else vectors


def class_means(features: Tensor, member: Tensor) -> Tensor:
    """Mean of the features of each class, [classes, features]; a class without members gets the overall mean."""
    count = member.sum(0)[:, None]
    return torch.where(count > 0, member.T @ features / count.clamp_min(1), features.mean(0))


def balanced_values(values: Numbers, labels: NDArray[np.int64]) -> Numbers:
    """Numbers whose mean is the mean of the class means, so that every class has equal weight."""
    classes, of, counts = np.unique(labels, return_inverse=True, return_counts=True)
    means = np.bincount(of, values) / counts
    weight = len(values) / (len(classes) * counts)
    linear: Numbers = means.mean() + weight[of] * (values - means[of])
    return linear


def area_values(inside: Numbers, outside: Numbers) -> Numbers:
    """Numbers of each pair whose mean is the area under the curve: how often a member scores above another image."""
    above = (inside[:, None] > outside) + 0.5 * (inside[:, None] == outside)
    values: Numbers = above.mean(1) + above.mean(0) - above.mean()
    return values
