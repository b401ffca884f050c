"""Blind floors: what an attacker gets without looking at the release, or hardly looking.

A reconstruction is worth something only where it beats these.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attncem.attacks.base import FittedAttack, Standardiser, release_all
from attncem.config.attacks import ClassMeanOptions, GreyOptions, MeanImageOptions, NearestNeighbourOptions
from attncem.progress import Report, silent
from attncem.seeding import make_generator
from attncem.types import ReleaseOracle


class GreyFloor(FittedAttack):
    """Every pixel 0.5."""

    options_type = GreyOptions
    kind = "floor"

    def fit(self, oracle: ReleaseOracle, *, seed: int) -> None:
        """Take the image's shape."""
        self._image = torch.full_like(oracle.auxiliary()[0][0], 0.5)

    def reconstruct(self, released: Tensor) -> Tensor:
        """The same grey for every release."""
        return self._image.expand(len(released), *self._image.shape)


class MeanImageFloor(FittedAttack):
    """The mean of the attacker's images."""

    options_type = MeanImageOptions
    kind = "floor"

    def fit(self, oracle: ReleaseOracle, *, seed: int) -> None:
        """Average the attacker's images."""
        self._image = oracle.auxiliary()[0].mean(0)

    def reconstruct(self, released: Tensor) -> Tensor:
        """The same mean for every release."""
        return self._image.expand(len(released), *self._image.shape)


class ClassMeanFloor(FittedAttack):
    """The mean image of the class that the server predicts from the release."""

    options_type = ClassMeanOptions
    kind = "floor"

    def fit(self, oracle: ReleaseOracle, *, seed: int) -> None:
        """Average the attacker's images class by class; a class it has none of gets the overall mean."""
        x, y = oracle.auxiliary()
        member = torch.nn.functional.one_hot(y, oracle.num_classes).to(x.dtype)
        count = member.sum(0)
        means = (member.T @ x.flatten(1)) / count.clamp_min(1)[:, None]
        self._mean = x.mean(0)
        means = torch.where(count[:, None] > 0, means, self._mean.flatten())
        self._means = means.view(-1, *x.shape[1:])
        self._predict = oracle.predict

    def reconstruct(self, released: Tensor) -> Tensor:
        """The mean of the predicted class; the mean of all where no server half is known."""
        logits = self._predict(released)
        if logits is None:
            return self._mean.expand(len(released), *self._mean.shape)
        return self._means[logits.argmax(1)]


class NearestNeighbour(FittedAttack):
    """The attacker's own image whose (averaged) release lies nearest in standardised feature space."""

    options_type = NearestNeighbourOptions
    kind = "floor"

    def __init__(self, options: NearestNeighbourOptions, *, report: Report = silent) -> None:
        super().__init__(options, report=report)
        self.options = options

    def fit(self, oracle: ReleaseOracle, *, seed: int) -> None:
        """Store a key for each own image: the mean of a few releases."""
        self._x = oracle.auxiliary()[0]
        noise = make_generator(self._x.device, seed, "nearest")
        released = [release_all(oracle, len(self._x), generator=noise) for _ in range(self.options.num_releases)]
        self._standardise = Standardiser(released[0])
        self._keys = self._standardise(torch.stack(released).mean(0)).flatten(1)

    def reconstruct(self, released: Tensor) -> Tensor:
        """The image of the nearest key."""
        queries = self._standardise(released).flatten(1)
        return self._x[torch.cdist(queries, self._keys).argmin(1)]
