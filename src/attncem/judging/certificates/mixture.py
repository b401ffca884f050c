"""An upper bound on I(x; released) as a mean over images: cells, and a spread in each, fitted on other images.

Let z = u + noise and J be a function of u or of the label. I(x; z) ≤ H(J) + h(z | J) − h(noise). For any density q_j of
z in a cell and any shares p of the cells, h(z | J) ≤ −E log q_J(z) and H(J) ≤ −E log p_J. So for any fit, the mean of
−log p_J − E log q_J(z) − h(noise) over images that it was not fitted to is at least I (docs/certificates.md).
With normal q_j and the law's own variances it is H(J) + Σ_j p_j ½ Σ_i log(1 + v_ij/σ²).
"""

from __future__ import annotations

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
    """Images with their cells; each is judged by a fit that did not see it."""

    def __init__(self, law: str, features: Tensor, cells: Tensor, num_cells: int, seed: int) -> None:
        self.law, self.features, self.cells = law, features, cells
        order = torch.randperm(len(features), generator=torch.Generator().manual_seed(derive_seed(seed, "folds"))).to(
            features.device
        )
        self.folds = [part for part in order.tensor_split(min(FOLDS, len(features))) if len(part)]
        kept = torch.ones(len(features), dtype=torch.bool, device=features.device)
        self.fits = []
        for fold in self.folds:
            kept[fold] = False
            self.fits.append(fit_cells(law, features[kept], cells[kept], num_cells))
            kept[fold] = True

    def values(self, std: float, releases: int = 1) -> NDArray[np.float64]:
        """Nats of each image; their mean is at least I in expectation."""
        found = torch.empty(len(self.features), dtype=torch.float64, device=self.features.device)
        for fold, fit in zip(self.folds, self.fits, strict=True):
            found[fold] = image_nats(self.law, fit, self.features[fold], self.cells[fold], std, releases)
        return np.asarray(found.cpu().numpy())


def fit_cells(law: str, features: Tensor, cells: Tensor, num_cells: int) -> Fit:
    """Shares, centres and spreads of the cells; a cell without images gets the overall values."""
    counts = torch.bincount(cells, minlength=num_cells).double()
    centres, sums = [], []
    whole = _centre(law, features)
    for cell in range(num_cells):
        own = features[cells == cell]
        centres.append(_centre(law, own) if len(own) else whole)
        sums.append(_spread(law, own, centres[-1]))
    total = torch.stack(sums)
    pooled = total.sum(0) / counts.sum().clamp_min(1)
    used = counts[:, None] - (0 if law == "laplace" else (counts[:, None] > 0).double())
    spreads = (total + PRIOR * pooled) / (used + PRIOR)
    if law == "gaussian":  # a centre of n images deviates by 1/n of the variance
        spreads = spreads * (1 + 1 / counts[:, None].clamp_min(1))
    shares = (counts + 0.5) / (counts.sum() + 0.5 * num_cells)
    return Fit(shares.log(), torch.stack(centres), spreads)


def _centre(law: str, features: Tensor) -> Tensor:
    return features.median(0).values.double() if law == "laplace" else features.mean(0, dtype=torch.float64)


def _spread(law: str, features: Tensor, centre: Tensor) -> Tensor:
    """Sum over images of the squared distance, or of the distance, to the centre."""
    total = torch.zeros_like(centre)
    for part in features.split(max(1, _ROWS // len(centre))):
        away = part.double() - centre
        total += away.abs().sum(0) if law == "laplace" else away.square().sum(0)
    return total


def image_nats(law: str, fit: Fit, features: Tensor, cells: Tensor, std: float, releases: int) -> Tensor:
    """−log share of an image's cell, plus the leakage of its releases inside the cell: nats, [n].

    With normal noise, the mean of k releases, of variance σ²/k, contains all information; with Laplace noise each
    release counts separately.
    """
    found = -fit.log_shares[cells]
    for rows in torch.arange(len(features), device=features.device).split(max(1, _ROWS // features.shape[1])):
        own = cells[rows]
        away = features[rows].double() - fit.centres[own]
        if law == "gaussian":
            found[rows] += gaussian_nats(away, fit.spreads[own], std**2 / releases)
        else:
            found[rows] += releases * laplace_nats(away, fit.spreads[own], std / 2**0.5)
    return found


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
