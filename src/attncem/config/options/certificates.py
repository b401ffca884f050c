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
    bounds: ClassVar[Mapping[str, str]] = {"leakage": ">"}
    cells: Literal["best", "one", "class", "cluster"] = "best"
    """Partition of the features: none, classes, clusters of each class; `best` is chosen beforehand."""
    axes: Literal["best", "features", "principal"] = "best"
    """Axes of the spread: the features, or principal axes of the spread inside classes (Gaussian noise)."""
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
    candidates: int = Field(1000, ge=2)
    """Evaluation images that each is distinguished from; the log of their number is the largest possible value."""


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
    bounds: ClassVar[Mapping[str, str]] = {"leakage": ">"}


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
    | SurrogateLeakageOptions
    | EvidenceOptions
    | ShannonOptions
    | FisherOptions
    | FanoOptions
    | QuantisationOptions
    | LocalPrivacyOptions
    | AccountantOptions
)
"""Options of any certificate, distinguished by ``name``."""
