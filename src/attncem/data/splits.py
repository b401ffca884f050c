"""Disjoint parts of a data set, by fixed index and seed. No torch."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attncem.base.types import ConfigError
from attncem.config.options.data import DataOptions
from attncem.data.readers import RawData

Index = NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """Indices of each part.

    train, validation and held_out (the images of the `held_out` attacker) index the training images; test,
    infer_auxiliary and infer_evaluation index the test images. The last two divide the test images 90 : 10 for the
    threat model `published_infer`.
    """

    train: Index
    validation: Index
    held_out: Index
    test: Index
    infer_auxiliary: Index
    infer_evaluation: Index
    sha256: str
    available: int
    """Number of training images in the files; with `images_per_class` the first three parts hold fewer."""

    def counts(self) -> dict[str, int | str]:
        """Sizes and hash, for the manifest."""
        parts = ("train", "validation", "held_out", "test", "infer_auxiliary", "infer_evaluation")
        return {**{part: len(getattr(self, part)) for part in parts}, "sha256": self.sha256}


def split_data(raw: RawData, options: DataOptions) -> Split:
    """Divide each class in the same proportions, shuffled by split_seed; at most `images_per_class` of each."""
    fractions, most = (options.validation_fraction, options.held_out_fraction), options.images_per_class
    _check_subset(raw, most)
    validation, held_out, train = _stratified(raw.train_labels, fractions, options.split_seed, most=most)
    if not len(validation):  # classes are so small that each fraction rounds to zero
        validation, held_out, train = _stratified(raw.train_labels, fractions, options.split_seed, least=1, most=most)
    infer_evaluation, infer_auxiliary = _stratified(raw.test_labels, (0.1,), options.split_seed)
    test = np.arange(len(raw.test_labels), dtype=np.int64)
    parts = (train, validation, held_out, test, infer_auxiliary, infer_evaluation)
    digest = hashlib.sha256(raw.sha256.encode())
    for part in parts:
        digest.update(part.astype("<i8").tobytes() + b"|")
    return Split(*parts, sha256=digest.hexdigest(), available=len(raw.train_labels))


def _check_subset(raw: RawData, most: int | None) -> None:
    """ConfigError for a number of images per class that means nothing for this data set."""
    if most is None:
        return
    if not raw.spec.num_classes:
        raise ConfigError(
            f"data.images_per_class={most}: the pictures of {raw.spec.name} have no classes; leave it out"
        )
    largest = int(np.bincount(raw.train_labels).max())
    if most > largest:
        raise ConfigError(
            f"data.images_per_class={most}: no class of {raw.spec.name} has more than {largest} training images; "
            f"choose {largest} or less, or leave it out to use all"
        )


def _stratified(
    labels: NDArray[np.int64], fractions: tuple[float, ...], seed: int, *, least: int = 0, most: int | None = None
) -> list[Index]:
    """Parts of the given fractions and a last part with the rest, each sorted.

    The first part gets at least `least` images of every class that has more than `least`. At most `most` images of a
    class are divided: the first of its shuffled images, so a smaller subset lies within a larger one.
    """
    parts: list[list[Index]] = [[] for _ in range(len(fractions) + 1)]
    for label in np.unique(labels):
        members = np.random.default_rng([seed, int(label)]).permutation(np.flatnonzero(labels == label))[:most]
        counts = [round(fraction * len(members)) for fraction in fractions]
        counts[0] = max(counts[0], least if len(members) > least else 0)
        ends = np.cumsum(counts)
        for part, chunk in zip(parts, np.split(members, ends), strict=True):
            part.append(chunk)
    return [np.sort(np.concatenate(part)).astype(np.int64) for part in parts]
