"""Options of the penalties: terms of the loss in addition to the surrogate's."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from attncem.config.options.base import Options
from attncem.config.options.opened import Opened


class PenaltyOptions(Options):
    """Options of every penalty."""

    name: str
    weight: float = Field(0.3, ge=0)
    """Weight of the term in the loss (the baseline's run_exp.sh: 0.3)."""
    reads: Literal["clean", "released"] = "clean"
    """Its input: z before the channel, as in the baseline, or after it."""
    warmup_epochs: int = Field(0, ge=0)
    """First epochs without the term (ours)."""


class DistanceCorrelationOptions(PenaltyOptions):
    """Distance correlation between images and features of a batch (NoPeek, Vepakomma et al., 2020)."""

    name: Literal["distance_correlation"] = "distance_correlation"
    estimate: Literal["biased", "corrected"] = "biased"
    """biased: dCor of the batch as in NoPeek and the baseline, near 1 in high dimensions for any z; corrected: the
    unbiased estimate of dCor² (Székely and Rizzo, 2013), if above 0."""


class AdversarialOptions(PenaltyOptions):
    """A decoder trained together with the model; the client is penalised where it recovers too much (ARL, ResSFL)."""

    name: Literal["adversarial"] = "adversarial"
    warmup_epochs: int = Field(1, ge=0)
    """First epochs in which only the decoder learns (ours; the baseline first trains it for 30 epochs on test
    images)."""
    loss: Literal["ssim", "mse"] = "ssim"
    """Loss of the decoder and penalty of the client."""
    threshold: float | None = None
    """The client is penalised if SSIM is above or MSE below this; null: 0.5 for SSIM (run_exp.sh), and 1 for MSE, i.e.
    always (the baseline)."""
    steps: int = Field(1, ge=1)
    """Steps of the decoder on each batch it trains on (the baseline: gan_adv_stepK)."""
    every: int = Field(1, ge=1)
    """The decoder trains on every n-th batch of an epoch (the baseline's optimize_computation)."""
    lr: float = Field(1e-3, gt=0)
    """Highest learning rate of the decoder's Adam (the baseline: 1e-3)."""
    lr_milestones: tuple[float, ...] = (0.25, 0.625)
    """Drops of that rate, as fractions of the training (the baseline: epochs 60 and 150 of 240)."""
    lr_factor: float = Field(0.2, gt=0, le=1)
    """Each drop multiplies the rate by this (the baseline: 0.2)."""
    blocks: int = Field(4, ge=0)
    """Residual blocks of the decoder (the baseline trains against res_normN4C64, and attacks with N8)."""
    width: int = Field(64, ge=4)
    """Channels of the decoder (the baseline: 64)."""

    @property
    def limit(self) -> float:
        """The threshold, or the default of the loss."""
        return {"ssim": 0.5, "mse": 1.0}[self.loss] if self.threshold is None else self.threshold


class VibOptions(PenaltyOptions):
    """Rate of the release: an upper bound on the nats that it tells about x (VIB, Alemi et al., 2017)."""

    name: Literal["vib"] = "vib"
    weight: float = Field(1e-3, ge=0)
    """Weight β of the rate in nats (Alemi et al.: 1e-3 on MNIST)."""
    reads: Literal["clean"] = "clean"
    """Its input: z before the channel; the rate includes the channel's noise."""
    prior: Literal["standard", "learned", "class"] = "standard"
    """Assumed law of the release. standard: N(0, I), as published; learned: a mean and a variance of each dimension;
    class: these for each label, which bounds what the release tells beyond the label (ours)."""
    lr: float = Field(1e-2, gt=0)
    """Learning rate of the Adam of the prior; no effect with prior=standard (ours)."""


Penalty = Annotated[
    AdversarialOptions | DistanceCorrelationOptions | VibOptions,
    Field(discriminator="name"),
    Opened("penalty"),
]
