"""A prior of other images: a flow of the attacker's images alone, bent to each release through the client.

The flow learns p(x) from images; no release and no label takes part. How it is bent is in `bending`. By `guidance` the
answer is the mean of samples of p(x | release), moved to the mean image by a share chosen on held-out images, which
undoes the noise of few samples. By `latent` it is the flow's image that explains the release best.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from attncem.base.seeding import derive_seed, make_generator
from attncem.config.options.attacks import FlowPriorOptions
from attncem.judging.attacks.base import Attack, OwnImages, Standardiser, divide, held_out
from attncem.judging.attacks.bending import Bending, Client, Guidance, Search, Way
from attncem.judging.attacks.convergence import steps_of, until_converged
from attncem.judging.attacks.flow import mark
from attncem.judging.attacks.forecast import Seconds, timed
from attncem.judging.attacks.optimisation import View
from attncem.judging.oracle import Oracle
from attncem.models.flow import FlowPrior, PriorNetwork
from attncem.models.split import count_parameters
from attncem.records.findings import Finding
from attncem.records.metrics import mse
from attncem.training.engine import Average, Engine, adamw, seeded, set_rate

_HELD = 0.1
"""Share of the attacker's images that the flow does not learn from."""
_VALIDATED, _MEASURED = 1000, 1000
"""Largest numbers of images on which the flow is validated, and on which noise and the flow's errors are measured."""
_NUMBERS = 100_000_000
"""Largest number of values that all ensembles of the flow's errors hold."""
_SMALLEST = 1e-3
"""Smallest deviation of images, in pixel values."""
_WEIGHT_DECAY, _DECAY = 1e-4, 0.99
_ROWS = 200
"""Largest number of samples that are drawn together."""
_TRIED = 10
"""Number of releases in the trial of a forecast."""
_KEPT = 8
"""Number of batches whose samples are kept: the mean and the single samples are measured in two calls."""


class FlowPriorAttack(Attack):
    """Learns a flow of the attacker's images, then bends it to each release."""

    options_type = FlowPriorOptions
    options: FlowPriorOptions
    needs = frozenset({"images", "gradient", "channel"})
    must_beat = ("mean_image",)
    _chosen: Way
    _share = 1.0

    def fit(self, oracle: Oracle, *, seed: int) -> None:
        """Train the flow until it converges, then choose how to bend it on held-out images."""
        material = PriorMaterial(oracle, self.options, seed)
        with seeded(material.device, seed, "flow prior"):
            trunk = PriorTraining(material)
            parameters = count_parameters(trunk.prior)
            done = until_converged(
                trunk,
                PriorTraining.copied,
                self.options,
                name="flow prior",
                num_parameters=parameters,
                progress=self.progress,
            )
        self._prepare(oracle, material, done.best.final.eval().requires_grad_(False), seed)
        held = oracle.only(material.held[: self.options.tuning_images])
        self.findings = [*done.findings, *self._choose(held, seed)]
        chosen = {"pull": self._chosen.pull, "steps": float(self._chosen.steps), "share": self._share}
        self.verdict = replace(done.verdict, reliable=not self.findings, chosen=chosen)

    def _prepare(self, oracle: Oracle, material: PriorMaterial, prior: FlowPrior, seed: int) -> None:
        """Measure the noise of releases, and set up guidance or search."""
        own = OwnImages(oracle.only(material.train[: self._measured(oracle)]))
        x, released = own.x[:], own.release_all(make_generator(oracle.device, seed, "flow prior releases"))
        self._standardise, self._mean = Standardiser.of(released), prior.mean
        self._kept: list[tuple[Tensor, Tensor]] = []
        client = Client(View(oracle, 1, seed), x, released)
        latent = self.options.by == "latent"
        self._bend: Bending = (
            Search(prior, client, self.options, seed) if latent else Guidance(prior, client, self.options, seed, x)
        )

    def _measured(self, oracle: Oracle) -> int:
        """Number of images in an ensemble, which holds their pixels and features."""
        index = torch.zeros(1, dtype=torch.long, device=oracle.device)
        features = oracle.only(index).release_auxiliary(index).numel()
        return min(_MEASURED, max(20, _NUMBERS // (self.options.times * (features + math.prod(oracle.image_shape)))))

    def _choose(self, held: Oracle, seed: int) -> list[Finding]:
        """Choose weight and steps, and the share, by the MSE on held-out images."""
        own = OwnImages(held)
        x, released = own.x[:], own.release_all(make_generator(held.device, seed, "flow prior held"))
        least, errors = math.inf, dict[int, float]()
        ways = self._bend.ways()
        for number, way in enumerate(ways):
            images = self._one(self._drawn(released, way), released, way)
            share = self._fitting(images, x)
            error = float(mse(self._moved(images, share), x).mean())
            errors[way.steps] = min(error, errors.get(way.steps, math.inf))
            if error < least:
                least, self._chosen, self._share = error, way, share
            self.progress("flow prior", number + 1, len(ways), {"mse": least})
        return self._bend.doubts(errors)

    def _fitting(self, images: Tensor, x: Tensor) -> float:
        """The share of the way from the mean image that suits x best; 1 for a search."""
        if self.options.by == "latent":
            return 1.0
        off, wanted = images - self._mean, x - self._mean
        return min(1.0, max(0.0, float((off * wanted).sum() / off.square().sum().clamp_min(1e-12))))

    def _moved(self, images: Tensor, share: float) -> Tensor:
        return (self._mean + share * (images - self._mean)).clamp(0, 1)

    def reconstruct(self, released: Tensor) -> Tensor:
        """The mean of the samples, moved to the mean image; or the best answer of the searches."""
        images = self._one(self._samples(released), released, self._chosen)
        return self._moved(images, self._share)

    def samples(self, released: Tensor) -> Tensor:
        """The samples, or the answers of all searches, [samples, B, …]."""
        return self._samples(released).clamp(0, 1)

    def _samples(self, released: Tensor) -> Tensor:
        for seen, images in self._kept:
            if torch.equal(seen, released):
                return images
        images = self._drawn(released, self._chosen)
        self._kept = [*self._kept[-_KEPT + 1 :], (released.clone(), images)]
        return images

    def _drawn(self, released: Tensor, way: Way) -> Tensor:
        """Samples, [samples, B, …]; not limited to [0, 1]."""
        count, drawn = self.options.samples, list[Tensor]()
        for part in released.split(max(1, _ROWS // count)):
            target, first = self._bend.client.scaled(part), mark(self._standardise(part))
            images = self._bend.draw(target.repeat(count, 1), first.repeat(count), way)
            drawn.append(images.view(count, len(part), *images.shape[1:]))
        return torch.cat(drawn, 1)

    def _one(self, images: Tensor, released: Tensor, way: Way) -> Tensor:
        return self._bend.one(images, self._bend.client.scaled(released), way)

    def forecast(self, trial: Oracle, own: int, images: int) -> Seconds:
        """From the time of a training step, and of bending a flow to one release."""
        attack = FlowPriorAttack(self.options)
        material = PriorMaterial(trial, self.options, 0)
        learner = PriorTraining(material)
        train = own - held_out(own, _HELD)
        batch = min(self.options.batch_size, train)
        step = timed(lambda: learner.step(self.options.lr)).times(batch / material.batch_size)
        attack._prepare(trial, material, learner.prior.eval().requires_grad_(False), 0)
        some = torch.arange(min(_TRIED, trial.num_auxiliary), device=trial.device)
        released = OwnImages(trial).release(some, make_generator(trial.device, 0, "forecast"))
        ways = attack._bend.ways()
        tries = [timed(partial(attack._drawn, released, way)) for way in (ways[0], ways[-1])]
        each = Seconds(min(part.least for part in tries), max(part.most for part in tries)).times(1 / len(some))
        tuned = min(self.options.tuning_images, own - train)
        learn = step.times(*steps_of(self.options, max(1, train // batch)))
        return learn + attack._bend.preparation(min(_MEASURED, train)) + each.times(images + tuned * len(ways))


class PriorMaterial:
    """The attacker's images, batch by batch and half of them mirrored, and a held-out part with times and noise."""

    def __init__(self, oracle: Oracle, options: FlowPriorOptions, seed: int) -> None:
        self.options, self.seed, self.device = options, seed, oracle.device
        self.x, _ = oracle.auxiliary_in_parts()
        self.train, self.held = divide(len(self.x), _HELD, derive_seed(seed, "flow prior split"), self.device)
        self.batch_size = min(options.batch_size, len(self.train))
        self._draws = make_generator(self.device, seed, "flow prior draws")
        self.held_x = self.x[self.held[:_VALIDATED]]
        self.held_draws = self.drawn(self.held_x)
        self._batches = self._endless_batches()

    def drawn(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Times and noise."""
        time = torch.rand(len(x), generator=self._draws, device=self.device)
        return time, torch.randn(x.shape, generator=self._draws, device=self.device)

    def batch(self) -> Tensor:
        """The next images."""
        x = self.x[next(self._batches)]
        coin = torch.rand(len(x), generator=self._draws, device=self.device) < 0.5
        return torch.where(coin.view(-1, 1, 1, 1), x.flip(-1), x)

    def _endless_batches(self) -> Iterator[Tensor]:
        while True:
            order = self.train[torch.randperm(len(self.train), generator=self._draws, device=self.device)]
            yield from order[: len(order) // self.batch_size * self.batch_size].view(-1, self.batch_size)

    def moments(self) -> tuple[Tensor, float]:
        """Mean image and deviation around it of the training images."""
        total = sum(self.x[part].sum(0) for part in self.train.split(1000))
        assert isinstance(total, Tensor)
        mean = total / len(self.train)
        off = sum(float((self.x[part] - mean).square().sum()) for part in self.train.split(1000))
        return mean, max(math.sqrt(off / (len(self.train) * mean.numel())), _SMALLEST)


class PriorTraining:
    """The flow in training; copies continue with the same stream of batches, with averaged weights."""

    def __init__(self, material: PriorMaterial, prior: FlowPrior | None = None) -> None:
        self.material = material
        self.engine = Engine(material.device, "bf16-mixed" if material.device.type == "cuda" else "32-true")
        self.prior = prior or self._new()
        self.optimizer = adamw(self.prior.parameters(), material.options.lr, _WEIGHT_DECAY, material.device)
        self.average: Average | None = None
        self.steps_per_epoch = len(material.train) // material.batch_size

    def _new(self) -> FlowPrior:
        material, options = self.material, self.material.options
        with seeded(material.device, material.seed, "flow prior init"):
            network = PriorNetwork(material.x.shape[1], width=options.width, blocks=options.blocks)
        self.engine.place(network)
        return FlowPrior(network, *material.moments()).to(material.device)

    @property
    def final(self) -> FlowPrior:
        """The flow to use."""
        return self.prior if self.average is None else self.average.module  # type: ignore[return-value]

    def copied(self) -> PriorTraining:
        """A copy that trains independently."""
        other = PriorTraining(self.material, copy.deepcopy(self.prior))
        other.optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))
        other.average = Average(other.prior, _DECAY)
        return other

    def step(self, rate: float) -> None:
        """One step at the given learning rate."""
        self.prior.train()
        set_rate(self.optimizer, rate)
        x = self.material.batch()
        with self.engine.autocast():
            loss = self.prior.loss(x, *self.material.drawn(x)).mean()
        self.engine.descend(loss, [self.optimizer])
        if self.average is not None:
            self.average.update(self.prior)

    @torch.no_grad()
    def validate(self) -> tuple[float, float]:
        """MSE of the images that the flow expects at random times, and its training loss, on held-out images."""
        prior, material = self.final.eval(), self.material
        parts = zip(material.held_x.split(500), *(drawn.split(500) for drawn in material.held_draws), strict=True)
        losses, time = torch.cat([prior.loss(*part) for part in parts]), material.held_draws[0]
        errors = prior.scale.square() * (1 - time).square() / (time.square() + (1 - time).square()) * losses
        return float(errors.mean()), float(losses.mean())
