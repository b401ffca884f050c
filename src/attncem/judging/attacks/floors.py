"""Blind floors, which see nothing or the predicted label, and the nearest own image, which sees the release.

A reconstruction is worth something only if it beats the floors.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attncem.base.seeding import make_generator
from attncem.config.options.attacks import ClassMeanOptions, GreyOptions, MeanImageOptions, NearestNeighbourOptions
from attncem.judging.attacks.base import Attack, OwnImages, Standardiser
from attncem.judging.attacks.forecast import Seconds, timed
from attncem.judging.oracle import Oracle

_BATCH = 1000


class _Floor(Attack):
    """Base class of floors: fitting takes time for each of the attacker's images, reconstruction takes none."""

    def forecast(self, trial: Oracle, own: int, images: int) -> Seconds:
        """From the time of fitting on a few images."""
        few = max(1, trial.num_auxiliary)
        return timed(lambda: self.fit(trial, seed=0)).times(max(1.0, own / few))


class GreyFloor(_Floor):
    """Every pixel 0.5."""

    options_type = GreyOptions
    needs = frozenset()
    sees = "nothing"

    def fit(self, oracle: Oracle, *, seed: int) -> None:
        """Take the image's shape."""
        self._image = torch.full(oracle.image_shape, 0.5, device=oracle.device)

    def reconstruct(self, released: Tensor) -> Tensor:
        """The same grey for every release."""
        return self._image.expand(len(released), *self._image.shape)


class MeanImageFloor(_Floor):
    """The mean of the attacker's images."""

    options_type = MeanImageOptions
    needs = frozenset({"images"})
    sees = "nothing"

    def fit(self, oracle: Oracle, *, seed: int) -> None:
        """Average the attacker's images."""
        x = OwnImages(oracle).x
        total = torch.stack([part.sum(0, dtype=torch.float64) for part in x.split(_BATCH)]).sum(0)
        self._image = (total / len(x)).float()

    def reconstruct(self, released: Tensor) -> Tensor:
        """The same mean for every release."""
        return self._image.expand(len(released), *self._image.shape)


class ClassMeanFloor(_Floor):
    """The mean image of the class that the server predicts from the release."""

    options_type = ClassMeanOptions
    needs = frozenset({"images", "labels"})
    sees = "label"

    def fit(self, oracle: Oracle, *, seed: int) -> None:
        """Average the attacker's images class by class; a class without images gets the overall mean."""
        own = OwnImages(oracle)
        count = torch.bincount(own.y, minlength=oracle.num_classes).view(-1, 1, 1, 1)
        total = torch.zeros(len(count), *own.x.shape[1:], dtype=torch.float64, device=oracle.device)
        for x, y in zip(own.x.split(_BATCH), own.y.split(_BATCH), strict=True):
            total.index_add_(0, y, x.double())
        self._mean = (total.sum(0) / len(own.x)).float()
        self.means = torch.where(count > 0, (total / count.clamp_min(1)).float(), self._mean)
        self._oracle = oracle

    def reconstruct(self, released: Tensor) -> Tensor:
        """The mean of the predicted class; the overall mean if the server half is not available."""
        if not self._oracle.has_server:
            return self._mean.expand(len(released), *self._mean.shape)
        return self.means[self._oracle.predict(released).argmax(1)]


class NearestNeighbour(Attack):
    """The attacker's own image whose (averaged) release lies nearest in standardised feature space."""

    options_type = NearestNeighbourOptions
    options: NearestNeighbourOptions

    def fit(self, oracle: Oracle, *, seed: int) -> None:
        """Store a key for each of the attacker's images: the mean of a few releases."""
        own = OwnImages(oracle)
        self._x = own.x
        noise = make_generator(own.x.device, seed, "nearest")
        released = [own.release_all(noise) for _ in range(self.options.num_releases)]
        self._standardise = Standardiser.of(released[0])
        self._keys = self._standardise(torch.stack(released).mean(0)).flatten(1)

    def reconstruct(self, released: Tensor) -> Tensor:
        """The image of the nearest key."""
        queries = self._standardise(released).flatten(1)
        return self._x[torch.cdist(queries, self._keys).argmin(1)]

    def forecast(self, trial: Oracle, own: int, images: int) -> Seconds:
        """From the time for a few images, whose releases are compared with each other."""
        few = trial.num_auxiliary
        fit = timed(lambda: self.fit(trial, seed=0)).times(own / few)
        released = self._keys * self._standardise.std.flatten() + self._standardise.mean.flatten()
        released = released.view(few, *self._standardise.mean.shape)
        return fit + timed(lambda: self.reconstruct(released)).times(own / few * images / few)
