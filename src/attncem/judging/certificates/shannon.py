"""Shannon's bound on the error: the uncertainty of the image's principal components, given I nats about the image."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attncem.config.options.certificates import ShannonOptions
from attncem.judging.certificates.images import Components, components_of
from attncem.judging.certificates.leakage import upper_leakage
from attncem.judging.certificates.making import INVISIBLE, checked
from attncem.judging.judges import Certificate
from attncem.records.bounds import Bound

if TYPE_CHECKING:
    from attncem.judging.case import Case

NEIGHBOUR = 3
"""The k of the k-nearest-neighbour estimate of the entropy."""
DIMENSIONS = (1, 2, 4, 8, 16)
"""Numbers of components for the neighbour estimate: for more there are never enough images."""
_FEW = 8
"""With fewer images the neighbour estimate is not computed."""


class Shannon(Certificate):
    """MSE ≥ (k/d) e^(2(h(Px) − I)/k) / 2πe, P the first k of d components: the largest over k.

    The entropy h is estimated, so this is an estimate: by a normal law, whose entropy is at least the true one, and by
    distances to neighbours for few components.
    """

    options_type = ShannonOptions
    options: ShannonOptions

    def bound(self, case: Case, *, seed: int) -> Mapping[str, Bound]:
        """`mse_normal` and `mse_neighbours`."""
        upper, found = upper_leakage(case), components_of(case)
        pixels = case.x[0].numel()
        most = min(self.options.components, len(found.variances))
        normal = [normal_entropy(found, count) for count in range(1, most + 1)]
        made = {"mse_normal": (normal, "entropy_normal")}
        if len(case.x) >= _FEW:
            near = [neighbour_entropy(found, count) for count in DIMENSIONS if count <= most]
            made["mse_neighbours"] = (near, "entropy_neighbours")
        return {
            name: _best(entropies, upper.claim, pixels, [*upper.assumptions, code, "continuous"])
            for name, (entropies, code) in made.items()
        }


@dataclass(frozen=True)
class Entropy:
    """An estimate of h(Px) in nats for the first ``count`` components, and its standard error over images."""

    count: int
    nats: float
    error: float


def least_error(nats_of_image: float, leakage: float, count: int, pixels: int) -> float:
    """(k/d) e^(2(h − I)/k) / 2πe, per pixel."""
    exponent = 2 * (nats_of_image - leakage) / count - math.log(2 * math.pi * math.e)
    return count / pixels * math.exp(exponent) if exponent > -700 else 0.0


def _best(entropies: Sequence[Entropy], leakage: float, pixels: int, assumptions: Sequence[str]) -> Bound:
    """The largest bound over the number of components, with the interval from the error of the entropy."""

    def least(entropy: Entropy, away: float) -> float:
        return checked(least_error(entropy.nats + away * entropy.error, leakage, entropy.count, pixels))

    best = max(entropies, key=lambda entropy: least(entropy, 0.0))
    value, low, high, limit = (least(best, away) for away in (0.0, -1.96, 1.96, -1.645))
    found = Bound(value, "MSE", low, high, "estimate", list(assumptions), "mse", "at_least", limit)
    return replace(found, vacuous=found.claim < INVISIBLE)


def normal_entropy(components: Components, count: int) -> Entropy:
    """½ Σ log(2πe λ_i): the entropy of a normal law with these variances, which no law exceeds."""
    variances, places = components.variances[:count], components.places[:, :count]
    nats = 0.5 * float((2 * math.pi * math.e * variances).log().sum())
    return Entropy(count, nats, _error(0.5 * (places.square() / variances).sum(1)))


def neighbour_entropy(components: Components, count: int) -> Entropy:
    """Kozachenko and Leonenko's estimate, on components scaled to variance 1."""
    from scipy.spatial import cKDTree
    from scipy.special import digamma

    scale = components.variances[:count].sqrt()
    places = (components.places[:, :count] / scale).cpu().numpy()
    distance = torch.from_numpy(cKDTree(places).query(places, k=NEIGHBOUR + 1)[0][:, NEIGHBOUR])
    each = count * distance.clamp_min(1e-12).log()  # equal images count as very close ones, which lowers the estimate
    ball = 0.5 * count * math.log(math.pi) - math.lgamma(0.5 * count + 1)
    nats = float(each.mean() + digamma(len(each)) - digamma(NEIGHBOUR) + ball + scale.log().sum())
    return Entropy(count, nats, _error(each))


def _error(values: Tensor) -> float:
    return float(values.std() / len(values) ** 0.5) if len(values) > 1 else 0.0
