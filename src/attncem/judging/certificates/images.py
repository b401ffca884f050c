"""Principal components of the images, on which bounds on the error are computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attncem.base.texts import written
from attncem.base.types import NotApplicable
from attncem.judging.certificates.passage import training_images
from attncem.training.surrogates.gmm import principal_axes

if TYPE_CHECKING:
    from attncem.judging.case import Case

MOST_COMPONENTS = 512
FINEST = 1 / (12 * 255**2)
"""Variance of rounding to 8 bits: a component that varies less does not count as continuous."""
_SMALL = 1024
"""Up to this many pixels, all components are computed at once."""


@dataclass(frozen=True)
class Components:
    """Axes [k, d] learned from training images, and coordinates of the evaluation images, [n, k], about their mean.

    ``variances`` [k] fall from axis to axis and are never below the variance of rounding.
    """

    axes: Tensor
    places: Tensor
    variances: Tensor


def components_of(case: Case) -> Components:
    """The principal components of the images, computed once."""
    if "components" not in case.remembered:
        case.remembered["components"] = _components(case)
    found: Components = case.remembered["components"]
    return found


def _components(case: Case) -> Components:
    own = training_images(case)[0].flatten(1)
    axes = leading_axes(own - own.mean(0), min(MOST_COMPONENTS, own.shape[1], max(1, len(own) - 1)))
    x = case.x.flatten(1)
    places = torch.cat([(part @ axes.T).double() for part in (x - x.mean(0)).split(1000)])
    variances = places.square().sum(0) / max(1, len(places) - 1)
    order = variances.argsort(descending=True)
    kept = order[variances[order] > FINEST]
    if not len(kept):
        raise NotApplicable(written("reason.images_alike"))
    return Components(axes[kept], places[:, kept], variances[kept])


def leading_axes(centred: Tensor, count: int) -> Tensor:
    """The first principal axes of centred rows, [count, d]."""
    if centred.shape[1] > _SMALL:
        return principal_axes(centred, count)
    wide = centred.double()
    axes: Tensor = torch.linalg.eigh(wide.T @ wide).eigenvectors
    return axes.flip(1)[:, :count].T.to(centred.dtype)
