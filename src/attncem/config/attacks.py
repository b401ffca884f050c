"""Options of the attacks."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from attncem.config.base import Options


class GreyOptions(Options):
    """Blind floor: every pixel 0.5."""

    name: Literal["grey"] = "grey"


class MeanImageOptions(Options):
    """Blind floor: the mean of the attacker's images."""

    name: Literal["mean_image"] = "mean_image"


class ClassMeanOptions(Options):
    """Floor that knows only the predicted label: the mean image of that class."""

    name: Literal["class_mean"] = "class_mean"


class NearestNeighbourOptions(Options):
    """The attacker's own image whose release lies nearest."""

    name: Literal["nearest_neighbour"] = "nearest_neighbour"
    num_releases: int = Field(4, ge=1)
    """Releases of each own image averaged into its key."""


class RidgeOptions(Options):
    """Linear inversion in closed form, its strength chosen on the attacker's own validation images."""

    name: Literal["ridge"] = "ridge"
    strengths: tuple[float, ...] = (1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
    """Ridge strengths tried, relative to the mean eigenvalue of the features' covariance."""
    num_releases: int = Field(2, ge=1)
    """Releases of each own image used."""


class BudgetOptions(Options):
    """What every learned attack has: budgets that double until doubling gains little, and the rate."""

    epochs: float = Field(20.0, gt=0)
    """First budget; it is doubled until doubling gains less than tolerance."""
    max_epochs: float = Field(80.0, gt=0)
    """Largest budget."""
    tolerance: float = Field(0.02, gt=0, lt=1)
    """Relative gain of a doubled budget under which the attack is called converged."""
    lr: float = Field(8e-3, gt=0)
    """Highest learning rate."""
    anneal: float = Field(0.5, gt=0, le=1)
    """Last part of a budget in which the rate falls to zero."""

    @model_validator(mode="after")
    def _leave_room_to_double(self) -> Self:
        if self.max_epochs < self.epochs:
            raise ValueError(f"max_epochs={self.max_epochs:g} is below the first budget, epochs={self.epochs:g}")
        return self


class DecoderOptions(BudgetOptions):
    """A convolutional decoder trained on fresh releases of the attacker's images (AdamW)."""

    name: Literal["decoder"] = "decoder"
    size: Literal["small", "published", "strong"] = "small"
    """small: for the demo; published: the baseline's residual decoder; strong: over 5 M parameters."""
    loss: Literal["mse", "mse_ssim"] = "mse"
    """Training loss; mse for the MSE row, mse_ssim for the perceptual one."""
    batch_size: int = Field(16, ge=1)
    """Images per step; small batches converge in far fewer epochs."""
    weight_decay: float = Field(1e-4, ge=0)
    """Weight decay."""
    ema_decay: float = Field(0.99, ge=0, lt=1)
    """Decay of the averaged weights that are used at the end; 0: none."""
    validation_fraction: float = Field(0.1, gt=0, lt=1)
    """Part of the attacker's images on which it chooses and judges convergence."""


AttackOptions = Annotated[
    GreyOptions | MeanImageOptions | ClassMeanOptions | NearestNeighbourOptions | RidgeOptions | DecoderOptions,
    Field(discriminator="name"),
]
"""Options of any attack, told apart by ``name``."""
