"""Options of the surrogates: the estimates of the spread of z inside a class.

Names in the documents' spelling are kept (``var_threshold``, ``snr_thresh`` ...). A number in
brackets after a meaning (000 to 004) is the source document; "ours" marks our own choice.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from attncem.config.options.attention import GatedOptions, HybridOptions, SlotOptions
from attncem.config.options.opened import Opened
from attncem.config.options.surrogate_base import (
    Memory,
    SurrogateOptions,
    VarianceFloorOption,
    refuse_memory,
    relative_floor,
)


class NoneOptions(SurrogateOptions):
    """No penalty: the undefended model (the channel's noise still applies)."""

    name: Literal["none"] = "none"

    @property
    def needs_pairs(self) -> bool:
        """Never: there is no penalty."""
        return False


class CapacityOptions(SurrogateOptions):
    """Information that a Gaussian channel with this noise can carry about z inside a class."""

    name: Literal["capacity"] = "capacity"
    per_dimension: bool = True
    """Log of each dimension's variance; false: average the dimensions before the log."""
    sample_weights: Literal["uniform", "doubt", "worst"] = "uniform"
    """Weights of a class's samples in its variance: equal; growing with the doubt of the client's head, for
    release.when=unsure; or those with the largest capacity (all but the first ours)."""
    uniform_mix: float = Field(0.25, gt=0, le=1)
    """Share of equal weights in the others: the variance is at least this part of the plain one (ours)."""
    memory: Memory = None

    @model_validator(mode="after")
    def _refuse_memory_with_weights(self) -> CapacityOptions:
        refuse_memory(self.sample_weights, self.memory)
        return self

    def relative_floor_key(self) -> str | None:
        """Always: a capacity is relative to the noise."""
        return "surrogate.name=capacity"


class LogDetOptions(SurrogateOptions):
    """The same with all covariances: ½ logdet(I + Σ/σ²) / D of a class, by the batch's Gram matrix."""

    name: Literal["logdet"] = "logdet"
    memory: Memory = None

    def relative_floor_key(self) -> str | None:
        """Always: a capacity is relative to the noise."""
        return "surrogate.name=logdet"


class KMeansOptions(SurrogateOptions):
    """The formula of the baseline CEM: scalar variance around per-class KMeans centres."""

    name: Literal["kmeans"] = "kmeans"
    num_clusters: int = Field(5, ge=1)
    """Centres per class (the baseline: 5 with a sigmoid bottleneck, 15 without)."""
    var_threshold: float = Field(0.125, ge=0)
    """Floor of the variance in units of noise_std², if variance_floor is not set (the baseline's run_exp.sh: 0.125)."""
    variance_floor: VarianceFloorOption = None
    """Absolute floor of the variance, or one scheduled over epochs; replaces var_threshold (ours)."""
    gamma: float = Field(0.01, gt=0)
    """Added inside both logs (the baseline: 0.01)."""
    log_entropy: bool = True
    """relu of the log ratio; false: the plain variance + 0.001 (the baseline's log_entropy=0)."""
    per_dimension: bool = False
    """A variance and its log of each dimension (ours); false: the baseline's one variance of all dimensions."""
    max_iterations: int = Field(50, ge=1)
    """Largest number of Lloyd iterations of a refit."""
    small_sample_correction: bool = True
    """Add the class's variance around its centres divided by the samples of a cluster; otherwise small clusters report
    too little (ours); false: the baseline's formula."""
    index_defect: bool = False
    """Reproduce the baseline's defect: every class uses class 0's weights and prior variances."""

    @property
    def needs_pairs(self) -> bool:
        """No: the variance is that around a stored centre."""
        return False

    @property
    def default_warmup_epochs(self) -> int:
        """One epoch: there are no centres before its end."""
        return 1

    def relative_floor_key(self) -> str | None:
        """The hinge of log_entropy, if its floor is not absolute."""
        return relative_floor(self.variance_floor) if self.log_entropy else None


class GMMOptions(SurrogateOptions):
    """Gaussian mixtures per class, refit once per epoch; the log-determinants of their covariances (002)."""

    name: Literal["gmm"] = "gmm"
    num_clusters: int = Field(5, ge=1)
    """Components per class (the baseline's number of centres)."""
    covariance: Literal["diagonal", "full"] = "diagonal"
    """Covariance of a component; full up to 256 dimensions (after pca_dim)."""
    pca_dim: int | None = Field(None, ge=1)
    """Reduce z to this many principal directions of the training features around their class means (003); none: all of
    z."""
    var_threshold: float = Field(0.125, ge=0)
    """Floor of the variance in units of noise_std², if variance_floor is not set (the baseline: 0.125)."""
    variance_floor: VarianceFloorOption = None
    """Absolute floor of the variance, or one scheduled over epochs; replaces var_threshold and gamma."""
    gamma: float = Field(1e-6, gt=0)
    """Added to the floor var_threshold · noise_std²."""
    per_dimension_log: bool = True
    """Divide the log-determinant by the number of dimensions; false: as 002 writes it."""
    reg_covar: float = Field(1e-6, gt=0)
    """Added to the diagonal of every fitted covariance (scikit-learn: 1e-6)."""
    max_iterations: int = Field(50, ge=1)
    """Largest number of Lloyd iterations of the initial KMeans of a refit."""
    em_iterations: int = Field(20, ge=1)
    """Steps of expectation maximisation of a refit (ours)."""
    small_sample_correction: bool = True
    """Add the class's covariance around its components' means divided by the samples of a component; otherwise small
    components report too little (ours)."""
    memory: Memory = None

    @property
    def default_warmup_epochs(self) -> int:
        """One epoch: there are no mixtures before its end."""
        return 1

    def relative_floor_key(self) -> str | None:
        """A floor that is not absolute."""
        return relative_floor(self.variance_floor)


Surrogate = Annotated[
    NoneOptions
    | KMeansOptions
    | GMMOptions
    | CapacityOptions
    | LogDetOptions
    | GatedOptions
    | SlotOptions
    | HybridOptions,
    Field(discriminator="name"),
    Opened("surrogate"),
]
