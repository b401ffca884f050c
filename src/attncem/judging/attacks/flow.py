"""A flow decoder: it samples the plausible images of a release, and gives their mean."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from attncem.base.seeding import make_generator
from attncem.config.options.attacks import DecoderOptions, FlowOptions
from attncem.judging.attacks.base import State
from attncem.judging.attacks.convergence import until_converged
from attncem.judging.attacks.decoder import DecoderAttack, DecoderTraining, Material, shared_options
from attncem.judging.attacks.decoding import DecodingAttack, Shape
from attncem.judging.oracle import Oracle
from attncem.models.decoders import GlobalDecoder
from attncem.models.flow import FlowDecoder, FlowNetwork
from attncem.models.split import count_parameters
from attncem.records.metrics import mse
from attncem.training.capture import Function
from attncem.training.engine import Engine, seeded, set_rate

_MEAN_SHARE = 0.25
"""Share of a batch that trains the mean only, at time 0."""
_SMALLEST = 1e-4
"""Smallest deviation around the mean, in pixel values; a deviation of 0 would leave no scale."""


STARTS = 512
"""Number of noises that samples start from; the release selects which ones."""


class FlowAttack(DecodingAttack):
    """A decoder that sees the whole feature gives the mean; a conditional flow around it gives samples of p(x | z).

    `reconstruct` is the mean of the flow in one step (`FlowDecoder`), or the decoder's mean where that is better on
    held-out images. By the law of total variance the spread of exact samples is, on average, the error of the exact
    mean; the row shows both for comparison. Samples start from noises that the bits of the release select, so that each
    image depends on its own release alone, and different images draw different noises.
    """

    options_type = FlowOptions
    options: FlowOptions
    must_beat = ("ridge",)
    _decoder: FlowDecoder

    def fit(self, oracle: Oracle, *, seed: int) -> None:
        """Learn the mean, then the flow around it, each with doubling budgets and on the same images."""
        options = shared_options(self.options, mirror=True)
        mean = DecoderAttack(options, progress=self.progress)
        mean.fit(oracle, seed=seed)
        material = FlowMaterial(oracle, options, seed)
        with seeded(material.device, seed, "flow"):
            trunk = FlowTraining(material, self._around(mean, material, seed))
            parameters = count_parameters(trunk.decoder)
            done = until_converged(
                trunk, FlowTraining.copied, options, name="flow", num_parameters=parameters, progress=self.progress
            )
        self._decoder = done.best.flow.eval()
        self._decoder.refined.fill_(float(done.best.gains_by_refining()))
        self._standardise, self._image_shape, self._seed = material.standardise, oracle.image_shape, seed
        self.findings = [*mean.findings, *done.findings]
        refined = {"refined": float(self._decoder.refined)}
        self.verdict = replace(done.verdict, reliable=not self.findings, chosen=refined)

    def _around(self, mean: DecoderAttack, material: Material, seed: int) -> FlowDecoder:
        """The untrained flow; its scale is the deviation of held-out images from the mean."""
        shapes = tuple(material.held_z.shape[1:]), tuple(material.x.shape[1:])
        with seeded(material.device, seed, "flow init"):
            flow = FlowDecoder(mean.decoder, self._network(*shapes))
        Engine(material.device).place(flow)
        flow.scale.fill_(max(math.sqrt(held_error(flow.mean, material)), _SMALLEST))
        return flow

    def _network(self, feature_shape: Shape, image_shape: Shape) -> FlowNetwork:
        width, blocks = self.options.width, self.options.blocks
        return FlowNetwork(feature_shape, image_shape, width=width, blocks=blocks)  # type: ignore[arg-type]

    @torch.no_grad()
    def samples(self, released: Tensor) -> Tensor:
        """Plausible images, [samples, B, …]."""
        z, draws = self._standardise(released), make_generator(released.device, self._seed, "flow samples")
        noise = torch.randn(STARTS, *self._image_shape, generator=draws, device=z.device)
        first = mark(released) * self.options.samples
        starts = (noise[(first + number) % STARTS] for number in range(self.options.samples))
        return torch.stack([self._decoder.sample(z, start, self.options.steps) for start in starts])

    def blank(self, feature_shape: Shape, image_shape: Shape, state: State) -> nn.Module:
        """The same networks, untrained."""
        mean = GlobalDecoder(feature_shape, image_shape)  # type: ignore[arg-type]
        return FlowDecoder(mean, self._network(feature_shape, image_shape))

    def state(self) -> State:
        """The decoder's and the flow's weights, and the seed of the samples."""
        return {**super().state(), "seed": torch.tensor(self._seed)}

    def load(self, state: State) -> None:
        """Mean and flow with these weights."""
        super().load(state)
        self._seed = int(state["seed"])


def mark(released: Tensor) -> Tensor:
    """A number for each release alone, [B]: the sum of its bits as integers, which does not depend on the order."""
    return released.float().contiguous().view(torch.int32).flatten(1).sum(1) % STARTS


class FlowMaterial(Material):
    """Training data of the flow: releases and images, with times and noise from a separate stream."""

    def __init__(self, oracle: Oracle, options: DecoderOptions, seed: int) -> None:
        super().__init__(oracle, options, seed)
        self._draws = make_generator(self.device, seed, "flow draws")
        self.held_draws = self.drawn(self.held_x)

    def drawn(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Times, which are 0 for a part of the images, and noise, which is zero where the time is 0."""
        time = torch.rand(len(x), generator=self._draws, device=x.device)
        time = ((time - _MEAN_SHARE) / (1 - _MEAN_SHARE)).clamp_min(0)
        noise = torch.randn(x.shape, generator=self._draws, device=x.device)
        return time, noise * (time > 0).view(-1, 1, 1, 1)


class FlowTraining(DecoderTraining):
    """A flow in training; copies continue with the same streams."""

    material: FlowMaterial

    @property
    def flow(self) -> FlowDecoder:
        """The flow to use."""
        assert isinstance(self.final, FlowDecoder)
        return self.final

    def step(self, rate: float) -> None:
        """One step at the given learning rate."""
        self.decoder.train()
        set_rate(self.optimizer, rate)
        released, x = self.material.batch()
        self.recorded(released, x, *self.material.drawn(x))

    @property
    def function(self) -> Function:
        """The loss of the flow."""
        assert isinstance(self.decoder, FlowDecoder)
        return self.decoder.loss

    def _loss(self, decode: Function, released: Tensor, target: Tensor, *drawn: Tensor) -> Tensor:
        with self.engine.autocast():
            loss: Tensor = decode(released, target, *drawn).mean()
        return loss

    @torch.no_grad()
    def validate(self) -> tuple[float, float]:
        """MSE of the flow's mean, and the training loss of the flow, on the attacker's validation images."""
        flow, material = self.flow.eval(), self.material
        whole = (material.held_z, material.held_x, *material.held_draws)
        parts = zip(*(tensor.split(500) for tensor in whole), strict=True)
        scores = torch.cat([torch.stack([mse(flow(part[0]), part[1]), flow.loss(*part)]) for part in parts], 1).mean(1)
        return float(scores[0]), float(scores[1])

    @torch.no_grad()
    def gains_by_refining(self) -> bool:
        """Whether the flow's mean is closer to the attacker's validation images than the decoder's."""
        error, _ = self.validate()
        return error < held_error(self.flow.mean, self.material)


@torch.no_grad()
def held_error(decoder: nn.Module, material: Material) -> float:
    """MSE on the attacker's validation images."""
    parts = zip(material.held_z.split(500), material.held_x.split(500), strict=True)
    return float(torch.cat([mse(decoder(z), x) for z, x in parts]).mean())
