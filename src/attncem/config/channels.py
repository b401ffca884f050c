"""Options of the channels: what the client does to z before it leaves."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from attncem.config.base import Options


class GaussianOptions(Options):
    """Adds Gaussian noise: released = z + noise_std · N(0, I)."""

    name: Literal["gaussian"] = "gaussian"
    noise_std: float = Field(0.1, ge=0)
    """Standard deviation σ of the noise, in the units of z."""
    noise: Literal["fresh", "keyed"] = "fresh"
    """At inference: a new draw for every release, or one derived from a key and the input, the same for
    the same input (training always draws fresh noise)."""


class IdentityOptions(Options):
    """Releases z as it is."""

    name: Literal["identity"] = "identity"


Channel = Annotated[GaussianOptions | IdentityOptions, Field(discriminator="name")]
