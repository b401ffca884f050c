"""White-box inversion: the image that explains a release best, by gradient descent through the encoder.

x̂ = argmin over x in [0, 1] of ½ Σ_d (seen_d(x) − released_d)² / s_d² + λ TV(x) + ½ π ‖x − start‖² / v

seen(x) is the output of the channel before its last additive noise. s_d² is the sum of two terms: the mean squared
residual of the attacker's own releases, which is σ²/k for the mean of k releases through additive noise, and the square
of a tenth of the feature's own deviation, so that the squared error has a finite weight without noise. v is the start's
error on the attacker's images: the pull is a prior, without which the image follows the noise. λ, π and the number of
steps are chosen by the MSE on images of the attacker from which the start has not learned; each image keeps the restart
with the lowest objective.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from attncem.base.progress import Progress
from attncem.base.seeding import derive_seed, make_generator
from attncem.base.texts import written
from attncem.base.types import TrainingError
from attncem.config.options.attacks import OptimisationOptions
from attncem.data.batches import Images
from attncem.judging.attacks.base import Attack, OwnImages, Standardiser, divide
from attncem.judging.attacks.convergence import doubled
from attncem.judging.attacks.decoder import small_decoder
from attncem.judging.attacks.floors import MeanImageFloor
from attncem.judging.attacks.forecast import Seconds, timed
from attncem.judging.attacks.ridge import RidgeAttack
from attncem.judging.attacks.seeing import mean_of
from attncem.judging.oracle import Oracle
from attncem.models.channels import Channel, GaussianChannel, LaplaceChannel, LocalDPChannel, RandomChannel
from attncem.records.audit import BudgetPoint, Verdict
from attncem.records.findings import Finding, finding
from attncem.records.metrics import mse
from attncem.training.engine import seeded

_BATCH, _PIXELS = 250, 4_000_000
"""Images in one descent: `_BATCH` on a CPU; on a GPU as many as have `_PIXELS` values."""
_HELD = 0.2
"""Largest share of the attacker's images that is held out."""
BLUR = 0.1
"""Share of a feature's deviation that counts as noise even without noise."""
_ROUNDING = 1 / (12 * 255**2)
"""MSE of rounding to 8 bits: a lower error is no further gain."""
_CORNER = 1e-3
"""Difference of pixels at which the total variation changes from squared to absolute."""
_DISTURBANCE = 0.2
"""Standard deviation of the noise that further restarts add to the start."""
_KEPT = 4
"""One in `_KEPT` pairs of weights is tried again with more steps."""
_WORTH = 1e-3
"""Share of the error that more steps must remove to be used for every image."""
_MOST_COPIES = 16
"""Largest number of releases of an image that one draw averages."""
_TELL_EVERY = 20
Told = Callable[[int], None]


@dataclass(frozen=True)
class Weights:
    """The weights of the total variation and of the pull to the start."""

    smoothness: float
    pull: float


class OptimisationAttack(Attack):
    """Descends from the attacker's own reconstruction; `chosen` and `steps` are chosen on the attacker's images."""

    options_type = OptimisationOptions
    options: OptimisationOptions
    needs = frozenset({"images", "queries", "gradient"})
    must_beat = ("ridge",)
    chosen: Weights
    steps: int

    def fit(self, oracle: Oracle, *, seed: int) -> None:
        """Learn the start, measure the noise, and choose weights and steps on the attacker's images."""
        own = OwnImages(oracle)
        self._batch = _batch(own.x)
        fraction = min(_HELD, self.options.tuning_images / len(own.x))
        known, held = divide(len(own.x), fraction, derive_seed(seed, "optimisation split"), own.x.device)
        released = own.release_all(make_generator(own.x.device, seed, "optimisation"))
        self._start = Start(self.options, oracle.only(known), seed, self.progress)
        x, seen, centre = own.x[held], released[held], self._start.centre(released[held])
        variance = float(mse(centre, x).mean().clamp_min(_ROUNDING))
        view = View(oracle, self.options.draws, seed)
        self._objective = Objective(view, view.uncertainty(own.x[known], released[known]), variance)
        self._choose(x, seen, centre)

    def forecast(self, trial: Oracle, own: int, images: int) -> Seconds | None:
        """From the time of the start and of one step on a few images: at least two numbers of steps, at most all."""
        start = _start_attack(self.options, self.progress).forecast(trial, own, images)
        steps = doubled(self.options.steps, self.options.max_steps)
        held = max(1, round(own * min(_HELD, self.options.tuning_images / own)))
        pairs = len(self.options.smoothness) * len(self.options.pulls)
        tried = [held * (_narrowed(pairs) if number else pairs) * count for number, count in enumerate(steps)]
        answer = images * self.options.restarts
        least, most = sum(tried[:2]) + answer * steps[0], sum(tried) + answer * steps[-1]
        return None if start is None else start + self._step(trial).times(least, most)

    def _step(self, trial: Oracle) -> Seconds:
        """Time of one step for one image, measured on a batch."""
        own, _ = trial.auxiliary_in_parts()
        index = torch.arange(min(_batch(own), len(own)), device=trial.device)
        x, released, ones = own[index], trial.release_auxiliary(index), torch.ones(len(index))
        view = View(trial, self.options.draws, seed=0)
        objective = Objective(view, view.uncertainty(x, released), variance=1.0)
        task = Task(released, x, ones.to(x), ones.to(x))
        return timed(lambda: descend(objective, task, x, 1, self.options.lr, lambda _: None)).times(1 / len(x))

    def reconstruct(self, released: Tensor) -> Tensor:
        """For each image the restart with the lowest objective."""
        return torch.cat([self._recovered(part) for part in released.split(self._batch)])

    def _recovered(self, released: Tensor) -> Tensor:
        centre, ones = self._start.centre(released), torch.ones(len(released), device=released.device)
        task = Task(released, centre, self.chosen.smoothness * ones, self.chosen.pull * ones)
        best, least = centre, torch.full_like(ones, torch.inf)
        for number, start in enumerate(self._start.points(centre)):
            told = self._teller("optimisation", number, self.options.restarts, self.steps)
            images = descend(self._objective, task, start, self.steps, self.options.lr, told)
            value = self._objective.judged(task, images)
            better = value < least
            best, least = torch.where(better[:, None, None, None], images, best), torch.where(better, value, least)
        return best

    # choices made on held-out images

    def _choose(self, x: Tensor, released: Tensor, centre: Tensor) -> None:
        """Choose weights for doubled numbers of steps, until a doubling gains little; the best are kept.

        Larger numbers of steps are tried with the better weights only, and kept if they lower the error enough.
        """
        pairs = [Weights(*pair) for pair in itertools.product(self.options.smoothness, self.options.pulls)]
        curve, least, gain, reliable = list[BudgetPoint](), math.inf, None, False
        for steps in doubled(self.options.steps, self.options.max_steps):
            errors = self._errors(pairs, x, released, centre, steps)
            error = min(errors.values())
            gain = _gain(curve[-1].validation_error, error) if curve else None
            if error < (1 - _WORTH) * least:
                self.chosen, self.steps, least = min(pairs, key=errors.__getitem__), steps, error
            curve.append(BudgetPoint(steps, error))
            reliable = gain is not None and gain < self.options.tolerance
            if reliable:
                break
            pairs = sorted(pairs, key=errors.__getitem__)[: _narrowed(len(errors))] if len(curve) == 1 else pairs
        chosen = {"smoothness": self.chosen.smoothness, "pull": self.chosen.pull, "steps": self.steps}
        self.verdict = Verdict(reliable, gain, curve, chosen=chosen)
        self.findings = [] if reliable else [self._doubt(gain)]

    def _errors(
        self, pairs: list[Weights], x: Tensor, released: Tensor, centre: Tensor, steps: int
    ) -> dict[Weights, float]:
        """MSE on these images by pair of weights; all pairs share batches."""
        row = torch.arange(len(x), device=x.device).repeat(len(pairs))
        smoothness, pull = torch.tensor([(pair.smoothness, pair.pull) for pair in pairs], device=x.device).T
        each = smoothness.repeat_interleave(len(x)), pull.repeat_interleave(len(x))
        tasks = Task(released[row], centre[row], *each).split(self._batch)
        images = []
        for number, task in enumerate(tasks):
            told = self._teller(written("stage.part.weights"), number, len(tasks), steps)
            start = next(self._start.points(task.centre))
            images.append(descend(self._objective, task, start, steps, self.options.lr, told))
        errors = mse(torch.cat(images), x[row]).view(len(pairs), len(x)).mean(1).nan_to_num(nan=torch.inf)
        if not math.isfinite(float(errors.min())):
            raise TrainingError(f"optimisation diverged within {steps} steps: lower its lr={self.options.lr:g}")
        return dict(zip(pairs, errors.tolist(), strict=True))

    def _doubt(self, gain: float | None) -> Finding:
        values: dict[str, Any] = {"steps": self.steps, **vars(self.chosen)}
        if gain is None:
            return finding("steps_never_doubled", **values)
        return finding("steps_not_enough", gain=100 * gain, **values)

    def _teller(self, stage: str, part: int, parts: int, steps: int) -> Told:
        """A progress callback of one of several descents; it also reports the weights once they are chosen."""
        numbers = vars(self.chosen) if stage == "optimisation" else {}

        def told(step: int) -> None:
            if step % _TELL_EVERY == 0 or step == steps:
                self.progress(stage, part * steps + step, parts * steps, numbers)

        return told


def _batch(x: Images) -> int:
    """Number of images in one descent."""
    return _BATCH if x.device.type == "cpu" else max(1, min(1000, _PIXELS // x[0].numel()))


def _narrowed(pairs: int) -> int:
    """Number of weight pairs that are tried with more steps."""
    return max(1, pairs // _KEPT)


def _gain(before: float, after: float) -> float:
    """Relative decrease of the error by a doubling."""
    return 1 - max(after, _ROUNDING) / max(before, _ROUNDING)


# the objective and the descent


@dataclass(frozen=True)
class Task:
    """Releases to explain, the starts that images are pulled to, and the weights of each image, [B]."""

    released: Tensor
    centre: Tensor
    smoothness: Tensor
    pull: Tensor

    def split(self, size: int) -> list[Task]:
        """Parts of at most `size` images."""
        return [Task(*parts) for parts in zip(*(tensor.split(size) for tensor in vars(self).values()), strict=True)]


class Objective:
    """The negative log posterior of each image, up to a constant."""

    def __init__(self, view: View, uncertainty: Tensor, variance: float) -> None:
        self.view, self.uncertainty, self.variance = view, uncertainty, variance

    def __call__(self, task: Task, images: Tensor, noise: torch.Generator) -> Tensor:
        """The objective of each image, [B]; gradients flow to the images."""
        off = [self.view.white(seen - task.released.float()) for seen in self.view(images, noise)]
        misfit = torch.stack([(each.square() / self.uncertainty).flatten(1).sum(1) for each in off]).mean(0)
        pull = (images - task.centre).square().flatten(1).sum(1) / self.variance
        return misfit / 2 + task.smoothness * total_variation(images) + task.pull * pull / 2

    @torch.no_grad()
    def judged(self, task: Task, images: Tensor) -> Tensor:
        """The objective with draws that no step has used and that all restarts share."""
        return self(task, images, self.view.generator("judge"))


def descend(objective: Objective, task: Task, start: Tensor, steps: int, lr: float, told: Told) -> Tensor:
    """Adam on the pixels, clamped to [0, 1] after every step, with a learning rate that falls to zero."""
    images, noise = start.clone().requires_grad_(), objective.view.generator("steps")
    adam = torch.optim.Adam([images])
    for step in range(steps):
        adam.param_groups[0]["lr"] = lr * (1 - step / steps)
        with torch.enable_grad():
            (images.grad,) = torch.autograd.grad(objective(task, images, noise).sum(), images)
        adam.step()
        images.data.clamp_(0, 1)
        told(step + 1)
    return images.detach()


def total_variation(images: Tensor) -> Tensor:
    """Sum of the absolute differences of neighbouring pixels, smoothed at zero, [B]."""
    differences = (images.diff(dim=-2), images.diff(dim=-1))
    return torch.stack([(d.square() + _CORNER**2).sqrt().flatten(1).sum(1) for d in differences]).sum(0)


# the adversary's model of a release


class View:
    """Features through the channel, if the adversary knows it, without the additive noise at its end.

    The remaining draws (dropout, noise before a quantisation) are repeated for every step and averaged: each image of a
    batch gets the same numbers, so that an image does not depend on the others. Gradients pass as in the channel:
    straight through `quantise` inside its range, through `top_k` where a value is kept. A foreign channel is applied
    unchanged, with its own draws.
    """

    def __init__(self, oracle: Oracle, draws: int, seed: int) -> None:
        self._encoder, self._device, self._seed = oracle.encoder(), oracle.device, seed
        self._channel = oracle.channel() if oracle.threat.knows_channel else nn.Identity()
        draws_on = isinstance(self._channel, Channel) and quieten(self._channel)
        repeats = bool(getattr(self._channel, "reads_input", False)) and not oracle.threat.jitter
        self._draws = draws if draws_on else 1
        self._copies = min(oracle.threat.releases_per_input, _MOST_COPIES) if draws_on and not repeats else 1

    def __call__(self, images: Tensor, noise: torch.Generator) -> list[Tensor]:
        """The expected release, in one or several draws."""
        z = self._encoder(images)
        return [
            mean_of(self._through(z, images, noise) for _ in range(self._copies)).float() for _ in range(self._draws)
        ]

    def _through(self, z: Tensor, images: Tensor, noise: torch.Generator) -> Tensor:
        if isinstance(self._channel, Channel):
            return cast(Tensor, self._channel(z, x=images, generator=noise))
        with seeded(self._device, self._seed, "optimisation channel"):
            return cast(Tensor, self._channel(z))

    def generator(self, use: str) -> torch.Generator:
        """A generator for one use, restarted at the beginning."""
        return make_generator(self._device, self._seed, "optimisation", use)

    def white(self, z: Tensor) -> Tensor:
        """Releases, or differences of them, in coordinates where the noise at the channel's end is independent."""
        if not isinstance(self._channel, Channel):
            return z
        *_, last = self._channel.single_stages()
        return last.whitened(z)

    @torch.no_grad()
    def uncertainty(self, x: Tensor, released: Tensor) -> Tensor:
        """s_d² from images and releases of the attacker."""
        noise, total = self.generator("noise"), torch.zeros_like(released[0], dtype=torch.float32)
        for part, seen in zip(x.split(_BATCH), released.float().split(_BATCH), strict=True):
            total += self.white(self(part, noise)[0] - seen).square().sum(0)
        blur = (BLUR * Standardiser.of(self.white(released)).std).square()
        return total / len(x) + blur


def quieten(channel: Channel) -> bool:
    """Remove the additive noise at the channel's end, and share each other draw across a batch.

    Returns whether the channel still draws.
    """
    stages = list(channel.single_stages())
    while stages and isinstance(stages[-1], GaussianChannel | LaplaceChannel):
        last = stages.pop()
        last.noise_std = 0.0
        if isinstance(last, LocalDPChannel):  # it clips its input
            break
    drawing = [stage for stage in stages if isinstance(stage, RandomChannel)]
    for stage in drawing:
        stage.draw = _shared(stage.draw)  # type: ignore[method-assign]
    return bool(drawing)


def _shared(draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The same draw with the numbers of one sample for all samples."""
    return lambda law, z, x, generator: draw(law, z[:1], x, generator).expand_as(z)


# the start of the descent


class Start:
    """The attacker's own reconstruction, and the points where the descents start."""

    def __init__(self, options: OptimisationOptions, oracle: Oracle, seed: int, progress: Progress) -> None:
        self._attack = _start_attack(options, progress)
        self._attack.fit(oracle, seed=derive_seed(seed, "optimisation start"))
        shape, noise = (options.restarts, *oracle.image_shape), make_generator(oracle.device, seed, "restarts")
        self._random = options.start == "random"
        self._noise = (torch.rand if self._random else torch.randn)(shape, generator=noise, device=oracle.device)

    @torch.no_grad()
    def centre(self, released: Tensor) -> Tensor:
        """The reconstruction that images are pulled to."""
        return self._attack.reconstruct(released).float()

    def points(self, centre: Tensor) -> Iterator[Tensor]:
        """The starts of all images, one restart after the other, with the same disturbance for every image."""
        for number, noise in enumerate(self._noise):
            disturbed = noise.expand_as(centre) if self._random else centre + _DISTURBANCE * noise
            yield centre if number == 0 and not self._random else disturbed.clamp(0, 1)


def _start_attack(options: OptimisationOptions, progress: Progress) -> Attack:
    if options.start == "ridge":
        return RidgeAttack(progress=progress)
    if options.start == "decoder":
        return small_decoder(options.decoder_epochs, progress)
    return MeanImageFloor(progress=progress)
