"""Codings: the cells of a leakage bound and the shape of the densities in them, learned from training images."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from attncem.judging.certificates.kernels import KernelJudged
from attncem.judging.certificates.mixture import Judged
from attncem.training.surrogates import clusters

OF_CELLS = ("full", "kernel")
"""Shapes with axes of each cell."""
SOFT_AXES = 2**18
"""Each image is turned to the axes of every cell up to this many numbers of all axes."""
_ITERATIONS = 50


@dataclass(frozen=True)
class Sample:
    """The noise's input of images, their labels, and the server's answers to clean z (None: there is no server)."""

    features: Tensor
    labels: Tensor
    answers: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, which: slice | Tensor) -> Sample:
        answers = None if self.answers is None else self.answers[which]
        return Sample(self.features[which], self.labels[which], answers)


@dataclass(frozen=True)
class Wanted:
    """The cells and the shape of a coding, by their names in the options.

    ``inside``: the label is free, and all cells lie inside its classes. ``pull`` is the a of the kernels.
    """

    cells: str
    shape: str
    num_classes: int
    clusters: int
    inside: bool = False
    pull: float | None = None

    @property
    def by(self) -> str:
        """Its name in results."""
        return f"{self.cells}, {self.shape}"


@dataclass(frozen=True)
class Coding:
    """A partition of the features, and the axes along which their spread is measured, learned from training images.

    ``axes`` are [m, m], or [K, m, m] if each cell has its own; None: the features.
    """

    wanted: Wanted
    centres: Tensor | None = None
    axes: Tensor | None = None

    @property
    def num_cells(self) -> int:
        """Number of cells."""
        if self.wanted.cells == "one":
            return 1
        if self.wanted.cells == "answer" and self.wanted.inside:
            return 2 * self.wanted.num_classes
        return self.wanted.num_classes * (1 if self.centres is None else self.centres.shape[1])

    def cell_of(self, sample: Sample) -> Tensor:
        """The cell of each image, from its clean feature, its label and the answer to its clean feature."""
        if self.wanted.cells == "one":
            return torch.zeros_like(sample.labels)
        if self.wanted.cells == "answer":
            assert sample.answers is not None
            return 2 * sample.labels + (sample.answers != sample.labels) if self.wanted.inside else sample.answers
        if self.centres is not None:
            return nearest_cells(sample.features, sample.labels, self.centres)
        return sample.labels

    def groups(self, device: torch.device) -> Tensor | None:
        """The class of each cell where the label is free."""
        if not self.wanted.inside:
            return None
        return torch.arange(self.num_cells, device=device) * self.wanted.num_classes // self.num_cells

    def judged(self, law: str, sample: Sample, seed: int) -> Judged | KernelJudged:
        """Images that are judged by each other in these cells and axes."""
        cells = self.cell_of(sample)
        arguments = sample.features, cells, self.num_cells, seed
        common: dict[str, Any] = {"groups": self.groups(cells.device), "soft": self._is_soft, "axes": self.axes}
        if self.wanted.pull is not None:
            return KernelJudged(*arguments, pull=self.wanted.pull, **common)
        return Judged(law, *arguments, pooled=self.wanted.shape == "shared", **common)

    @property
    def _is_soft(self) -> bool:
        """Whether all cells count for each image: turning it to the axes of every cell must not take long."""
        if self.axes is None or self.axes.dim() == 2:
            return True
        return not self.wanted.inside and self.axes.numel() <= SOFT_AXES


class Learner:
    """Learns cells and axes from training images; what several codings share is computed once."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self._centres: dict[int, Tensor] = {}
        self._axes: dict[str, Tensor] = {}

    def coding(self, wanted: Wanted) -> Coding:
        """One coding."""
        coding = Coding(wanted, self._centres_of(wanted) if wanted.cells == "cluster" else None)
        return replace(coding, axes=None if wanted.shape == "features" else self._axes_of(coding))

    def _centres_of(self, wanted: Wanted) -> Tensor:
        if wanted.clusters not in self._centres:
            features, labels = self.sample.features, self.sample.labels
            self._centres[wanted.clusters] = class_clusters(features, labels, wanted.num_classes, wanted.clusters)
        return self._centres[wanted.clusters]

    def _axes_of(self, coding: Coding) -> Tensor:
        of_cells = coding.wanted.shape in OF_CELLS
        key, features = coding.wanted.cells if of_cells else "", self.sample.features
        if key not in self._axes and of_cells:
            self._axes[key] = axes_of_cells(features, coding.cell_of(self.sample), coding.num_cells)
        elif key not in self._axes:
            self._axes[key] = principal_axes(features, self.sample.labels)
        return self._axes[key]


def principal_axes(features: Tensor, labels: Tensor) -> Tensor:
    """Orthonormal axes [m, m] in which the spread inside classes is uncorrelated."""
    axes: Tensor = torch.linalg.eigh(_spread_inside(features, labels) / max(1, len(features))).eigenvectors
    return axes.to(features.dtype)


def axes_of_cells(features: Tensor, cells: Tensor, num_cells: int) -> Tensor:
    """Principal axes [K, m, m] of each cell, with the spread of all cells as a prior of m images.

    The prior keeps them those of all cells where a cell has few images.
    """
    size = features.shape[1]
    pooled = _spread_inside(features, cells) / max(1, len(features))
    axes = features.new_empty(num_cells, size, size)
    for cell in range(num_cells):
        away = features[cells == cell].double()
        away = away - away.mean(0) if len(away) else away
        axes[cell] = torch.linalg.eigh(away.T @ away + size * pooled).eigenvectors.to(features.dtype)
    return axes


def _spread_inside(features: Tensor, cells: Tensor) -> Tensor:
    """Sum over images of the products of the distances to the mean of their cell, [m, m]."""
    total = torch.zeros(features.shape[1], features.shape[1], dtype=torch.float64, device=features.device)
    for cell in cells.unique():
        away = features[cells == cell].double()
        away -= away.mean(0)
        total.addmm_(away.T, away)
    return total


def class_clusters(features: Tensor, labels: Tensor, num_classes: int, count: int) -> Tensor:
    """Centres [C, count, m] of clusters of each class, by Lloyd's iterations."""
    centres = features.new_zeros(num_classes, count, features.shape[1])
    counts = torch.bincount(labels, minlength=num_classes)
    for rows, padded, mask in clusters.padded_classes(features, labels, counts):
        x, mean = clusters.centred(padded, mask)
        learned, _ = clusters.lloyd(x, mask, clusters.seed_centres(x, mask, count), _ITERATIONS)
        centres[rows] = learned + mean
    return centres


def nearest_cells(features: Tensor, labels: Tensor, centres: Tensor) -> Tensor:
    """Class times K plus the index of the nearest of the label's K centres."""
    cells = torch.zeros_like(labels)
    for label in labels.unique():
        rows = labels == label
        cells[rows] = label * centres.shape[1] + torch.cdist(features[rows], centres[label]).argmin(1)
    return cells
