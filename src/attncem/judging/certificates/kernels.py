"""A kernel mixture as a density of what is released: one component for each image of the other folds in the cell.

The component of an image with feature c in a cell with mean μ is normal, with centre a c + (1 − a) μ and variance
(1 − a²) v + σ² along the axes of the cell, with variances v. With a = 0 all components are the normal law of the cell;
with a = 1 they are the images with the noise. The expectation over the noise is taken by fresh draws of log p(noise) −
log q(z): their mean has the right expectation whatever their number.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attncem.base.seeding import make_generator
from attncem.judging.certificates.mixture import Fit, Moments, folds_of, sum_of, turned

PULLS = (0.4, 0.6, 0.8)
"""The values of a that are tried."""
DRAWS = 1
"""Draws of the noise for each image."""
_SPARE = 0.5
"""Weight, in images, of the normal law of the cell among its components, for images that are unlike all others."""
_NUMBERS = 2**23
"""Limit on the numbers that are in memory at once."""


class KernelJudged:
    """Images that are judged by a kernel mixture of the images of the other folds; ``pull`` is a.

    ``axes`` [K, m, m] are those of the cells. ``groups`` [K], the class of each cell, make the label free. ``soft``:
    the mixtures of all cells count.
    """

    def __init__(
        self,
        features: Tensor,
        cells: Tensor,
        num_cells: int,
        seed: int,
        *,
        pull: float,
        axes: Tensor,
        groups: Tensor | None = None,
        soft: bool = False,
    ) -> None:
        self.features, self.cells, self.seed, self.pull, self.axes = features, cells, seed, pull, axes
        self.soft = soft and groups is None and num_cells > 1
        self.folds = folds_of(len(features), seed, features.device)
        self._turned = turned(features, cells, axes)
        shift = self._turned.mean(0)
        parts = [Moments.of(self._turned[fold], cells[fold], num_cells, shift) for fold in self.folds]
        whole = sum_of(parts)
        self.fits = [(whole - part).fit(shift, groups, pooled=False) for part in parts]

    def values(self, std: float, releases: int = 1, most: int | None = None) -> NDArray[np.float64]:
        """Nats of each image, or of the first `most`; their mean is at least I in expectation."""
        nats = torch.zeros(len(self.features), dtype=torch.float64, device=self.features.device)
        noise, size = make_generator(self.features.device, self.seed, "noise of the kernels"), std / releases**0.5
        for fold, fit in zip(self.folds, self.fits, strict=True):
            rows = fold if most is None else fold[fold < most]
            for _ in range(DRAWS):
                shape = len(rows), self.features.shape[1]
                drawn = torch.randn(shape, generator=noise, dtype=torch.float64, device=rows.device)
                density = self._log_density(fit, fold, rows, drawn, size)
                nats[rows] -= (density + 0.5 * drawn.square().sum(1)) / DRAWS
        return np.asarray(nats[:most].cpu().numpy())

    def _log_density(self, fit: Fit, fold: Tensor, rows: Tensor, drawn: Tensor, size: float) -> Tensor:
        """The log density of the releases of some images, by all images outside their fold."""
        kept = torch.ones(len(self.features), dtype=torch.bool, device=rows.device)
        kept[fold] = False
        total = drawn.new_full((len(rows),), -torch.inf)
        seen, cells = self.features[rows].double() + size * drawn, self.cells[rows]
        for cell in range(len(self.axes)) if self.soft else cells.unique().tolist():
            judged = slice(None) if self.soft else cells == cell
            mixture = Mixture(fit, cell, self._turned[kept & (self.cells == cell)], self.pull)
            density = mixture.log_density(seen[judged] @ self.axes[cell].double(), size)
            total[judged] = torch.logaddexp(total[judged], density)
        return total


class Mixture:
    """The density of what is released in one cell: a component for each other image, and the normal law of the cell."""

    def __init__(self, fit: Fit, cell: int, others: Tensor, pull: float) -> None:
        self.log_share, self.centre, self.spread = fit.log_shares[cell], fit.centres[cell], fit.spreads[cell]
        self.others, self.pull = pull * (others.double() - self.centre), pull

    def log_density(self, seen: Tensor, size: float) -> Tensor:
        """The log of share times density for releases, relative to the density of the noise at 0."""
        away, wide = seen - self.centre, self.spread + size**2
        normal = self.log_share - 0.5 * (away.square() / wide + (wide / size**2).log()).sum(1)
        if not len(self.others):
            return normal
        narrow = (1 - self.pull**2) * self.spread + size**2
        scaled, near = self.others / narrow.sqrt(), []
        for part in (away / narrow.sqrt()).split(max(1, _NUMBERS // len(scaled))):
            products = torch.addmm(-0.5 * scaled.square().sum(1), part, scaled.T)
            near.append(products.logsumexp(1) - 0.5 * part.square().sum(1))
        density = self.log_share + torch.cat(near) - 0.5 * (narrow / size**2).log().sum()
        return torch.logaddexp(density, normal + math.log(_SPARE)) - math.log(len(scaled) + _SPARE)
