"""Options of the channels, which change z before it leaves the client."""

from __future__ import annotations

import math
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from attncem.config.options.base import Options
from attncem.config.options.opened import Opened

SLACK = 2.0**-10
"""Share s of ε and of δ that `local_dp` reserves for drawing its noise with finite numbers."""
CELL_ERROR = 2.0**-33
"""κ: |ln| of a multiple's probability as drawn over the ideal one, for one feature (docs/channels.md)."""
CELL_DEFECT = 2.0**-114
"""τ: what κ does not cover of one feature's probability, beyond ten standard deviations."""


class ChannelOptions(Options):
    """Options of every channel."""

    name: str
    place: ClassVar[int | None] = None
    """Place in the documents' order: noise, DP noise, dropout, top-k, and ours: quantise. None: any place."""
    adds_noise: ClassVar[bool] = False
    """Whether the channel adds noise to z."""

    @property
    def added_noise_std(self) -> float:
        """Standard deviation of the noise added to each feature."""
        return 0.0


class RandomOptions(ChannelOptions):
    """Options of every random channel."""

    noise: Literal["fresh", "keyed"] = "fresh"
    """At inference: a new draw for every release, or one derived from a key and the input, the same for the same input
    (training always uses new draws)."""


class AddedOptions(RandomOptions):
    """Options of channels that add noise of a given strength."""

    place = 0
    adds_noise = True
    noise_std: float = Field(0.1, ge=0)
    """Standard deviation σ of the noise, in the units of z."""

    @property
    def added_noise_std(self) -> float:
        """The configured value."""
        return self.noise_std


class GaussianOptions(AddedOptions):
    """Adds Gaussian noise: released = z + noise_std · N(0, I)."""

    name: Literal["gaussian"] = "gaussian"


class IdentityOptions(ChannelOptions):
    """Releases z unchanged."""

    name: Literal["identity"] = "identity"


class LaplaceOptions(AddedOptions):
    """Adds Laplace noise: released = z + Laplace(0, b), whose standard deviation is √2 · b."""

    name: Literal["laplace"] = "laplace"
    noise_std: float = Field(0.1, ge=0)
    """Standard deviation √2 · b of the noise, in the units of z."""
    scale: float | None = Field(None, ge=0)
    """Scale b; if set, noise_std follows from it."""

    @model_validator(mode="before")
    @classmethod
    def _deviation_follows_the_scale(cls, data: Any) -> Any:
        scale = data.get("scale") if isinstance(data, dict) else None
        if isinstance(scale, int | float) and scale >= 0 and "noise_std" not in data:
            return {**data, "noise_std": math.sqrt(2) * scale}
        return data

    @model_validator(mode="after")
    def _scale_and_deviation_agree(self) -> LaplaceOptions:
        if self.scale is not None and not math.isclose(self.noise_std, math.sqrt(2) * self.scale, rel_tol=1e-9):
            raise ValueError(
                f"scale={self.scale} and noise_std={self.noise_std} disagree (noise_std = √2 · scale): give one"
            )
        return self


class ShapedOptions(AddedOptions):
    """Adds Gaussian noise whose strength differs between the spatial frequencies of a map of features."""

    name: Literal["shaped"] = "shaped"
    noise_std: float = Field(0.1, ge=0)
    """Root mean square of the noise over the features, in the units of z, for any tilt."""
    tilt: float = Field(1.0, ge=-3, le=3)
    """The noise of a wave with f half periods is proportional to (1 + f)^−tilt: above 0 low frequencies get most of it,
    below 0 high ones; 0 is gaussian. Tokens and vectors always get gaussian noise."""


class LocalDPOptions(RandomOptions):
    """Clips each sample to an L2 norm, then adds Gaussian noise that gives (ε, δ) local differential privacy."""

    place = 1
    adds_noise = True
    name: Literal["local_dp"] = "local_dp"
    clip: float = Field(1.0, ge=1e-15, le=1e15)
    """Largest L2 norm C of one sample's z; longer vectors are scaled down. Any two samples differ by at most 2C."""
    epsilon: float = Field(10.0, gt=0)
    """ε of one release, in nats; k fresh releases of one input spend more. Its largest value follows from delta and
    the number of features: 50 for 8192 of them at 1e-5."""
    delta: float = Field(1e-5, gt=0, lt=1)
    """δ of one release."""

    @model_validator(mode="after")
    def _noise_as_drawn_holds_it(self) -> LocalDPOptions:
        if problem := self.problem_with(1):
            raise ValueError(problem)
        return self

    @property
    def added_noise_std(self) -> float:
        """The smallest σ that gives (ε, δ), each less its slack, at sensitivity 2C."""
        return gaussian_mechanism_std(self.epsilon * (1 - SLACK), self.delta * (1 - SLACK), 2 * self.clip)

    @property
    def grid(self) -> float:
        """Releases on a device are multiples of this power of two, between σ/2^11 and σ/2^10."""
        return math.ldexp(1.0, math.frexp(self.added_noise_std)[1] - 11)

    def problem_with(self, features: int) -> str | None:
        """Why the drawn noise cannot give (ε, δ) for this number of features; None: it can."""
        least, largest = epsilon_range(self.delta, features)
        if least <= self.epsilon <= largest:
            return None
        advice = "no epsilon works: delta is too small, or there are too many features"
        if least <= largest:
            advice = f"epsilon must lie between {least:.2g} and {math.floor(10 * largest) / 10}"
        return (
            f"epsilon={self.epsilon} with delta={self.delta} cannot be guaranteed by the noise generator if a release "
            f"has {features} feature{'s' * (features > 1)}: {advice}"
        )


class DropoutOptions(RandomOptions):
    """Sets each feature to zero with probability `rate`, also at inference."""

    place = 2
    name: Literal["dropout"] = "dropout"
    rate: float = Field(0.1, ge=0, lt=1)
    """Probability that a feature is set to zero."""
    rescale: bool = False
    """Divide the kept values by 1 − rate, which preserves the mean; the baseline does not."""


class TopKOptions(ChannelOptions):
    """Keeps the largest values of each sample and sets the others to zero."""

    place = 3
    name: Literal["top_k"] = "top_k"
    keep: float = Field(0.5, gt=0, le=1)
    """Share of a sample's values to keep, at least one value (the baseline's `topkprune<r>` is keep = 1 − r, but over
    the whole batch)."""


class QuantiseOptions(ChannelOptions):
    """Rounds each feature to the nearest of 2^bits levels between `low` and `high`."""

    place = 4
    name: Literal["quantise"] = "quantise"
    bits: int = Field(8, ge=1, le=16)
    """Bits per feature: 2^bits levels, `low` and `high` among them."""
    low: float = 0.0
    """Lowest level; lower values become this."""
    high: float = 1.0
    """Highest level; higher values become this."""

    @model_validator(mode="after")
    def _range_is_not_empty(self) -> QuantiseOptions:
        if self.low >= self.high:
            raise ValueError(f"low={self.low} must be below high={self.high}")
        return self


Channel = Annotated[
    GaussianOptions
    | IdentityOptions
    | LaplaceOptions
    | ShapedOptions
    | LocalDPOptions
    | DropoutOptions
    | TopKOptions
    | QuantiseOptions,
    Field(discriminator="name"),
    Opened("channel"),
]


@cache
def gaussian_mechanism_std(epsilon: float, delta: float, sensitivity: float) -> float:
    """The smallest σ of Gaussian noise for (ε, δ), by the analytic Gaussian mechanism (Balle and Wang, 2018).

    Exact for every ε > 0, where the classical σ = √(2 ln(1.25/δ)) · sensitivity / ε holds for ε ≤ 1 only.
    """
    low, high = 0.0, 1.0
    while gaussian_mechanism_delta(epsilon, high) > delta:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_mechanism_delta(epsilon, middle) > delta else (low, middle)
    return high * sensitivity


def epsilon_range(delta: float, features: int) -> tuple[float, float]:
    """The ε that noise as drawn can hold for d features: 2dκ ≤ s min(1, ε) and d τ (2 + e^ε) ≤ δ s/4."""
    least = 2 * features * CELL_ERROR / SLACK
    room = delta * SLACK / 4 / CELL_DEFECT / features - 2
    return (least if least <= 1 else math.inf), (math.log(room) if room > 0 else -math.inf)


def gaussian_mechanism_delta(epsilon: float, noise_ratio: float) -> float:
    """δ at ε of Gaussian noise with σ = noise_ratio · sensitivity: Φ(a) − e^ε Φ(−b), where b, a = 1/2r ± ε r.

    e^ε Φ(−b) = ½ erfcx(b/√2) e^(−a²/2), since b² − a² = 2ε: nothing overflows.
    """
    a, b = 0.5 / noise_ratio - epsilon * noise_ratio, 0.5 / noise_ratio + epsilon * noise_ratio
    return 0.5 * math.erfc(-a / math.sqrt(2)) - 0.5 * _erfcx(b / math.sqrt(2)) * math.exp(-a * a / 2)


def _erfcx(u: float) -> float:
    """e^(u²) erfc(u) for u > 0; beyond 25 its asymptotic series, right to 5e-11."""
    if u < 25:
        return math.exp(u * u) * math.erfc(u)
    return (1 - 0.5 / u**2 + 0.75 / u**4 - 1.875 / u**6) / (u * math.sqrt(math.pi))
