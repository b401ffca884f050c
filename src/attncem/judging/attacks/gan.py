"""The baseline's “GAN attack”: its decoder, trained further against a critic of real and decoded images."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attncem.base.seeding import make_generator
from attncem.config.options.attacks import DecoderOptions, GanOptions
from attncem.judging.attacks.base import State
from attncem.judging.attacks.convergence import cosine, for_epochs
from attncem.judging.attacks.decoder import Material
from attncem.judging.attacks.decoding import DecodingAttack, Shape
from attncem.judging.attacks.published import PublishedAttack, RawMaterial, check_finite
from attncem.judging.oracle import Oracle
from attncem.models.critic import Critic
from attncem.models.decoders import PublishedDecoder
from attncem.models.split import count_parameters
from attncem.records.audit import Verdict
from attncem.training.capture import Step
from attncem.training.engine import Engine, Trainable, adam, seeded, set_rate

_BETAS = (0.5, 0.999)
_LENGTH = 300
"""Epochs after which the cosine of the rates would reach 0; trainings end long before."""


class GanAttack(DecodingAttack):
    """The published decoder as the generator of a WGAN-GP; no latent vector is searched.

    It starts from the result of `published`. The critic takes a step at every batch, the generator at every
    `critic_steps`-th, on −D(G(z)) + `mse_weight` · MSE; both use Adam(0.5, 0.999). Its budget is fixed, so it never
    makes an audit unreliable.
    """

    options_type = GanOptions
    options: GanOptions

    def fit(self, oracle: Oracle, *, seed: int) -> None:
        """Train as published, then against the critic."""
        epochs, batch_size = self.options.decoder_epochs, self.options.decoder_batch_size
        start = PublishedAttack(progress=self.progress, epochs=epochs, batch_size=batch_size)
        start.fit(oracle, seed=seed)
        training = DecoderOptions(size="published", batch_size=self.options.batch_size)
        material = RawMaterial(oracle, training, seed)
        with seeded(material.device, seed, "gan"):
            game = Game(material, start.decoder, self.options)
            for_epochs(game, self.options.epochs, lambda epoch: cosine(1, 0, epoch, _LENGTH), tell=self._tell)
        check_finite(game.generator, self.options.name, self.options.lr)
        self._decoder, self._standardise = game.generator.eval(), material.standardise
        self._image_shape = oracle.image_shape
        self.verdict = Verdict(num_parameters=count_parameters(self._decoder), fixed_budget=True)

    def _tell(self, epochs: float) -> None:
        self.progress(self.options.name, epochs, self.options.epochs, {})

    def blank(self, feature_shape: Shape, image_shape: Shape, state: State) -> nn.Module:
        """The same decoder, untrained."""
        return PublishedDecoder(feature_shape, image_shape)  # type: ignore[arg-type]


class Game:
    """Generator and critic in training; on a GPU the steps of both are captured."""

    def __init__(self, material: Material, generator: nn.Module, options: GanOptions) -> None:
        self.material, self.generator, self.options = material, generator, options
        self.engine = Engine(material.device)
        with seeded(material.device, material.seed, "critic init"):
            self.critic = self.engine.place(Critic(tuple(material.x.shape[1:])))  # type: ignore[arg-type]
        device = material.device
        self.of_generator = adam(generator.parameters(), options.lr, device, betas=_BETAS)
        self.of_critic = adam(self.critic.parameters(), options.critic_lr, device, betas=_BETAS)
        self.steps_per_epoch = len(material.train) // min(options.batch_size, len(material.train))
        self.taken = 0
        self._mix = make_generator(device, material.seed, "gradient penalty")
        self.criticise = self._step(self._criticise, self.critic)
        self.generate = self._step(self._generate, self.generator)

    def _step(self, function: Callable[..., None], moved: nn.Module) -> Step:
        modules = {"generator": self.generator, "critic": self.critic}
        state = Trainable(modules, {"generator": self.of_generator, "critic": self.of_critic})
        captured = self.material.device.type == "cuda"
        return Step(function, state=state.tensors, watched=list(moved.parameters()), record=captured)

    def step(self, rate: float) -> None:
        """One critic step on the next batch, at this share of its rate; a generator step at every `critic_steps`-th."""
        self.generator.train()
        set_rate(self.of_critic, rate * self.options.critic_lr)
        set_rate(self.of_generator, rate * self.options.lr)
        released, x = self.material.batch()
        mix = torch.rand(len(x), 1, 1, 1, generator=self._mix, device=x.device)
        self.criticise(released, x, mix)
        self.taken += 1
        if self.taken % self.options.critic_steps == 0:
            self.generate(released, x)

    def _criticise(self, released: Tensor, x: Tensor, mix: Tensor) -> None:
        with torch.no_grad():
            made = self.generator(released)
        gap = self.critic(made).mean() - self.critic(x).mean()
        penalty = gradient_penalty(self.critic, mix * x + (1 - mix) * made)
        self.engine.descend(gap + self.options.gradient_penalty * penalty, [self.of_critic])

    def _generate(self, released: Tensor, x: Tensor) -> None:
        made = self.generator(released)
        loss = self.options.mse_weight * F.mse_loss(made, x) - self.critic(made).mean()
        self.engine.descend(loss, [self.of_generator])
        self.of_critic.zero_grad(set_to_none=True)  # the critic must not learn from these gradients


def gradient_penalty(critic: nn.Module, images: Tensor) -> Tensor:
    """Mean over images of (‖∇D‖ − 1)²."""
    images = images.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(critic(images).sum(), images, create_graph=True)
    length = (gradient.square().flatten(1).sum(1) + 1e-12).sqrt()  # finite where the gradient is 0
    return (length - 1).square().mean()
