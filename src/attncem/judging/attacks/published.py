"""The baseline's attack as published, so that its numbers can be compared with ours."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from attncem.base.types import TrainingError
from attncem.config.options.attacks import DecoderOptions, PublishedOptions
from attncem.judging.attacks.base import Standardiser, State
from attncem.judging.attacks.convergence import cosine, for_epochs
from attncem.judging.attacks.decoder import DecoderTraining, Material
from attncem.judging.attacks.decoding import DecodingAttack, Shape
from attncem.judging.attacks.forecast import Seconds, timed
from attncem.judging.oracle import Oracle
from attncem.models.decoders import PublishedDecoder
from attncem.models.split import count_parameters
from attncem.records.audit import Verdict
from attncem.training.engine import adam, seeded


class PublishedAttack(DecodingAttack):
    """`res_normN8C64`, for 50 epochs of batches of 256: MSE, fresh noise in each batch, the last epoch's weights.

    Adam with the weight decay in the gradient, and a rate that falls along a cosine, epoch by epoch. It learns from all
    of the attacker's images, and from releases without standardisation: a defence that shrinks z may fool it, but not
    `decoder published`. Its budget is fixed, so it never makes an audit unreliable, and it is not required to beat any
    other method.
    """

    options_type = PublishedOptions
    options: PublishedOptions

    def fit(self, oracle: Oracle, *, seed: int) -> None:
        """Train for the fixed budget and keep the last weights."""
        material = RawMaterial(oracle, _training_options(self.options), seed)
        with seeded(material.device, seed, "published"):
            training = PublishedTraining(material)
            for_epochs(training, self.options.epochs, self._rate, tell=self._tell)
        check_finite(training.decoder, self.options.name, self.options.lr)
        self._decoder, self._standardise = training.decoder.eval(), material.standardise
        self._image_shape = oracle.image_shape
        self.verdict = Verdict(num_parameters=count_parameters(self._decoder), fixed_budget=True)

    def _rate(self, epoch: int) -> float:
        options = self.options
        return cosine(options.lr, options.final_lr, epoch, max(1, round(options.epochs)))

    def _tell(self, epochs: float) -> None:
        self.progress(self.options.name, epochs, self.options.epochs, {})

    def forecast(self, trial: Oracle, own: int, images: int) -> Seconds:
        """From the time of a step."""
        batch = min(self.options.batch_size, own)
        options = _training_options(self.options).model_copy(update={"batch_size": batch})
        training = PublishedTraining(RawMaterial(trial, options, seed=0))
        step = timed(lambda: training.step(self.options.lr)).times(batch / min(batch, trial.num_auxiliary))
        return step.times(own // batch * self.options.epochs + images / batch / 3)  # a step costs three passes

    def blank(self, feature_shape: Shape, image_shape: Shape, state: State) -> nn.Module:
        """The same decoder, untrained."""
        return PublishedDecoder(feature_shape, image_shape)  # type: ignore[arg-type]


class RawMaterial(Material):
    """All of the attacker's images, none held out, and their releases without standardisation."""

    def _divided(self) -> tuple[Tensor, Tensor]:
        everything = torch.arange(len(self.x), device=self.device)
        return everything, everything[:0]

    def _standardiser(self, released: Tensor) -> Standardiser:
        centre = torch.zeros_like(released[0], dtype=torch.float32)
        return Standardiser(centre, torch.ones_like(centre))


class PublishedTraining(DecoderTraining):
    """The baseline's decoder in training, with the baseline's optimiser."""

    def _new_optimizer(self) -> Optimizer:
        options = self.options
        return adam(self.decoder.parameters(), options.lr, self.engine.device, weight_decay=options.weight_decay)


def _training_options(options: PublishedOptions) -> DecoderOptions:
    """The options that the training of a decoder reads."""
    shared = options.model_dump(include={"batch_size", "lr", "weight_decay"})
    budget = {"epochs": options.epochs, "max_epochs": options.epochs}
    return DecoderOptions(size="published", ema_decay=0, **budget, **shared)


def check_finite(module: nn.Module, name: str, lr: float) -> None:
    """Raise a TrainingError if a weight is not finite."""
    total = torch.stack([tensor.detach().double().abs().sum() for tensor in module.parameters()]).sum()
    if not math.isfinite(float(total)):
        raise TrainingError(f"{name} diverged: lower its lr={lr:g}")
