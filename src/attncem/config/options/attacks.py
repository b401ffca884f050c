"""Options of the attacks."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator

from attncem.config.options.base import Options
from attncem.config.threats import MOST_RELEASES


class GreyOptions(Options):
    """Blind floor: every pixel 0.5."""

    name: Literal["grey"] = "grey"


class MeanImageOptions(Options):
    """Blind floor: the mean of the attacker's images."""

    name: Literal["mean_image"] = "mean_image"


class ClassMeanOptions(Options):
    """Floor that knows only the predicted label: the mean image of that class."""

    name: Literal["class_mean"] = "class_mean"


class SeeingOptions(Options):
    """What every attack has that looks at releases: how often it sees each image."""

    releases: int | None = Field(None, ge=1, le=MOST_RELEASES)
    """Releases of each image that it sees; None: as many as the threat model says."""
    jitter: int = Field(0, ge=0, le=255)
    """Grey levels by which every pixel is off at most, in each release anew; 0: the very same image."""


class NearestNeighbourOptions(SeeingOptions):
    """The attacker's own image whose release lies nearest."""

    name: Literal["nearest_neighbour"] = "nearest_neighbour"
    num_releases: int = Field(4, ge=1)
    """Releases of each own image averaged into its key."""


class RidgeOptions(SeeingOptions):
    """Linear inversion in closed form, its strength chosen on the attacker's own validation images."""

    name: Literal["ridge"] = "ridge"
    strengths: tuple[float, ...] = (1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
    """Ridge strengths tried, relative to the mean eigenvalue of the features' covariance."""
    num_releases: int = Field(2, ge=1)
    """Releases of each own image used."""


class BudgetOptions(SeeingOptions):
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
    size: Literal["small", "published", "strong", "global"] = "small"
    """small: for the demo; published: the baseline's residual decoder; strong: over 5 M parameters; global: with a
    branch that sees the whole feature."""
    loss: Literal["mse", "mse_ssim"] = "mse"
    """Training loss; mse for the MSE row, mse_ssim for the perceptual one."""
    batch_size: int = Field(16, ge=1)
    """Images per step; small batches converge in far fewer epochs."""
    least_steps: int = Field(1, ge=1)
    """Steps an epoch has at least: with few images, batches are made smaller than batch_size."""
    mirror: bool = False
    """Whether it also has its images released mirrored, left to right: each is met as often so as as it is."""
    precision: Literal["32-true", "bf16-mixed"] = "32-true"
    """Numbers that the decoder is trained in on a GPU; on a CPU, and when it is used, always 32-true."""
    weight_decay: float = Field(1e-4, ge=0)
    """Weight decay."""
    ema_decay: float = Field(0.99, ge=0, lt=1)
    """Decay of the averaged weights that are used at the end; 0: none."""
    validation_fraction: float = Field(0.1, gt=0, lt=1)
    """Part of the attacker's images on which it chooses and judges convergence."""


class OptimisationOptions(SeeingOptions):
    """White-box inversion: the image in [0, 1] that explains the release best, by gradient through the encoder (Adam).

    The objective is the Gaussian likelihood of the release, a total variation, and a pull to the start.
    """

    name: Literal["optimisation"] = "optimisation"
    steps: int = Field(100, ge=1)
    """First number of steps; it is doubled until doubling gains less than tolerance."""
    max_steps: int = Field(400, ge=1)
    """Largest number of steps."""
    tolerance: float = Field(0.02, gt=0, lt=1)
    """Part of the MSE on own held-out images that a doubling must gain, else the attack is called converged."""
    lr: float = Field(0.03, gt=0)
    """Rate of the first step, in pixel values; it falls to zero."""
    smoothness: tuple[NonNegativeFloat, ...] = Field((0.0, 1.0, 3.0, 10.0, 30.0), min_length=1)
    """Weights of the total variation that are tried on own held-out images."""
    pulls: tuple[NonNegativeFloat, ...] = Field((0.0, 1.0, 3.0, 10.0), min_length=1)
    """Weights of the pull to the start that are tried too; 1: the start's own held-out error is its variance."""
    restarts: int = Field(3, ge=1)
    """Descents for each image, all but the first from a disturbed start; the objective chooses."""
    start: Literal["ridge", "decoder", "mean", "random"] = "ridge"
    """Where the first descent begins: a ridge or a small decoder of the attacker's own, the mean image, or noise. The
    pull of random is to the mean image."""
    decoder_epochs: float = Field(28.0, gt=0)
    """First budget of the small decoder that start=decoder learns; it doubles once."""
    draws: int = Field(4, ge=1)
    """Fresh draws that a step averages the loss over, where the channel is not additive noise alone."""
    tuning_images: int = Field(64, ge=1)
    """Own images held out to choose weights and steps; at most a fifth of all."""
    images: int | None = Field(1000, ge=1)
    """Evaluation images that it is asked about at most; None: all."""

    @model_validator(mode="after")
    def _leave_room_to_double(self) -> Self:
        if self.max_steps < self.steps:
            raise ValueError(f"max_steps={self.max_steps} is below the first budget, steps={self.steps}")
        return self


class PublishedOptions(SeeingOptions):
    """The baseline's decoder with the training that it was published with (Adam): a budget that is given."""

    name: Literal["published"] = "published"
    epochs: float = Field(50.0, gt=0)
    """Epochs; the rate falls over them along a cosine."""
    batch_size: int = Field(256, ge=1)
    """Images per step; what does not fill the last one is left out of the epoch."""
    lr: float = Field(1e-3, gt=0)
    """Rate of the first epoch."""
    final_lr: float = Field(1e-5, gt=0)
    """Rate that the cosine falls to."""
    weight_decay: float = Field(1e-4, ge=0)
    """Weight decay, as part of the gradient."""


class GanOptions(SeeingOptions):
    """The baseline's decoder trained on as the generator of a WGAN with gradient penalty: a budget that is given."""

    name: Literal["gan"] = "gan"
    epochs: float = Field(10.0, gt=0)
    """Epochs of generator and critic; published: 150."""
    decoder_epochs: float = Field(50.0, gt=0)
    """Epochs of the decoder that it starts from, trained as published."""
    decoder_batch_size: int = Field(256, ge=1)
    """Images per step of that decoder."""
    batch_size: int = Field(128, ge=1)
    """Images per step of generator and critic."""
    lr: float = Field(5e-4, gt=0)
    """The generator's rate at the start."""
    critic_lr: float = Field(5e-3, gt=0)
    """The critic's rate at the start."""
    critic_steps: int = Field(10, ge=1)
    """Steps of the critic to one of the generator."""
    gradient_penalty: float = Field(10.0, ge=0)
    """Weight of the penalty on critics that are not of slope 1."""
    mse_weight: float = Field(1500.0, ge=0)
    """Weight of the MSE beside the critic's answer."""


class GlobalDecoderOptions(BudgetOptions):
    """What attacks share that train global decoders (AdamW)."""

    epochs: float = Field(10.0, gt=0)
    """First budget of each decoder, and of the flow around it."""
    max_epochs: float = Field(40.0, gt=0)
    """Largest budget of each."""
    lr: float = Field(1.5e-3, gt=0)
    """Highest learning rate."""
    batch_size: int = Field(256, ge=1)
    """Images per step."""
    least_steps: int = Field(150, ge=1)
    """Steps an epoch has at least: with few images, batches are made smaller than batch_size."""
    precision: Literal["32-true", "bf16-mixed"] = "bf16-mixed"
    """Numbers that it is trained in on a GPU; on a CPU, and when it is used, always 32-true."""
    weight_decay: float = Field(1e-3, ge=0)
    """Weight decay."""


class FamilyOptions(GlobalDecoderOptions):
    """Global decoders of several widths on several parts of the own images (AdamW); the best one recovers."""

    name: Literal["family"] = "family"
    widths: tuple[PositiveInt, ...] = Field((32, 64, 96), min_length=1)
    """Channels of the decoders."""
    fractions: tuple[Annotated[float, Field(gt=0, le=1)], ...] = Field((0.01, 0.1, 0.3, 1.0), min_length=1)
    """Parts of the own images that each width learns from."""


class InformedOptions(GlobalDecoderOptions):
    """A global decoder that knows the client's front end: a copy of it is inside (AdamW)."""

    name: Literal["informed"] = "informed"
    epochs: float = Field(25.0, gt=0)
    """First budget."""
    max_epochs: float = Field(100.0, gt=0)
    """Largest budget."""
    least_steps: int = Field(75, ge=1)
    """Steps an epoch has at least: with few images, batches are made smaller than batch_size."""
    picture: float = Field(0.01, ge=0)
    """Weight of the error of the picture that the encoder has seen, in parts of that picture's own power."""
    mirror: bool = True
    """Whether it also has its images released mirrored, left to right: each is met as often so as as it is."""


class FlowOptions(GlobalDecoderOptions):
    """A conditional flow around the mean of a global decoder (AdamW): samples of p(x | release), and their mean.

    Decoder and flow have the same budgets, one after the other.
    """

    name: Literal["flow"] = "flow"
    width: int = Field(64, ge=8)
    """Channels of the flow at half the image's resolution; twice as many at a quarter."""
    blocks: int = Field(2, ge=1)
    """Residual blocks of the flow before and after the lowest resolution; twice as many there."""
    samples: int = Field(4, ge=2)
    """Samples of every evaluation image."""
    steps: int = Field(10, ge=1)
    """Steps of Heun's method from noise to a sample."""


class RewhiteningOptions(SeeingOptions):
    """Ridge or a small decoder on releases that are stretched where a defence has shrunk them inside the classes."""

    name: Literal["rewhitening"] = "rewhitening"
    then: Literal["ridge", "decoder"] = "ridge"
    """What reads the stretched release."""
    powers: tuple[NonNegativeFloat, ...] = Field((0.0, 0.5, 1.0), min_length=1)
    """How far it is stretched: powers of the deviation inside classes to divide by, tried on own held-out images."""
    shrinkage: float = Field(1e-4, gt=0)
    """Part of the mean variance that is added to every direction's."""
    decoder_epochs: float = Field(28.0, gt=0)
    """First budget of the small decoder of then=decoder; it doubles once."""


class NoiseGuessOptions(SeeingOptions):
    """The seeds of a weak generator are tried until one explains the release; then the noise is taken off (ridge)."""

    name: Literal["noise_guess"] = "noise_guess"
    seeds: int = Field(2**20, ge=1, le=2**32)
    """Seeds that are tried, from 0 on; torch's generator tells 4294967296 apart: minutes on a GPU, hours on a CPU."""
    images: int | None = Field(100, ge=1)
    """Evaluation images that it is asked about at most; None: all."""


class SubstituteOptions(SeeingOptions):
    """A client of the attacker's own whose releases are made to look like the observed ones, and a decoder for it."""

    name: Literal["substitute"] = "substitute"
    steps: int = Field(2000, ge=1)
    """Steps of the training."""
    batch_size: int = Field(64, ge=2)
    """Images and observed releases in a step."""
    lr: float = Field(1e-3, gt=0)
    """Highest learning rate (Adam); it falls to zero over the second half."""
    width: int = Field(32, ge=8)
    """Channels inside the substitute client."""
    match: float = Field(1.0, ge=0)
    """Weight of the distances of distributions: means, covariance, MK-MMD."""
    critic: float = Field(0.1, ge=0)
    """Weight of the critic that tells the substitute's releases from observed ones."""
    cycle: float = Field(0.3, ge=0)
    """Weight of the error with which an observed release comes back from its own reconstruction."""
    server: float = Field(0.3, ge=0)
    """Weight of the server's errors on the substitute's releases of labelled own images."""


class ImagePriorOptions(SeeingOptions):
    """Deep image prior: an untrained network for each release, fitted through the encoder until only noise is left."""

    name: Literal["image_prior"] = "image_prior"
    steps: int = Field(100, ge=1)
    """First number of steps; doubled ones are tried on own held-out images, and the best is kept."""
    max_steps: int = Field(800, ge=1)
    """Largest number of steps."""
    tolerance: float = Field(0.02, gt=0, lt=1)
    """Part of the MSE on own images that the last doubling must gain, else it is called converged."""
    lr: float = Field(0.02, gt=0)
    """Rate of Adam."""
    width: int = Field(32, ge=4)
    """Channels inside the network."""
    draws: int = Field(4, ge=1)
    """Fresh draws that a step averages the loss over, where the channel is not additive noise alone."""
    tuning_images: int = Field(25, ge=1)
    """Own images held out to choose the steps; at most a fifth of all."""
    images: int | None = Field(100, ge=1)
    """Evaluation images that it is asked about at most; None: all."""

    @model_validator(mode="after")
    def _leave_room_to_double(self) -> Self:
        if self.max_steps < self.steps:
            raise ValueError(f"max_steps={self.max_steps} is below the first budget, steps={self.steps}")
        return self


AttackOptions = Annotated[
    GreyOptions
    | MeanImageOptions
    | ClassMeanOptions
    | NearestNeighbourOptions
    | RidgeOptions
    | DecoderOptions
    | PublishedOptions
    | GanOptions
    | FamilyOptions
    | InformedOptions
    | FlowOptions
    | OptimisationOptions
    | RewhiteningOptions
    | NoiseGuessOptions
    | SubstituteOptions
    | ImagePriorOptions,
    Field(discriminator="name"),
]
"""Options of any attack, told apart by ``name``."""
