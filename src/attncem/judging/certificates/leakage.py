"""The leakage bound: the most nats that the releases of one image can leak about it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from attncem.base.texts import written
from attncem.base.types import NotApplicable
from attncem.config.options.certificates import LeakageOptions
from attncem.judging.certificates.making import largest_entropy, measured
from attncem.judging.certificates.mixture import Judged
from attncem.judging.certificates.passage import (
    Noise,
    assumptions_of,
    evaluation_features,
    noise_of,
    releases_of,
    training_features,
    unknown_stage,
)
from attncem.judging.judges import Certificate
from attncem.models.channels import Channel
from attncem.records.bounds import Bound
from attncem.training.surrogates import clusters

if TYPE_CHECKING:
    from attncem.judging.case import Case

MOST_AXES = 2048
"""Principal axes are computed up to this many features."""
_ITERATIONS = 50


class Leakage(Certificate):
    """H(J) + the capacity of the channel inside the cells J, on images that nothing was fitted to."""

    options_type = LeakageOptions
    options: LeakageOptions

    def bound(self, case: Case, *, seed: int) -> Mapping[str, Bound]:
        """`leakage` of all releases that the adversary sees of one image."""
        ground = ground_of(case, self.options)
        self.images = {"leakage": ground.judged.values(ground.noise.std, ground.releases)}
        return {"leakage": ground.bound(case)}


@dataclass(frozen=True)
class Coding:
    """A partition of the features, and the axes along which their spread is measured, learned from training images."""

    cells: str
    num_classes: int
    centres: Tensor | None = None
    axes: Tensor | None = None

    @property
    def axes_named(self) -> str:
        """The name of the axes in the options."""
        return "features" if self.axes is None else "principal"

    @property
    def num_cells(self) -> int:
        """Number of cells."""
        if self.cells == "one":
            return 1
        return self.num_classes * (1 if self.centres is None else self.centres.shape[1])

    def cell_of(self, features: Tensor, labels: Tensor) -> Tensor:
        """The cell of each image, from its clean feature and its label."""
        if self.cells == "one":
            return torch.zeros_like(labels)
        return labels if self.centres is None else nearest_cells(features, labels, self.centres)

    def judged(self, law: str, features: Tensor, labels: Tensor, seed: int) -> Judged:
        """Images that are judged by each other in these cells and axes."""
        cells = self.cell_of(features, labels)
        turned = features if self.axes is None else features @ self.axes
        return Judged(law, turned, cells, self.num_cells, seed)


@dataclass(frozen=True)
class Ground:
    """The basis of the bounds by noise: the noise, the number of draws seen, and the images with their coding."""

    noise: Noise
    releases: int
    coding: Coding
    judged: Judged

    def bound(self, case: Case, releases: int | None = None) -> Bound:
        """The leakage of `releases` releases; by default, of those that the adversary sees."""
        values = self.judged.values(self.noise.std, releases or self.releases)
        found = measured(values, "nats", "leakage", assumptions_of(self.noise))
        vacuous = found.claim >= largest_entropy(case.x.shape[1:])
        return replace(found, vacuous=vacuous, by=f"{self.coding.cells}, {self.coding.axes_named}")


def ground_of(case: Case, options: LeakageOptions | None = None) -> Ground:
    """The basis of the bounds by noise, computed once for all certificates of a case."""
    chosen = options or LeakageOptions()
    noise = noise_of(case.model.channel)
    releases = releases_of(case, noise)
    key = "ground", chosen.cells, chosen.axes, chosen.clusters, releases
    if key not in case.remembered:
        coding = choose_coding(case, noise, chosen, releases)
        features = evaluation_features(case, noise)
        case.remembered[key] = Ground(noise, releases, coding, coding.judged(noise.law, features, case.y, case.seed))
    found: Ground = case.remembered[key]
    return found


def choose_coding(case: Case, noise: Noise, options: LeakageOptions, releases: int) -> Coding:
    """Learn cells and axes from every second training image, and choose the best of them on the others."""
    features, labels = training_features(case, noise)
    if options.axes == "principal" and noise.law != "gaussian":
        raise NotApplicable(written("reason.axes_normal"))
    if options.axes == "principal" and features.shape[1] > MOST_AXES:
        raise NotApplicable(written("reason.axes_many", count=MOST_AXES))
    classes = case.subject.spec.num_classes
    if options.cells == "class" and not classes:
        raise NotApplicable(written("reason.cells_by_class"))
    # Images without labels form one class.
    found = list(_codings(features[::2], labels[::2], max(1, classes), noise, options))
    if len(found) == 1:
        return found[0]

    def nats(coding: Coding) -> float:
        judged = coding.judged(noise.law, features[1::2], labels[1::2], case.seed)
        return float(judged.values(noise.std, releases).mean())

    return min(found, key=nats)


def _codings(
    features: Tensor, labels: Tensor, num_classes: int, noise: Noise, options: LeakageOptions
) -> Iterator[Coding]:
    kinds = ("one", "class", "cluster") if options.cells == "best" else (options.cells,)
    turned = noise.law == "gaussian" and features.shape[1] <= MOST_AXES
    named = ("features", *(["principal"] if turned else [])) if options.axes == "best" else (options.axes,)
    axes = {"features": None, "principal": principal_axes(features, labels) if "principal" in named else None}
    for kind in kinds:
        centres = class_clusters(features, labels, num_classes, options.clusters) if kind == "cluster" else None
        yield from (Coding(kind, num_classes, centres, axes[name]) for name in named)


def principal_axes(features: Tensor, labels: Tensor) -> Tensor:
    """Orthonormal axes [m, m] in which the spread inside classes is uncorrelated."""
    away = features.double()
    for label in labels.unique():
        away[labels == label] -= away[labels == label].mean(0)
    axes: Tensor = torch.linalg.eigh(away.T @ away / max(1, len(away))).eigenvectors
    return axes.to(features.dtype)


def class_clusters(features: Tensor, labels: Tensor, num_classes: int, count: int) -> Tensor:
    """Centres [C, count, m] of clusters of each class, by Lloyd's iterations."""
    centres = features.new_zeros(num_classes, count, features.shape[1])
    counts = torch.bincount(labels, minlength=num_classes)
    for rows, padded, mask in clusters.padded_classes(features, labels, counts):
        x, mean = clusters.centred(padded, mask)
        found, _ = clusters.lloyd(x, mask, clusters.seed_centres(x, mask, count), _ITERATIONS)
        centres[rows] = found + mean
    return centres


def nearest_cells(features: Tensor, labels: Tensor, centres: Tensor) -> Tensor:
    """Class times K plus the index of the nearest of the label's K centres."""
    cells = torch.zeros_like(labels)
    for label in labels.unique():
        own = labels == label
        cells[own] = label * centres.shape[1] + torch.cdist(features[own], centres[label]).argmin(1)
    return cells


@dataclass(frozen=True)
class Upper:
    """The smallest upper bound on the leakage from noise or bits, in nats."""

    value: float
    claim: float
    assumptions: list[str]


def upper_leakage(case: Case) -> Upper:
    """The bound by the noise at 95 % confidence, or by the bits of a release if lower; NotApplicable: neither."""
    bits = bits_of_releases(case)
    try:
        ground = ground_of(case)
    except NotApplicable:
        if bits is None:
            raise
        return Upper(bits, bits, [])
    found = ground.bound(case)
    if bits is not None and bits <= found.claim:
        return Upper(bits, bits, [])
    return Upper(found.value, found.claim, found.assumptions)


def bits_of_releases(case: Case) -> float | None:
    """Nats that the bits of all seen releases can hold; None: the number of bits is unknown."""
    channel: nn.Module = case.model.channel
    if not isinstance(channel, Channel) or channel.bits_per_feature is None or unknown_stage(channel):
        return None
    many = 1 if channel.repeats and not case.threat.jitter else case.threat.releases_per_input  # jittered pixels differ
    return many * case.released[0].numel() * channel.bits_per_feature * math.log(2)
