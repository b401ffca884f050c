"""Learned inversion: a decoder trained on fresh releases of the attacker's images until it converges."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterator
from functools import partial
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from attncem.base.progress import Progress
from attncem.base.seeding import derive_seed, make_generator
from attncem.config.options.attacks import BudgetOptions, DecoderOptions
from attncem.config.options.base import Options
from attncem.judging.attacks.base import OwnImages, Standardiser, State, divide, held_out
from attncem.judging.attacks.convergence import doubled, steps_of, until_converged
from attncem.judging.attacks.decoding import DecodingAttack, Shape
from attncem.judging.attacks.forecast import Seconds, timed
from attncem.judging.oracle import Oracle
from attncem.models.decoders import DECODERS
from attncem.models.split import count_parameters
from attncem.records.metrics import mse, ssim
from attncem.training.capture import Function, Step, compile_function, forget_compiled, worth_compiling
from attncem.training.engine import Average, Engine, Trainable, adamw, seeded, set_rate

_SSIM_SHARE = 0.1
_AT_ONCE = 2**26
"""Limit in bytes for the batches that are released at once on a GPU."""
_MOST_AT_ONCE = 16


class ConvergingDecoder(DecodingAttack):
    """A decoder trained with doubling budgets (`until_converged`); subclasses choose the decoder and its training."""

    options: BudgetOptions
    must_beat = ("ridge",)

    @property
    @abstractmethod
    def stage(self) -> str:
        """Name of the training stage in progress reports."""

    @abstractmethod
    def training_options(self) -> DecoderOptions:
        """The options that the training reads."""

    @abstractmethod
    def begin(self, oracle: Oracle, options: DecoderOptions, seed: int) -> DecoderTraining:
        """The training at its start."""

    def fit(self, oracle: Oracle, *, seed: int) -> None:
        """Train with doubling budgets and keep the best decoder."""
        with seeded(oracle.device, seed, "decoder dropout"):
            trunk = self.begin(oracle, self.training_options(), seed)
            done = until_converged(
                trunk,
                type(trunk).copied,
                self.options,
                name=self.stage,
                num_parameters=count_parameters(trunk.decoder),
                progress=self.progress,
            )
        self.verdict, self.findings = done.verdict, done.findings
        self._standardise, self._decoder = trunk.material.standardise, done.best.final.eval()
        self._image_shape = oracle.image_shape

    def forecast(self, trial: Oracle, own: int, images: int) -> Seconds:
        """From the time of a step: at least two budgets, at most all of them, each with its validation."""
        options = self.training_options()
        held = held_out(own, options.validation_fraction)
        train, budgets = own - held, len(doubled(options.epochs, options.max_epochs))
        batch = _batch_size(options, train)
        learner = self.begin(trial, options.model_copy(update={"batch_size": batch, "least_steps": 1}), 0).copied()
        tried = _batch_size(learner.options, len(learner.material.train))
        step = timed(lambda: learner.step(options.lr)).times(batch / tried)
        answered = (images + held * min(2, budgets), images + held * budgets)
        answer = step.times(*(count / batch / 3 for count in answered))  # a step costs three passes through the network
        return step.times(*steps_of(options, max(1, train // batch))) + answer


class DecoderAttack(ConvergingDecoder):
    """A decoder of one of four sizes."""

    options_type = DecoderOptions
    options: DecoderOptions

    @property
    def stage(self) -> str:
        """The name with its size."""
        return f"decoder {self.options.size}"

    def training_options(self) -> DecoderOptions:
        """All of its options."""
        return self.options

    def begin(self, oracle: Oracle, options: DecoderOptions, seed: int) -> DecoderTraining:
        """A decoder of this size."""
        return DecoderTraining(Material(oracle, options, seed))

    def blank(self, feature_shape: Shape, image_shape: Shape, state: State) -> nn.Module:
        """A decoder of the same size."""
        return DECODERS[self.options.size](feature_shape, image_shape)  # type: ignore[arg-type]


def small_decoder(epochs: float, progress: Progress) -> DecoderAttack:
    """The small decoder of the suites, as a part of another attack: its first budget doubles once."""
    return DecoderAttack(progress=progress, epochs=epochs, max_epochs=2 * epochs, batch_size=256, least_steps=225)


def _batch_size(options: DecoderOptions, count: int) -> int:
    """Images per step: fewer than asked for if an epoch over `count` images had too few steps, but at least two."""
    return min(options.batch_size, max(min(2, count), count // options.least_steps))


def shared_options(options: Options, **changes: Any) -> DecoderOptions:
    """The options of another attack that the training of a decoder reads."""
    shared = options.model_dump(include=set(DecoderOptions.model_fields) - {"name"})
    return DecoderOptions(size="global", **changes, **shared)


class Material:
    """Training data of a decoder: fresh releases of the attacker's images, batch by batch, and a held-out part."""

    def __init__(self, oracle: Oracle, options: DecoderOptions, seed: int) -> None:
        self.options, self.seed = options, seed
        self.own = OwnImages(oracle)
        self.x = self.own.x
        self._mirrored = oracle.mirrored() if options.mirror and oracle.may_ask else None
        self.device = self.x.device
        self._noise = make_generator(self.device, seed, "decoder noise")
        self._order = make_generator(self.device, seed, "decoder order")
        self.train, held = self._divided()
        released = self.own.release_all(self._noise)
        self.standardise = self._standardiser(released[self.train])
        self.held_x, self.held_z = self.x[held], self.standardise(released[held])
        self._batches = self._endless_batches()
        self.at_once = self._batches_at_once()
        self._ready: list[tuple[Tensor, Tensor]] = []

    def _divided(self) -> tuple[Tensor, Tensor]:
        """Indices of the training images and of the held-out images."""
        split = derive_seed(self.seed, "decoder split")
        return divide(len(self.x), self.options.validation_fraction, split, self.device)

    def _standardiser(self, released: Tensor) -> Standardiser:
        """Standardiser of the decoder's input, from the releases of the training images."""
        return Standardiser.of(released)

    def batch(self) -> tuple[Tensor, Tensor]:
        """Fresh releases of the next images, and the images."""
        if not self._ready:
            drawn = self._drawn(torch.cat([next(self._batches) for _ in range(self.at_once)]))
            self._ready = list(zip(*(part.chunk(self.at_once) for part in drawn), strict=True))
        return self._ready.pop(0)

    def _batches_at_once(self) -> int:
        """Number of batches that are released together: on a GPU, starting the small operations takes the time."""
        if self.device.type != "cuda":
            return 1
        numbers = self.held_z.shape[1:].numel() + self.held_x.shape[1:].numel()
        each = 4 * numbers * _batch_size(self.options, len(self.train))
        return max(1, min(_MOST_AT_ONCE, _AT_ONCE // each))

    def _drawn(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Fresh releases of the images at `index`, and the images; half of them mirrored."""
        released, x = self.own.release(index, self._noise), self.x[index]
        if self._mirrored is not None:
            coin = torch.rand(len(index), generator=self._order, device=self.device) < 0.5
            released = _where(coin, self._mirrored.release_auxiliary(index, generator=self._noise), released)
            x = _where(coin, x.flip(-1), x)
        return self.standardise(released), x

    def _endless_batches(self) -> Iterator[Tensor]:
        """Batches of indices: every image once an epoch, in a new order each epoch."""
        size = _batch_size(self.options, len(self.train))
        while True:
            shuffled = self.train[torch.randperm(len(self.train), generator=self._order, device=self.device)]
            yield from shuffled[: len(shuffled) // size * size].view(-1, size)


def _where(chosen: Tensor, one: Tensor, other: Tensor) -> Tensor:
    """Select per sample: `one` where chosen, else `other`."""
    return torch.where(chosen.view(-1, *[1] * (one.ndim - 1)), one, other)


class DecoderTraining:
    """A decoder in training; on a GPU its steps are captured. Copies continue with the same stream of batches."""

    def __init__(
        self,
        material: Material,
        decoder: nn.Module | None = None,
        *,
        engine: Engine | None = None,
        ema_decay: float = 0,
    ) -> None:
        self.material, self.options = material, material.options
        on_gpu = material.device.type == "cuda"  # reduced precision is no faster on a CPU
        precision = self.options.precision if on_gpu else "32-true"
        self.engine = engine or Engine(material.device, precision)
        self.decoder = decoder or self._new_decoder()
        self.optimizer = self._new_optimizer()
        self.average = Average(self.decoder, ema_decay) if ema_decay else None
        self.steps_per_epoch = len(material.train) // _batch_size(self.options, len(material.train))
        modules = {"decoder": self.decoder, **({"average": self.average.module} if self.average else {})}
        self.recorded = Step(
            partial(self._descend, self.function),
            faster=self._compiled(goes_on=engine is not None),
            state=Trainable(modules, {"decoder": self.optimizer}).tensors,
            watched=list(self.decoder.parameters()),
            record=self.engine.device.type == "cuda",
            in_32_bits=self.engine.lower_precision,
        )

    def _new_decoder(self) -> nn.Module:
        material = self.material
        with seeded(material.device, material.seed, "decoder init"):
            build = DECODERS[self.options.size]
            shapes = tuple(material.held_z.shape[1:]), tuple(material.x.shape[1:])
            return self.engine.place(build(*shapes))  # type: ignore[arg-type]

    @property
    def function(self) -> Function:
        """The function that a step calls, which may be compiled."""
        return self.decoder

    def _compiled(self, *, goes_on: bool) -> dict[str, Function]:
        """A step with a compiled decoder, if the training is long enough; copies reuse the compiled code."""
        steps = round(self.options.max_epochs * self.steps_per_epoch)
        if self.engine.device.type != "cuda" or not worth_compiling(steps):
            return {}
        if not goes_on:
            forget_compiled()
        return {"compiled": partial(self._descend, compile_function(self.function))}

    def _new_optimizer(self) -> Optimizer:
        return adamw(self.decoder.parameters(), self.options.lr, self.options.weight_decay, self.engine.device)

    @property
    def final(self) -> nn.Module:
        """The decoder to use: the weight average if there is one."""
        return self.average.module if self.average else self.decoder

    def copied(self) -> Self:
        """A copy that trains independently, with a weight average."""
        decoder = copy.deepcopy(self.decoder)
        other = type(self)(self.material, decoder, engine=self.engine, ema_decay=self.options.ema_decay)
        other.optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))
        return other

    def step(self, rate: float) -> None:
        """One step at the given learning rate."""
        self.decoder.train()
        set_rate(self.optimizer, rate)
        self.recorded(*self.material.batch())

    def _descend(self, decode: Function, *given: Tensor) -> None:
        self.engine.descend(self._loss(decode, *given), [self.optimizer])
        if self.average is not None:
            self.average.update(self.decoder)

    def _loss(self, decode: Function, released: Tensor, target: Tensor) -> Tensor:
        with self.engine.autocast():
            images = decode(released).float()
        loss = F.mse_loss(images, target)
        if self.options.loss == "mse_ssim":
            loss = loss + _SSIM_SHARE * (1 - ssim(images, target).mean())
        return loss

    @torch.no_grad()
    def validate(self) -> tuple[float, float]:
        """MSE and training loss on the attacker's validation images."""
        decoder, material = self.final.eval(), self.material
        parts = zip(material.held_z.split(500), material.held_x.split(500), strict=True)
        scores = torch.cat([self._scores(decoder(z), x) for z, x in parts], 1).mean(1)
        return float(scores[0]), float(scores[1])

    def _scores(self, images: Tensor, x: Tensor) -> Tensor:
        """MSE and loss of each image, [2, B]."""
        errors = mse(images, x)
        perceptual = self.options.loss == "mse_ssim"
        return torch.stack([errors, errors + _SSIM_SHARE * (1 - ssim(images, x)) if perceptual else errors])
