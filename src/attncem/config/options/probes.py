"""Options of the probes. ``measures`` are their numbers, which conditions may test; a number follows an @."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from attncem.config.options.base import Options


class ReidentificationOptions(Options):
    """Which of several candidate images was released: the adversary releases each of them and compares."""

    name: Literal["reidentification"] = "reidentification"
    measures: ClassVar[tuple[str, ...]] = ("rank_1", "reciprocal_rank", "rank")
    candidates: int = Field(1000, ge=2)
    """Number of candidates, including the true one; all evaluation images if there are fewer."""
    num_releases: int = Field(8, ge=1)
    """Releases of each candidate that are averaged."""


class ByPictureOptions(Options):
    """Which of several candidate images a reconstruction shows, in pixels and in features of a reference network."""

    name: Literal["reidentification_by_picture"] = "reidentification_by_picture"
    measures: ClassVar[tuple[str, ...]] = ("pixel_rank_1", "pixel_rank", "feature_rank_1", "feature_rank")
    candidates: int = Field(1000, ge=2)
    """Number of candidates, including the true one; all evaluation images if there are fewer."""


class LabelLeakageOptions(Options):
    """Labels that a linear head learns from few labelled releases (model completion)."""

    name: Literal["label_leakage"] = "label_leakage"
    measures: ClassVar[tuple[str, ...]] = ("accuracy@", "balanced@")
    labels: tuple[Annotated[int, Field(ge=1)], ...] = Field((1, 4, 16, 40), min_length=1)
    """Labelled releases per class; each number gives an accuracy."""
    draws: int = Field(5, ge=1)
    """Number of random choices of the labelled images; the accuracy is their mean."""


class ClusteringOptions(Options):
    """Classes that show as clusters of the observed releases, to an adversary without labels, images or queries."""

    name: Literal["clustering"] = "clustering"
    measures: ClassVar[tuple[str, ...]] = ("kmeans_accuracy", "kmeans_nats", "mixture_accuracy", "mixture_nats")
    components: int = Field(20, ge=1)
    """Principal components of the standardised releases that are clustered; all entries if there are fewer."""
    starts: int = Field(10, ge=1)
    """Random starts of each method; the one with the best objective counts, which uses no label."""
    fitted: int = Field(10_000, ge=20)
    """Largest number of releases that the clusters are fitted on; all releases are assigned to them."""


class AttributeLeakageOptions(Options):
    """An attribute that a linear head learns from labelled releases: a group of classes, or a column of a table."""

    name: Literal["attribute_leakage"] = "attribute_leakage"
    measures: ClassVar[tuple[str, ...]] = ("attribute_accuracy", "attribute_balanced")
    groups: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Classes by group, e.g. {animal: [bird, cat], vehicle: [ship, truck]}; empty: those known for the data set."""
    attribute: str | None = None
    """Column of the table, instead of groups."""
    file: str | None = None
    """The table; default: attributes.csv in the folder of the data set."""
    labelled: int = Field(4000, ge=2)
    """Largest number of the adversary's images with a known attribute."""

    @model_validator(mode="after")
    def _divide_classes(self) -> Self:
        members = [name for names in self.groups.values() for name in names]
        if self.groups and (len(self.groups) < 2 or not all(self.groups.values())):
            raise ValueError("groups must be two or more, each with a class")
        if self.groups and self.attribute is not None:
            raise ValueError("an attribute is a column (attribute) or made of classes (groups), not both")
        if self.file is not None and self.attribute is None:
            raise ValueError("file needs attribute, the name of its column")
        if twice := [name for name in dict.fromkeys(members) if members.count(name) > 1]:
            raise ValueError(f"a class may be in one group only; more than once: {', '.join(twice)}")
        return self


class MembershipOptions(Options):
    """Whether a release reveals that its image was in the training set."""

    name: Literal["membership"] = "membership"
    measures: ClassVar[tuple[str, ...]] = ("auc", "balanced_accuracy")
    pairs: int = Field(4000, ge=20)
    """Largest number of pairs of a training image and an evaluation image of the same class."""


ProbeOptions = (
    ReidentificationOptions
    | ByPictureOptions
    | LabelLeakageOptions
    | ClusteringOptions
    | AttributeLeakageOptions
    | MembershipOptions
)
"""Options of any probe, distinguished by ``name``."""
