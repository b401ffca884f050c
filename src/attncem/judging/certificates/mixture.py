"""An upper bound on I(x; released) as a mean over images: cells, and a spread in each, fitted on other images.

Let z = u + noise and J be a function of u or of the label. I(x; z) ≤ H(J) + h(z | J) − h(noise). For any density q_j of
z in a cell and any shares p of the cells, h(z | J) ≤ −E log q_J(z) and H(J) ≤ −E log p_J. So for any fit, the mean of
−log p_J − E log q_J(z) − h(noise) over images that it was not fitted to is at least I (docs/certificates.md).
With normal q_j and the law's own variances it is H(J) + Σ_j p_j ½ Σ_i log(1 + v_ij/σ²).
`soft` cells need no J: −log Σ_j p_j e^(E log q_j(z)) − h(noise) is never larger, and by Jensen's inequality still a
bound. With `groups`, cells are inside classes and the label is free: shares count inside the class, I(x; z | y).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attncem.base.seeding import derive_seed

FOLDS = 5
"""Number of folds of the images; each fold is judged by a fit on the others."""
PRIOR = 2.0
"""Weight, in images, of the pooled spread in every cell, so that small cells have a spread."""
_ROWS = 2**22
"""Limit on the numbers that are in memory in double precision."""


@dataclass(frozen=True)
class Fit:
    """Fitted cells: log shares [K], centres [K, m] and spreads [K, m] (variance, or Laplace's mean distance)."""

    log_shares: Tensor
    centres: Tensor
    spreads: Tensor


class Judged:
    """Images with their cells; each is judged by a fit that did not see it.

    ``groups`` [K], the class of each cell, make the label free. ``soft``: all cells count; ``pooled``: all cells have
    one spread; ``axes`` [m, m], or [K, m, m] if each cell has its own. These are for normal noise.
    """

    def __init__(
        self,
        law: str,
        features: Tensor,
        cells: Tensor,
        num_cells: int,
        seed: int,
        *,
        groups: Tensor | None = None,
        soft: bool = False,
        pooled: bool = False,
        axes: Tensor | None = None,
    ) -> None:
        self.law, self.cells, self.groups = law, cells, groups
        self.soft = soft and law == "gaussian" and num_cells > 1
        self.features = turned(features, cells, axes)
        self._other = None if axes is None or axes.dim() == 2 else (features, axes)
        self.folds = folds_of(len(features), seed, features.device)
        fits = _normal_fits if law == "gaussian" else _laplace_fits
        self.fits = fits(self.features, cells, num_cells, self.folds, groups, pooled)

    def values(self, std: float, releases: int = 1) -> NDArray[np.float64]:
        """Nats of each image; their mean is at least I in expectation."""
        nats = torch.empty(len(self.features), dtype=torch.float64, device=self.features.device)
        for fold, fit in zip(self.folds, self.fits, strict=True):
            features, cells = self.features[fold], self.cells[fold]
            if self.soft and self._other is not None:
                nats[fold] = soft_nats_in_axes(fit, self._other[0][fold], self._other[1], std**2 / releases)
            elif self.soft:
                nats[fold] = soft_nats(fit, features, cells, self.groups, std**2 / releases)
            else:
                nats[fold] = image_nats(self.law, fit, features, cells, std, releases)
        return np.asarray(nats.cpu().numpy())


def turned(features: Tensor, cells: Tensor, axes: Tensor | None) -> Tensor:
    """The features along the axes [m, m], or along those of their cells [K, m, m]."""
    if axes is None:
        return features
    if axes.dim() == 2:
        return features @ axes
    along = torch.empty_like(features)
    for cell in cells.unique():
        along[cells == cell] = features[cells == cell] @ axes[cell]
    return along


def folds_of(count: int, seed: int, device: torch.device) -> list[Tensor]:
    """The images in up to five parts, by lot."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(derive_seed(seed, "folds"))).to(device)
    return [part for part in order.tensor_split(min(FOLDS, count)) if len(part)]


def _normal_fits(
    features: Tensor, cells: Tensor, num_cells: int, folds: list[Tensor], groups: Tensor | None, pooled: bool
) -> list[Fit]:
    """A normal fit for each fold, on all others."""
    shift = features.mean(0)
    parts = [Moments.of(features[fold], cells[fold], num_cells, shift) for fold in folds]
    whole = sum_of(parts)
    return [(whole - part).fit(shift, groups, pooled) for part in parts]


def _laplace_fits(
    features: Tensor, cells: Tensor, num_cells: int, folds: list[Tensor], groups: Tensor | None, pooled: bool
) -> list[Fit]:
    """A Laplace fit for each fold, on all others."""
    kept = torch.ones(len(features), dtype=torch.bool, device=features.device)
    made = []
    for fold in folds:
        kept[fold] = False
        made.append(fit_cells("laplace", features[kept], cells[kept], num_cells, groups))
        kept[fold] = True
    return made


@dataclass(frozen=True)
class Moments:
    """Counts [K], sums [K, m] and sums of squares [K, m] of the cells' features, minus a fixed vector."""

    counts: Tensor
    sums: Tensor
    squares: Tensor

    @property
    def numbers(self) -> tuple[Tensor, Tensor, Tensor]:
        """Its tensors; those of disjoint images add up."""
        return self.counts, self.sums, self.squares

    @classmethod
    def of(cls, features: Tensor, cells: Tensor, num_cells: int, shift: Tensor) -> Moments:
        """The moments of some images."""
        sums = torch.zeros(num_cells, features.shape[1], dtype=torch.float64, device=features.device)
        squares = torch.zeros_like(sums)
        for rows in _chunks(features, features.shape[1]):
            away = (features[rows] - shift).double()
            sums.index_add_(0, cells[rows], away)
            squares.index_add_(0, cells[rows], away.square_())
        return cls(torch.bincount(cells, minlength=num_cells).double(), sums, squares)

    def __sub__(self, other: Moments) -> Moments:
        return Moments(*(mine - its for mine, its in zip(self.numbers, other.numbers, strict=True)))

    def fit(self, shift: Tensor, groups: Tensor | None, pooled: bool) -> Fit:
        """Normal cells; a cell without images gets the overall mean."""
        counts = self.counts[:, None]
        total = (self.squares - self.sums.square() / counts.clamp_min(1)).clamp_min(0)
        whole = self.sums.sum(0) / counts.sum().clamp_min(1)
        centres = torch.where(counts > 0, self.sums / counts.clamp_min(1), whole) + shift
        spreads = _pooled_spreads(total, counts) if pooled else _spreads("gaussian", total, counts)
        return Fit(log_shares(self.counts, groups), centres, spreads)


def sum_of(parts: Sequence[Moments]) -> Moments:
    """The moments of all images of some disjoint parts."""
    return Moments(*(torch.stack(kind).sum(0) for kind in zip(*(part.numbers for part in parts), strict=True)))


def fit_cells(law: str, features: Tensor, cells: Tensor, num_cells: int, groups: Tensor | None = None) -> Fit:
    """Shares, centres and spreads of the cells; a cell without images gets the overall values."""
    counts = torch.bincount(cells, minlength=num_cells).double()
    centres, sums = [], []
    whole = _centre(law, features)
    for cell in range(num_cells):
        own = features[cells == cell]
        centres.append(_centre(law, own) if len(own) else whole)
        sums.append(_spread(law, own, centres[-1]))
    return Fit(log_shares(counts, groups), torch.stack(centres), _spreads(law, torch.stack(sums), counts[:, None]))


def log_shares(counts: Tensor, groups: Tensor | None = None) -> Tensor:
    """Logs of the shares of the cells, or of their shares inside their class; none is zero."""
    grown = counts + 0.5
    if groups is None:
        return (grown / grown.sum()).log()
    whole = grown.new_zeros(int(groups.max()) + 1).index_add_(0, groups, grown)
    return (grown / whole[groups]).log()


def _spreads(law: str, total: Tensor, counts: Tensor) -> Tensor:
    """The spread of each cell, pulled to the pooled one: sums [K, m] over counts [K, 1] images."""
    pooled = total.sum(0) / counts.sum().clamp_min(1)
    used = counts - (0 if law == "laplace" else (counts > 0).double())
    spreads = (total + PRIOR * pooled) / (used + PRIOR)
    # a centre of n images deviates by 1/n of the variance
    return spreads * (1 + 1 / counts.clamp_min(1)) if law == "gaussian" else spreads


def _pooled_spreads(total: Tensor, counts: Tensor) -> Tensor:
    """One variance for all cells, with the deviation of each centre."""
    used = (counts - 1).clamp_min(0).sum().clamp_min(1)
    return total.sum(0) / used * (1 + 1 / counts.clamp_min(1))


def _centre(law: str, features: Tensor) -> Tensor:
    return features.median(0).values.double() if law == "laplace" else features.mean(0, dtype=torch.float64)


def _spread(law: str, features: Tensor, centre: Tensor) -> Tensor:
    """Sum over images of the squared distance, or of the distance, to the centre."""
    total = torch.zeros_like(centre)
    for part in features.split(max(1, _ROWS // len(centre))):
        away = part.double() - centre
        total += away.abs().sum(0) if law == "laplace" else away.square().sum(0)
    return total


def _chunks(features: Tensor, width: int) -> tuple[Tensor, ...]:
    """Indices of the images in parts of about `_ROWS` numbers."""
    places = torch.arange(len(features), device=features.device)
    return torch.split(places, max(1, _ROWS // width))


def image_nats(law: str, fit: Fit, features: Tensor, cells: Tensor, std: float, releases: int) -> Tensor:
    """−log share of an image's cell, plus the leakage of its releases inside the cell: nats, [n].

    With normal noise, the mean of k releases, of variance σ²/k, contains all information; with Laplace noise each
    release counts separately.
    """
    found = -fit.log_shares[cells]
    for rows in _chunks(features, features.shape[1]):
        own = cells[rows]
        away = features[rows].double() - fit.centres[own]
        if law == "gaussian":
            found[rows] += gaussian_nats(away, fit.spreads[own], std**2 / releases)
        else:
            found[rows] += releases * laplace_nats(away, fit.spreads[own], std / 2**0.5)
    return found


def soft_nats(fit: Fit, features: Tensor, cells: Tensor, groups: Tensor | None, noise: float) -> Tensor:
    """−log Σ_j p_j e^(−nats of cell j): never above the nats of any one cell; with groups, of the cells of its class.

    Squared distances to all cells are expanded, around the mean of the centres, in double precision.
    """
    middle, inverse = fit.centres.mean(0), 1 / (fit.spreads + noise)
    places = fit.centres - middle
    constant = 0.5 * ((fit.spreads / noise).log1p() - fit.spreads * inverse + places.square() * inverse).sum(1)
    softened = torch.empty(len(features), dtype=torch.float64, device=features.device)
    for rows in _chunks(features, features.shape[1] + len(places)):
        away = features[rows].double() - middle
        nats = constant + 0.5 * away.square() @ inverse.T - away @ (places * inverse).T
        scores = fit.log_shares - nats
        if groups is not None:
            scores = scores.masked_fill(groups != groups[cells[rows]][:, None], -torch.inf)
        softened[rows] = -scores.logsumexp(1)
    return softened


def soft_nats_in_axes(fit: Fit, features: Tensor, axes: Tensor, noise: float) -> Tensor:
    """The same without groups, for cells with axes of their own."""
    scores = []
    for cell, along in enumerate(axes):
        away = (features @ along).double() - fit.centres[cell]
        scores.append(fit.log_shares[cell] - gaussian_nats(away, fit.spreads[cell], noise))
    return -torch.stack(scores).logsumexp(0)


def gaussian_nats(away: Tensor, variance: Tensor, noise: float) -> Tensor:
    """−E log N(z; c, v + σ²) minus the noise's entropy: Σ ½ [log(1 + v/σ²) + (a² + σ²)/(v + σ²) − 1], a = u − c."""
    return 0.5 * ((variance / noise).log1p() + (away.square() - variance) / (variance + noise)).sum(1)


def laplace_nats(away: Tensor, distance: Tensor, scale: float) -> Tensor:
    """The same for noise of scale b and a Laplace density of scale t: Σ log(t/b) + (|a| + b e^(−|a|/b))/t − 1.

    The best is t = b + E|a| − b E[1 − e^(−|a|/b)]; from E|a| alone, b e^(−E|a|/b) + E|a| is close to it.
    """
    size = away.abs()
    wide = distance + scale * (-distance / scale).exp()
    mean = size + scale * (-size / scale).exp()
    return ((wide / scale).log() + mean / wide - 1).sum(1)
