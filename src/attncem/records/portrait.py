"""A run's portrait: a map of its features, and its surrogate's weights for some images; small enough for a page."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from attncem.base.record import Record
from attncem.records.explanation import Gate

PORTRAIT = "portrait.json"
"""The file in a run's folder."""
STEPS = 500
"""Coordinates are whole numbers from −STEPS to STEPS."""

Of = Literal["pixels", "clean", "released"]
Method = Literal["pca", "tsne"]


class Cloud(Record):
    """Some validation images as points of a plane, in the order of the portrait's labels.

    A coordinate is a whole number times ``unit``. Under PCA, clean features and releases share the axes and unit of the
    clean ones; under t-SNE each has a plane of its own, in which only neighbourhoods have a meaning. ``kept``: the
    fraction of the variance that the plane holds; None under t-SNE.
    """

    of: Of
    method: Method
    x: list[int]
    y: list[int]
    unit: float
    kept: float | None = None


class Face(Record):
    """One image: a PNG in base64, at most 16 pixels a side, its weight in its class, and its share for each part."""

    image: str
    attention: float | None
    shares: list[float]


class ClassPortrait(Record):
    """The surrogate's weights for the images of one class.

    ``attentions``: the weights of all images, largest first; they sum to 1, and equal weights would each be 1 over
    their number. ``faces``: some of these images, from the largest weight to the smallest. ``shares``: the mean share
    of each part of the class.
    """

    label: int
    name: str
    images: int
    attentions: list[float]
    shares: list[float]
    gates: list[Gate]
    faces: list[Face]


class Portrait(Record):
    """One run on the explain pages of a campaign; made from its best weights and validation images."""

    run: str
    surrogate: str
    dataset: str
    data_sha256: str
    weights: str
    class_names: list[str]
    labels: list[int]
    clouds: list[Cloud]
    part: str
    classes: list[ClassPortrait]
    noise_std: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)

    def cloud(self, of: Of, method: Method) -> Cloud | None:
        """The points of this kind; None where they are missing."""
        return next((cloud for cloud in self.clouds if (cloud.of, cloud.method) == (of, method)), None)
