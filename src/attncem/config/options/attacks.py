"""Options of the attacks."""

from __future__ import annotations

from typing import Annotated, Literal, Protocol, Self, TypeVar

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from attncem.config.options.base import Options
from attncem.config.threats import MOST_RELEASES


class _Stepped(Protocol):
    steps: int
    max_steps: int


S = TypeVar("S", bound=_Stepped)


def _steps_can_double(options: S) -> S:
    """The options, if their first number of steps is within the largest."""
    if options.max_steps < options.steps:
        raise ValueError(f"max_steps={options.max_steps} is below the first budget, steps={options.steps}")
    return options


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
    """Options of every attack that uses releases: how often it sees each image."""

    releases: int | None = Field(None, ge=1, le=MOST_RELEASES)
    """Number of releases of each image; None: as in the threat model."""
    jitter: int = Field(0, ge=0, le=255)
    """Largest random shift of every pixel in grey levels, drawn for each release; 0: the same image."""


class NearestNeighbourOptions(SeeingOptions):
    """The attacker's image with the nearest release."""

    name: Literal["nearest_neighbour"] = "nearest_neighbour"
    num_releases: int = Field(4, ge=1)
    """Releases of each of the attacker's images that are averaged."""


class RidgeOptions(SeeingOptions):
    """Linear inversion in closed form; the attacker's validation images choose its strength."""

    name: Literal["ridge"] = "ridge"
    strengths: tuple[float, ...] = (1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
    """Ridge strengths to try, relative to the mean eigenvalue of the features' covariance."""
    num_releases: int = Field(2, ge=1)
    """Releases of each of the attacker's images."""


class BudgetOptions(SeeingOptions):
    """Options of every learned attack: a budget that doubles until doubling gains little, and the learning rate."""

    epochs: float = Field(20.0, gt=0)
    """First budget in epochs; it doubles until doubling gains less than tolerance."""
    max_epochs: float = Field(80.0, gt=0)
    """Largest budget in epochs."""
    tolerance: float = Field(0.02, gt=0, lt=1)
    """The attack has converged if a doubled budget gains less than this, relative."""
    lr: float = Field(8e-3, gt=0)
    """Highest learning rate."""
    anneal: float = Field(0.5, gt=0, le=1)
    """Last part of a budget, in which the rate decays to zero."""

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
    """Training loss: mse for the MSE row, mse_ssim for the perceptual row."""
    batch_size: int = Field(16, ge=1)
    """Images per step; small batches converge in far fewer epochs."""
    least_steps: int = Field(1, ge=1)
    """Smallest number of steps per epoch: with few images, batches are smaller than batch_size."""
    mirror: bool = False
    """Whether half of the training images are mirrored left to right before their release."""
    precision: Literal["32-true", "bf16-mixed"] = "32-true"
    """Training precision on a GPU; on a CPU and for reconstruction always 32-true."""
    weight_decay: float = Field(1e-4, ge=0)
    """Weight decay."""
    ema_decay: float = Field(0.99, ge=0, lt=1)
    """Decay of the averaged weights for reconstruction; 0: no averaging."""
    validation_fraction: float = Field(0.1, gt=0, lt=1)
    """Part of the attacker's images for validation: choice of weights and convergence."""


class OptimisationOptions(SeeingOptions):
    """White-box inversion: the image in [0, 1] that best explains the release, by gradient through the encoder (Adam).

    The objective is the Gaussian likelihood of the release, a total variation, and a pull to the start.
    """

    name: Literal["optimisation"] = "optimisation"
    steps: int = Field(100, ge=1)
    """First number of steps; it doubles until doubling gains less than tolerance."""
    max_steps: int = Field(400, ge=1)
    """Largest number of steps."""
    tolerance: float = Field(0.02, gt=0, lt=1)
    """The attack has converged if doubling gains less than this part of the MSE on held-out images."""
    lr: float = Field(0.03, gt=0)
    """Learning rate of the first step, in pixel values; it decays to zero."""
    smoothness: tuple[NonNegativeFloat, ...] = Field((0.0, 1.0, 3.0, 10.0, 30.0), min_length=1)
    """Weights of the total variation; held-out images choose one."""
    pulls: tuple[NonNegativeFloat, ...] = Field((0.0, 1.0, 3.0, 10.0), min_length=1)
    """Weights of the pull to the start; held-out images choose one; 1: the start's held-out error is the variance."""
    restarts: int = Field(3, ge=1)
    """Descents per image, all but the first from a perturbed start; the objective chooses one."""
    start: Literal["ridge", "decoder", "mean", "random"] = "ridge"
    """Start of the first descent: the attacker's ridge or small decoder, the mean image, or noise. With random, the
    pull is to the mean image."""
    decoder_epochs: float = Field(28.0, gt=0)
    """First budget of the small decoder of start=decoder; it doubles once."""
    draws: int = Field(4, ge=1)
    """Fresh draws over which a step averages the loss, if the channel is not only additive noise."""
    tuning_images: int = Field(64, ge=1)
    """The attacker's images held out to choose weights and steps; at most a fifth of all."""
    images: int | None = Field(1000, ge=1)
    """Largest number of evaluation images; None: all."""

    _leave_room_to_double = model_validator(mode="after")(_steps_can_double)


class PublishedOptions(SeeingOptions):
    """The baseline's decoder with its published training (Adam) and a fixed budget."""

    name: Literal["published"] = "published"
    epochs: float = Field(50.0, gt=0)
    """Epochs; the learning rate follows a cosine."""
    batch_size: int = Field(256, ge=1)
    """Images per step; an incomplete last batch is dropped."""
    lr: float = Field(1e-3, gt=0)
    """Learning rate of the first epoch."""
    final_lr: float = Field(1e-5, gt=0)
    """Final learning rate of the cosine."""
    weight_decay: float = Field(1e-4, ge=0)
    """Weight decay, as part of the gradient."""


class GanOptions(SeeingOptions):
    """The baseline's decoder, trained further as the generator of a WGAN with gradient penalty and a fixed budget."""

    name: Literal["gan"] = "gan"
    epochs: float = Field(10.0, gt=0)
    """Epochs of generator and critic; published: 150."""
    decoder_epochs: float = Field(50.0, gt=0)
    """Epochs of the initial decoder, trained as published."""
    decoder_batch_size: int = Field(256, ge=1)
    """Images per step of that decoder."""
    batch_size: int = Field(128, ge=1)
    """Images per step of generator and critic."""
    lr: float = Field(5e-4, gt=0)
    """Initial learning rate of the generator."""
    critic_lr: float = Field(5e-3, gt=0)
    """Initial learning rate of the critic."""
    critic_steps: int = Field(10, ge=1)
    """Critic steps per generator step."""
    gradient_penalty: float = Field(10.0, ge=0)
    """Weight of the penalty on critic gradients of a norm other than 1."""
    mse_weight: float = Field(1500.0, ge=0)
    """Weight of the MSE in addition to the critic's output."""


class GlobalDecoderOptions(BudgetOptions):
    """What attacks share that train global decoders (AdamW)."""

    epochs: float = Field(10.0, gt=0)
    """First budget of each decoder, and of the flow around it."""
    max_epochs: float = Field(40.0, gt=0)
    """Largest budget of each decoder."""
    lr: float = Field(1.5e-3, gt=0)
    """Highest learning rate."""
    batch_size: int = Field(256, ge=1)
    """Images per step."""
    least_steps: int = Field(150, ge=1)
    """Smallest number of steps per epoch: with few images, batches are smaller than batch_size."""
    precision: Literal["32-true", "bf16-mixed"] = "bf16-mixed"
    """Training precision on a GPU; on a CPU and for reconstruction always 32-true."""
    weight_decay: float = Field(1e-3, ge=0)
    """Weight decay."""


class FamilyOptions(GlobalDecoderOptions):
    """Global decoders of several widths on several fractions of the attacker's images (AdamW); the best one is used."""

    name: Literal["family"] = "family"
    widths: tuple[PositiveInt, ...] = Field((32, 64, 96), min_length=1)
    """Channels of the decoders."""
    fractions: tuple[Annotated[float, Field(gt=0, le=1)], ...] = Field((0.01, 0.1, 0.3, 1.0), min_length=1)
    """Fractions of the attacker's images for each width."""


class InformedOptions(GlobalDecoderOptions):
    """A global decoder that contains a copy of the client's front end (AdamW)."""

    name: Literal["informed"] = "informed"
    epochs: float = Field(25.0, gt=0)
    """First budget."""
    max_epochs: float = Field(100.0, gt=0)
    """Largest budget in epochs."""
    least_steps: int = Field(75, ge=1)
    """Smallest number of steps per epoch: with few images, batches are smaller than batch_size."""
    picture: float = Field(0.01, ge=0)
    """Weight of the error of the picture that the encoder saw, relative to the power of that picture."""
    mirror: bool = True
    """Whether half of the training images are mirrored left to right before their release."""


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
    """Samples per evaluation image."""
    steps: int = Field(10, ge=1)
    """Steps of Heun's method from noise to a sample."""


class FlowPriorOptions(BudgetOptions):
    """A flow of the attacker's images alone (AdamW), bent to each release through the client: samples, or a search.

    The training needs no release. Samples and search follow the gradient of the release's likelihood.
    """

    name: Literal["flow_prior"] = "flow_prior"
    by: Literal["guidance", "latent"] = "guidance"
    """guidance: samples of p(x | release), and their mean; latent: a search for the flow's starting noise."""
    epochs: float = Field(5.0, gt=0)
    """First budget of the flow in epochs; it doubles until doubling gains less than tolerance."""
    max_epochs: float = Field(20.0, gt=0)
    """Largest budget of the flow in epochs."""
    lr: float = Field(3e-3, gt=0)
    """Highest learning rate of the flow."""
    batch_size: int = Field(64, ge=1)
    """Images per step."""
    width: int = Field(32, ge=8)
    """Channels of the flow at half the image's resolution; twice as many at a quarter."""
    blocks: int = Field(1, ge=1)
    """Residual blocks of the flow before and after the lowest resolution; twice as many there."""
    samples: int = Field(8, ge=2)
    """Samples of each release; with by=latent, the number of searches, of which the best counts."""
    times: int = Field(10, ge=2)
    """Times at which a sample is bent to its release; with by=latent, steps of Heun's method from noise to an image."""
    pulls: tuple[PositiveFloat, ...] = Field((0.3, 1.0, 3.0), min_length=1)
    """Weights of the prior against the likelihood; held-out images choose one; 1: as measured."""
    corrections: tuple[NonNegativeInt, ...] = Field((0, 1), min_length=1)
    """Numbers of gradient corrections at each time of by=guidance; held-out images choose one."""
    steps: int = Field(25, ge=1)
    """First number of gradient steps of a search; held-out images choose among doublings."""
    max_steps: int = Field(50, ge=1)
    """Largest number of gradient steps of a search."""
    tuning_images: int = Field(32, ge=2)
    """The attacker's images held out to choose weight and steps; at most a fifth of all."""
    images: int | None = Field(200, ge=1)
    """Largest number of evaluation images; None: all."""

    _leave_room_to_double = model_validator(mode="after")(_steps_can_double)


class RewhiteningOptions(SeeingOptions):
    """Ridge or a small decoder on releases stretched along directions that the defence shrank inside the classes."""

    name: Literal["rewhitening"] = "rewhitening"
    then: Literal["ridge", "decoder"] = "ridge"
    """Attack on the stretched release."""
    powers: tuple[NonNegativeFloat, ...] = Field((0.0, 0.5, 1.0), min_length=1)
    """Powers of the deviation inside classes to divide by; held-out images choose one."""
    shrinkage: float = Field(1e-4, gt=0)
    """Part of the mean variance that is added to the variance of every direction."""
    decoder_epochs: float = Field(28.0, gt=0)
    """First budget of the small decoder of then=decoder; it doubles once."""


class NoiseGuessOptions(SeeingOptions):
    """Tries the seeds of a weak generator until one explains the release, then removes the noise (ridge)."""

    name: Literal["noise_guess"] = "noise_guess"
    seeds: int = Field(2**20, ge=1, le=2**32)
    """Number of seeds to try, from 0; torch's generator has 4294967296: minutes on a GPU, hours on a CPU."""
    images: int | None = Field(100, ge=1)
    """Largest number of evaluation images; None: all."""


class SubstituteOptions(SeeingOptions):
    """A substitute client, trained until its releases look like the observed ones, and a decoder for it."""

    name: Literal["substitute"] = "substitute"
    steps: int = Field(2000, ge=1)
    """Steps of the training."""
    batch_size: int = Field(64, ge=2)
    """Images and observed releases per step."""
    lr: float = Field(1e-3, gt=0)
    """Highest learning rate (Adam); it decays to zero in the second half."""
    width: int = Field(32, ge=8)
    """Channels inside the substitute client."""
    match: float = Field(1.0, ge=0)
    """Weight of the distances between distributions: means, covariance, MK-MMD."""
    critic: float = Field(0.1, ge=0)
    """Weight of the critic that distinguishes the substitute's releases from observed ones."""
    cycle: float = Field(0.3, ge=0)
    """Weight of the error between an observed release and the release of its reconstruction."""
    server: float = Field(0.3, ge=0)
    """Weight of the server's errors on the substitute's releases of labelled images."""


class ImagePriorOptions(SeeingOptions):
    """Deep image prior: an untrained network per release, fitted through the encoder until only noise is left."""

    name: Literal["image_prior"] = "image_prior"
    steps: int = Field(100, ge=1)
    """First number of steps; held-out images choose among doublings."""
    max_steps: int = Field(800, ge=1)
    """Largest number of steps."""
    tolerance: float = Field(0.02, gt=0, lt=1)
    """The attack has converged if the last doubling gains less than this part of the MSE on its images."""
    lr: float = Field(0.02, gt=0)
    """Learning rate of Adam."""
    width: int = Field(32, ge=4)
    """Channels inside the network."""
    draws: int = Field(4, ge=1)
    """Fresh draws over which a step averages the loss, if the channel is not only additive noise."""
    tuning_images: int = Field(25, ge=1)
    """The attacker's images held out to choose the steps; at most a fifth of all."""
    images: int | None = Field(100, ge=1)
    """Largest number of evaluation images; None: all."""

    _leave_room_to_double = model_validator(mode="after")(_steps_can_double)


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
    | FlowPriorOptions
    | OptimisationOptions
    | RewhiteningOptions
    | NoiseGuessOptions
    | SubstituteOptions
    | ImagePriorOptions,
    Field(discriminator="name"),
]
"""Options of any attack, distinguished by ``name``."""
