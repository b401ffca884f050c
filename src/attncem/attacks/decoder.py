"""Learned inversion: a decoder trained on fresh releases of the attacker's images until it converges."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attncem.attacks.base import FitReport, FittedAttack, OwnImages, Standardiser, divide
from attncem.capture import Step
from attncem.config.attacks import DecoderOptions
from attncem.engine import Average, Engine, Trainable, adamw, seeded, set_rate
from attncem.metrics import mse, ssim
from attncem.models.decoders import DECODERS
from attncem.models.split import count_parameters
from attncem.seeding import derive_seed, make_generator
from attncem.types import BudgetPoint, ReleaseOracle, TrainingError

Tell = Callable[[float, float], None]
"""tell(epochs so far, last validation error)."""
_WARMUP_STEPS = 50
_SSIM_SHARE = 0.1


class DecoderAttack(FittedAttack):
    """A decoder of one of three sizes.

    A trunk trains at a constant rate. For a budget of E epochs it is copied at (1 - anneal)·E and the copy's
    rate falls to zero over the rest. Budgets double until a doubling gains less than `tolerance` of its loss on
    the attacker's own validation images: then the attack has converged. The best copy is kept.
    """

    options_type = DecoderOptions
    kind = "attack"
    options: DecoderOptions

    def fit(self, oracle: ReleaseOracle, *, seed: int) -> None:
        """Train with doubling budgets and keep the best decoder."""
        trunk = _Trunk(oracle, self.options, seed)
        self._standardise = trunk.standardise
        curve: list[BudgetPoint] = []
        losses: list[float] = []
        budget, gain = self.options.epochs, None
        while True:
            decoder, error, loss = trunk.annealed_at(budget, self._progress)
            if not math.isfinite(loss):
                break
            if not losses or loss < min(losses):
                self._decoder = decoder
            if losses:
                gain = 1 - loss / losses[-1]
            curve.append(BudgetPoint(budget, error))
            losses.append(loss)
            if (gain is not None and gain < self.options.tolerance) or 2 * budget > self.options.max_epochs:
                break
            budget *= 2
        self.fit_report = self._judge(gain, curve, budget)

    def _judge(self, gain: float | None, curve: list[BudgetPoint], tried: float) -> FitReport:
        if not curve:
            raise TrainingError(
                f"decoder {self.options.size} diverged within {tried:g} epochs: lower its lr={self.options.lr:g}"
            )
        reliable = gain is not None and gain < self.options.tolerance
        said = "no doubling was tried" if gain is None else f"the last doubling of the budget gained {100 * gain:.1f} %"
        said = f"{tried:g} epochs diverged" if tried > curve[-1].epochs else said
        warnings = [] if reliable else [f"not converged after {curve[-1].epochs:g} epochs: {said}"]
        return FitReport(reliable, gain, curve, count_parameters(self._decoder), warnings)

    def _progress(self, epochs: float, error: float) -> None:
        numbers = {"mse": error} if math.isfinite(error) else {}
        self.report(f"decoder {self.options.size}", epochs, self.options.max_epochs, numbers)

    @torch.no_grad()
    def reconstruct(self, released: Tensor) -> Tensor:
        """Decoded images, in evaluation mode."""
        self._decoder.eval()
        images: Tensor = self._decoder(self._standardise(released))
        return images


class _Run:
    """A decoder in training: on a GPU its steps are captured."""

    def __init__(self, decoder: nn.Module, engine: Engine, options: DecoderOptions, ema_decay: float = 0) -> None:
        self.decoder = decoder
        self.engine = engine
        self.options = options
        self.optimizer = adamw(decoder.parameters(), options.lr, options.weight_decay, engine.device)
        self.average = Average(decoder, ema_decay) if ema_decay else None
        modules = {"decoder": decoder, **({"average": self.average.module} if self.average else {})}
        self.step = Step(
            self._descend,
            state=Trainable(modules, {"decoder": self.optimizer}).tensors,
            watched=list(decoder.parameters()),
            record=engine.device.type == "cuda",
        )

    @property
    def final(self) -> nn.Module:
        """The decoder to use: the average where there is one."""
        return self.average.module if self.average else self.decoder

    def copied(self, ema_decay: float) -> _Run:
        """A copy that goes on by itself."""
        other = _Run(copy.deepcopy(self.decoder), self.engine, self.options, ema_decay)
        other.optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))
        return other

    def take(self, released: Tensor, target: Tensor, rate: float) -> None:
        """One step at the given learning rate."""
        self.decoder.train()
        set_rate(self.optimizer, rate)
        self.step(released, target)

    def _descend(self, released: Tensor, target: Tensor) -> None:
        images = self.decoder(released)
        loss = F.mse_loss(images, target)
        if self.options.loss == "mse_ssim":
            loss = loss + _SSIM_SHARE * (1 - ssim(images, target).mean())
        self.engine.descend(loss, [self.optimizer])
        if self.average is not None:
            self.average.update(self.decoder)


class _Trunk:
    """The decoder's training run, its data, and how far it has come."""

    def __init__(self, oracle: ReleaseOracle, options: DecoderOptions, seed: int) -> None:
        self.options = options
        self.own = OwnImages(oracle)
        self.x = self.own.x
        device = self.x.device
        self.engine = Engine(device)
        self.noise = make_generator(device, seed, "decoder noise")
        self.order = make_generator(device, seed, "decoder order")
        self.train, held = divide(len(self.x), options.validation_fraction, derive_seed(seed, "decoder split"), device)
        released = self.own.release_all(self.noise)
        self.standardise = Standardiser(released[self.train])
        self.held_x, self.held_z = self.x[held], self.standardise(released[held])
        with seeded(device, seed, "decoder init"):
            build = DECODERS[options.size]
            decoder = self.engine.place(build(tuple(released.shape[1:]), tuple(self.x.shape[1:])))  # type: ignore[arg-type]
        self.run = _Run(decoder, self.engine, options)
        self.steps_per_epoch = max(1, len(self.train) // options.batch_size)
        self.batches = self._endless_batches()
        self.step = 0
        self.error = math.nan

    def annealed_at(self, budget: float, tell: Tell) -> tuple[nn.Module, float, float]:
        """A copy of the trunk, annealed so that it has had `budget` epochs; its validation MSE, and its own loss."""
        total = max(2, round(budget * self.steps_per_epoch))
        until = round((1 - self.options.anneal) * total)
        while self.step < until:
            self.run.take(*self._batch(), self.options.lr * min(1.0, (self.step + 1) / _WARMUP_STEPS))
            self.step += 1
            self._tell(tell, self.step)
        annealing = self.run.copied(self.options.ema_decay)
        for step in range(until, total):
            annealing.take(*self._batch(), self.options.lr * (total - step) / (total - until))
            self._tell(tell, step + 1)
        self.error, loss = self._validate(annealing.final)
        return annealing.final, self.error, loss

    def _tell(self, tell: Tell, step: int) -> None:
        if step % 20 == 0:
            tell(step / self.steps_per_epoch, self.error)

    def _endless_batches(self) -> Iterator[Tensor]:
        """Batches of indices, every image once an epoch, in an order of its own each time."""
        size = min(self.options.batch_size, len(self.train))
        while True:
            shuffled = self.train[torch.randperm(len(self.train), generator=self.order, device=self.train.device)]
            yield from shuffled[: len(shuffled) // size * size].view(-1, size)

    def _batch(self) -> tuple[Tensor, Tensor]:
        """Fresh releases of the next images, and the images."""
        index = next(self.batches)
        return self.standardise(self.own.release(index, self.noise)), self.x[index]

    @torch.no_grad()
    def _validate(self, decoder: nn.Module) -> tuple[float, float]:
        """MSE, and the loss the decoder was trained on, of the attacker's validation images."""
        decoder.eval()
        parts = zip(self.held_z.split(500), self.held_x.split(500), strict=True)
        scores = torch.cat([self._scores(decoder(z), x) for z, x in parts], 1).mean(1)
        return float(scores[0]), float(scores[1])

    def _scores(self, images: Tensor, x: Tensor) -> Tensor:
        """MSE and loss of each image, [2, B]."""
        errors = mse(images, x)
        perceptual = self.options.loss == "mse_ssim"
        return torch.stack([errors, errors + _SSIM_SHARE * (1 - ssim(images, x)) if perceptual else errors])
