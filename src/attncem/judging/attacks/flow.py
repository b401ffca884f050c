"""A flow decoder: not one image for a release but samples of all that may have been, and their mean."""

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
"""Part of a batch that learns the mean alone, at time 0."""
_SMALLEST = 1e-4
"""Least deviation around the mean, in pixel values: without any error there is nothing to scale by."""


_STARTS = 512
"""Noises that samples start from; which of them is decided by the release."""


class FlowAttack(DecodingAttack):
    """A decoder that sees the whole feature gives the mean; a conditional flow around it gives samples of p(x | z).

    `reconstruct` is the mean of the flow in one step (`FlowDecoder`), or the decoder's where own held-out images say
    that this is better. By the law of total variance the spread of exact samples is, on average, the error of the
    exact mean: the two are set beside each other in the row. Samples start from noises that the release
    chooses by its bits, so that each image depends on its own release alone, and different images draw differently.
    """

    options_type = FlowOptions
    options: FlowOptions
    must_beat = ("ridge",)
    _decoder: FlowDecoder

    def fit(self, oracle: Oracle, *, seed: int) -> None:
        """Learn the mean, then the flow around it, each with doubling budgets and on the same own images."""
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
        """The untrained flow, its scale the deviation of own held-out images from the mean."""
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
        """Images that may have been, [samples, B, …]."""
        z, draws = self._standardise(released), make_generator(released.device, self._seed, "flow samples")
        noise = torch.randn(_STARTS, *self._image_shape, generator=draws, device=z.device)
        first = _mark(released) * self.options.samples
        starts = (noise[(first + number) % _STARTS] for number in range(self.options.samples))
        return torch.stack([self._decoder.sample(z, start, self.options.steps) for start in starts])

    def blank(self, feature_shape: Shape, image_shape: Shape, state: State) -> nn.Module:
        """The same networks untrained."""
        mean = GlobalDecoder(feature_shape, image_shape)  # type: ignore[arg-type]
        return FlowDecoder(mean, self._network(feature_shape, image_shape))

    def state(self) -> State:
        """The decoder's and the flow's weights, and the seed of the samples."""
        return {**super().state(), "seed": torch.tensor(self._seed)}

    def load(self, state: State) -> None:
        """Mean and flow with these weights."""
        super().load(state)
        self._seed = int(state["seed"])


def _mark(released: Tensor) -> Tensor:
    """A number of each release alone, [B]: the sum of its bits taken as integers, which no order of adding changes."""
    return released.float().contiguous().view(torch.int32).flatten(1).sum(1) % _STARTS


class FlowMaterial(Material):
    """What the flow learns from: releases and images, and times and noise from a stream of their own."""

    def __init__(self, oracle: Oracle, options: DecoderOptions, seed: int) -> None:
        super().__init__(oracle, options, seed)
        self._draws = make_generator(self.device, seed, "flow draws")
        self.held_draws = self.drawn(self.held_x)

    def drawn(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Times, 0 for a part of the images, and noise, none where the time is 0."""
        time = torch.rand(len(x), generator=self._draws, device=x.device)
        time = ((time - _MEAN_SHARE) / (1 - _MEAN_SHARE)).clamp_min(0)
        noise = torch.randn(x.shape, generator=self._draws, device=x.device)
        return time, noise * (time > 0).view(-1, 1, 1, 1)


class FlowTraining(DecoderTraining):
    """A flow in training; copies go on with the same streams."""

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
        """MSE of the flow's mean, and what the flow was trained on, of the attacker's validation images."""
        flow, material = self.flow.eval(), self.material
        whole = (material.held_z, material.held_x, *material.held_draws)
        parts = zip(*(tensor.split(500) for tensor in whole), strict=True)
        scores = torch.cat([torch.stack([mse(flow(part[0]), part[1]), flow.loss(*part)]) for part in parts], 1).mean(1)
        return float(scores[0]), float(scores[1])

    @torch.no_grad()
    def gains_by_refining(self) -> bool:
        """Whether the flow's own mean is nearer to the attacker's validation images than the decoder's."""
        error, _ = self.validate()
        return error < held_error(self.flow.mean, self.material)


@torch.no_grad()
def held_error(decoder: nn.Module, material: Material) -> float:
    """MSE of the attacker's validation images."""
    parts = zip(material.held_z.split(500), material.held_x.split(500), strict=True)
    return float(torch.cat([mse(decoder(z), x) for z, x in parts]).mean())
