"""Options of the certificates."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from attncem.config.options.base import Options


class LeakageOptions(Options):
    """How many nats one image's releases can tell of it at most, from the channel's noise and the spread of z."""

    name: Literal["leakage"] = "leakage"
    cells: Literal["best", "one", "class", "cluster"] = "best"
    """What the features are divided into: nothing, classes, clusters of each class; the best is chosen beforehand."""
    axes: Literal["best", "features", "principal"] = "best"
    """Along what the spread is taken: the features, or principal axes of the spread inside classes (Gaussian noise)."""
    clusters: int = Field(4, ge=1)
    """Clusters of each class."""


class SurrogateLeakageOptions(Options):
    """What the partition of the run's own surrogate implies on evaluation images, beside training images."""

    name: Literal["surrogate_leakage"] = "surrogate_leakage"


class EvidenceOptions(Options):
    """How many nats the releases tell at least: by telling images apart, and by what an attack recovers."""

    name: Literal["leakage_evidence"] = "leakage_evidence"
    candidates: int = Field(1000, ge=2)
    """Evaluation images that each is told from; ln of their number is the most that can be shown."""


class ShannonOptions(Options):
    """The least error of any attack that has so many nats, from the entropy of the images' principal components."""

    name: Literal["shannon"] = "shannon"
    components: int = Field(512, ge=1)
    """Principal components that are tried at most."""


class FisherOptions(Options):
    """The least error of any attack from the Fisher information that a release holds of the pixels (dFIL)."""

    name: Literal["fisher"] = "fisher"
    images: int = Field(300, ge=2)
    """Evaluation images that are asked, at most."""
    probes: int = Field(16, ge=2)
    """Random directions that the trace is estimated with; where z has no more features it is exact."""
    components: int = Field(256, ge=1)
    """Principal components that the form with a prior is tried on at most."""


class FanoOptions(Options):
    """How often the right one of equally likely candidates can be told at most (Fano)."""

    name: Literal["fano"] = "fano"
    candidates: tuple[Annotated[int, Field(ge=2)], ...] = Field((1000, 1_000_000, 1_000_000_000), min_length=1)
    """Numbers of candidates."""


class QuantisationOptions(Options):
    """How many nats the bits of a release can hold at most."""

    name: Literal["quantisation"] = "quantisation"


class LocalPrivacyOptions(Options):
    """The ε of local differential privacy of a channel that clips and adds noise, over all releases that are seen."""

    name: Literal["local_privacy"] = "local_privacy"


class AccountantOptions(Options):
    """What several releases of one image cost together, and how many a budget allows."""

    name: Literal["accountant"] = "accountant"
    releases: tuple[Annotated[int, Field(ge=1)], ...] = Field((1, 4, 16, 64, 256), min_length=1)
    """Numbers of releases."""
    budget: float | None = Field(None, gt=0)
    """Nats that all releases of an image may tell together; None: twice what one may."""


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
"""Options of any certificate, told apart by ``name``."""
