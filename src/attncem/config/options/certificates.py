"""Options of the certificates.

``bounds`` are the names of their bounds, each with the sign that a condition on it may have: `>` for an upper bound,
`<` for a lower bound. A bound without a sign proves a leak and can exclude none. A number follows an @.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from attncem.config.options.base import Options


class LeakageOptions(Options):
    """Most nats that the releases of one image reveal about it, from the channel's noise and the spread of z."""

    name: Literal["leakage"] = "leakage"
    bounds: ClassVar[Mapping[str, str]] = {"leakage": ">", "over_all": ">", "not_sent": ">"}
    cells: Literal["best", "one", "class", "cluster", "answer"] = "best"
    """Partition of the features: none, classes, clusters of each class, the server's answers; `best` is chosen before.
    """
    axes: Literal["best", "features", "principal", "shared", "full", "kernel"] = "best"
    """Density in each cell: normal along the features; along principal axes inside classes, with variances of each
    cell or `shared` ones; with axes of each cell (`full` covariance); a `kernel` mixture. Most need Gaussian noise."""
    clusters: int = Field(4, ge=1)
    """Clusters of each class."""


class BeyondLabelOptions(Options):
    """Most nats that the releases of one image reveal about it beyond its label, which is taken as known."""

    name: Literal["beyond_label"] = "beyond_label"
    bounds: ClassVar[Mapping[str, str]] = {"beyond_label": ">"}
    cells: Literal["best", "class", "cluster", "answer"] = "best"
    """Partition inside each class: none, clusters, right and wrong answers of the server; `best` is chosen before."""
    axes: Literal["best", "features", "principal", "shared", "full", "kernel"] = "best"
    """Density in each cell, as in `leakage`."""
    clusters: int = Field(4, ge=1)
    """Clusters of each class."""


class SurrogateLeakageOptions(Options):
    """Bound by the partition of the run's surrogate on evaluation images, and its value on training images."""

    name: Literal["surrogate_leakage"] = "surrogate_leakage"
    bounds: ClassVar[Mapping[str, str]] = {"leakage": ">", "leakage_training": ">"}


class EvidenceOptions(Options):
    """Least nats that the releases reveal: by distinguishing images, and by what an attack recovers."""

    name: Literal["leakage_evidence"] = "leakage_evidence"
    bounds: ClassVar[Mapping[str, str]] = {"infonce": "", "decoder": ""}
    candidates: int | None = Field(1000, ge=2)
    """Evaluation images that each is distinguished from (null: all); the log of their number is the largest value."""


class ShannonOptions(Options):
    """The least error of any attack with a given leakage, from the entropy of the images' principal components."""

    name: Literal["shannon"] = "shannon"
    bounds: ClassVar[Mapping[str, str]] = {"mse_normal": "<", "mse_neighbours": "<"}
    components: int = Field(512, ge=1)
    """Largest number of principal components."""


class FisherOptions(Options):
    """The least error of any attack, from the Fisher information of a release about the pixels (dFIL)."""

    name: Literal["fisher"] = "fisher"
    bounds: ClassVar[Mapping[str, str]] = {"dfil": ">", "mse_unbiased": "<", "mse_van_trees": "<"}
    images: int = Field(300, ge=2)
    """Largest number of evaluation images."""
    probes: int = Field(16, ge=2)
    """Random directions that estimate the trace; exact if z has no more features."""
    components: int = Field(256, ge=1)
    """Largest number of principal components for the form with a prior."""


class FanoOptions(Options):
    """Largest probability of identifying the right one of equally likely candidates (Fano)."""

    name: Literal["fano"] = "fano"
    bounds: ClassVar[Mapping[str, str]] = {"rank_1@": ">"}
    candidates: tuple[Annotated[int, Field(ge=2)], ...] = Field((1000, 1_000_000, 1_000_000_000), min_length=1)
    """Numbers of candidates."""


class QuantisationOptions(Options):
    """Most nats that the bits of a release can hold."""

    name: Literal["quantisation"] = "quantisation"
    bounds: ClassVar[Mapping[str, str]] = {"leakage": ">", "over_all": ">"}
    runtimes: int = Field(1, ge=1)
    """Programs (library, version, device) that compute releases of one image: each may give another code."""


class CodeEntropyOptions(Options):
    """Entropy of the codes of a channel that rounds: most nats of any number of releases, learned on other images."""

    name: Literal["code_entropy"] = "code_entropy"
    bounds: ClassVar[Mapping[str, str]] = {"entropy": ">", "entropy_plugin": "", "over_all": ">"}


class LocalPrivacyOptions(Options):
    """The ε of local differential privacy of a channel that clips and adds noise, over all visible releases."""

    name: Literal["local_privacy"] = "local_privacy"
    bounds: ClassVar[Mapping[str, str]] = {"epsilon": ">"}


class AccountantOptions(Options):
    """Leakage of several releases of one image together, and the number of releases within a budget."""

    name: Literal["accountant"] = "accountant"
    bounds: ClassVar[Mapping[str, str]] = {"leakage@": ">", "releases": "<"}
    releases: tuple[Annotated[int, Field(ge=1)], ...] = Field((1, 4, 16, 64, 256), min_length=1)
    """Numbers of releases."""
    budget: float | None = Field(None, gt=0)
    """Nats that all releases of an image may reveal together; None: twice the leakage of one."""


CertificateOptions = (
    LeakageOptions
    | BeyondLabelOptions
    | SurrogateLeakageOptions
    | EvidenceOptions
    | ShannonOptions
    | FisherOptions
    | FanoOptions
    | QuantisationOptions
    | CodeEntropyOptions
    | LocalPrivacyOptions
    | AccountantOptions
)
"""Options of any certificate, distinguished by ``name``."""
