"""Blind floors: what an attacker gets without looking at the release, or hardly looking.

A reconstruction is worth something only where it beats these.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attncem.attacks.base import FittedAttack, OwnImages, Standardiser
from attncem.config.attacks import ClassMeanOptions, GreyOptions, MeanImageOptions, NearestNeighbourOptions
from attncem.seeding import make_generator
from attncem.types import ReleaseOracle


class GreyFloor(FittedAttack):
    """Every pixel 0.5."""

    options_type = GreyOptions
    kind = "floor"

    def fit(self, oracle: ReleaseOracle, *, seed: int) -> None:
        """Take the image's shape."""
        self._image = torch.full_like(OwnImages(oracle).x[0], 0.5)

    def reconstruct(self, released: Tensor) -> Tensor:
        """The same grey for every release."""
        return self._image.expand(len(released), *self._image.shape)


class MeanImageFloor(FittedAttack):
    """The mean of the attacker's images."""

    options_type = MeanImageOptions
    kind = "floor"

    def fit(self, oracle: ReleaseOracle, *, seed: int) -> None:
        """Average the attacker's images."""
        self._image = OwnImages(oracle).x.mean(0)

    def reconstruct(self, released: Tensor) -> Tensor:
        """The same mean for every release."""
        return self._image.expand(len(released), *self._image.shape)


class ClassMeanFloor(FittedAttack):
    """The mean image of the class that the server predicts from the release."""

    options_type = ClassMeanOptions
    kind = "floor"

    def fit(self, oracle: ReleaseOracle, *, seed: int) -> None:
        """Average the attacker's images class by class; a class it has none of gets the overall mean."""
        own = OwnImages(oracle)
        x, y = own.x, own.y
        num_classes = getattr(oracle, "num_classes", int(y.max()) + 1)
        member = torch.nn.functional.one_hot(y, num_classes).to(x.dtype)
        count = member.sum(0)
        means = (member.T @ x.flatten(1)) / count.clamp_min(1)[:, None]
        self._mean = x.mean(0)
        means = torch.where(count[:, None] > 0, means, self._mean.flatten())
        self._means = means.view(-1, *x.shape[1:])
        self._predict = getattr(oracle, "predict", None)

    def reconstruct(self, released: Tensor) -> Tensor:
        """The mean of the predicted class; the mean of all where no server half is known."""
        logits = None if self._predict is None else self._predict(released)
        if logits is None:
            return self._mean.expand(len(released), *self._mean.shape)
        return self._means[logits.argmax(1)]


class NearestNeighbour(FittedAttack):
    """The attacker's own image whose (averaged) release lies nearest in standardised feature space."""

    options_type = NearestNeighbourOptions
    kind = "floor"
    options: NearestNeighbourOptions

    def fit(self, oracle: ReleaseOracle, *, seed: int) -> None:
        """Store a key for each own image: the mean of a few releases."""
        own = OwnImages(oracle)
        self._x = own.x
        noise = make_generator(own.x.device, seed, "nearest")
        released = [own.release_all(noise) for _ in range(self.options.num_releases)]
        self._standardise = Standardiser(released[0])
        self._keys = self._standardise(torch.stack(released).mean(0)).flatten(1)

    def reconstruct(self, released: Tensor) -> Tensor:
        """The image of the nearest key."""
        queries = self._standardise(released).flatten(1)
        return self._x[torch.cdist(queries, self._keys).argmin(1)]
