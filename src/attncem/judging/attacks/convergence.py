"""Training loops of learned attacks: budgets that double until a doubling gains little, and fixed budgets."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from attncem.base.progress import Progress
from attncem.base.texts import written
from attncem.base.types import TrainingError
from attncem.config.options.attacks import BudgetOptions
from attncem.records.audit import BudgetPoint, Verdict
from attncem.records.findings import Finding, finding

WARMUP_STEPS = 50
"""Steps of linear warm-up at the start of training."""
_TELL_EVERY = 20
Tell = Callable[[float], None]
"""tell(epochs so far)."""


class Stepping(Protocol):
    """A model in training, with its own data."""

    steps_per_epoch: int

    def step(self, rate: float) -> None:
        """One step at this learning rate."""
        ...


class Learner(Stepping, Protocol):
    """A model in training with validation images held out."""

    def validate(self) -> tuple[float, float]:
        """Error and loss on the attacker's validation images; the loss decides."""
        ...


L = TypeVar("L", bound=Learner)
N = TypeVar("N", int, float)


@dataclass(frozen=True)
class Converged(Generic[L]):
    """The best copy, the verdict with the curve over budgets, and the findings for the user."""

    best: L
    verdict: Verdict
    findings: list[Finding]


def for_epochs(learner: Stepping, epochs: float, rate: Callable[[int], float], *, tell: Tell) -> None:
    """Train for a fixed budget, as published attacks do; ``rate`` gives the learning rate of an epoch, from 0."""
    for done in range(max(1, round(epochs * learner.steps_per_epoch))):
        learner.step(rate(done // learner.steps_per_epoch))
        if (done + 1) % _TELL_EVERY == 0:
            tell((done + 1) / learner.steps_per_epoch)


def cosine(start: float, end: float, epoch: int, length: int) -> float:
    """Learning rate of an epoch: half a cosine from start to end over `length` epochs."""
    return end + (start - end) * (1 + math.cos(math.pi * min(epoch, length) / length)) / 2


def until_converged(
    trunk: L, copied: Callable[[L], L], budget: BudgetOptions, *, name: str, num_parameters: int, progress: Progress
) -> Converged[L]:
    """Train with doubling budgets; the copy with the lowest loss is the result.

    The trunk trains at a constant rate. For a budget of E epochs it is copied at (1 − anneal)·E, and the copy's rate
    falls to zero over the rest. Budgets double until a doubling gains less than `tolerance` of the loss; the training
    has then converged. A budget that diverges ends the doubling; if the first one diverges, a TrainingError is raised.
    The trunk and every copy report to `progress` as separate stages, so that no stage goes back.
    """
    course = _Course(trunk, copied, budget, partial(_tell, progress, name))
    size, best, losses, curve = budget.epochs, trunk, list[float](), list[BudgetPoint]()
    while True:
        learner, error, loss = course.annealed_at(size)
        if not math.isfinite(loss):
            break
        best = learner if not losses or loss < min(losses) else best
        curve.append(BudgetPoint(size, error))
        losses.append(loss)
        if _gained_little(losses, budget.tolerance) or 2 * size > budget.max_epochs:
            break
        size *= 2
    if not curve:
        raise TrainingError(f"{name} diverged within {size:g} epochs: lower its lr={budget.lr:g}")
    reliable = _gained_little(losses, budget.tolerance) and size == curve[-1].epochs
    verdict = Verdict(reliable, _gain(losses), curve, num_parameters)
    return Converged(best, verdict, [] if reliable else [_doubt(verdict, size)])


def doubled(first: N, most: float) -> list[N]:
    """The first size and its doubles, up to `most`."""
    sizes = [first]
    while 2 * sizes[-1] <= most:
        sizes.append(2 * sizes[-1])
    return sizes


def steps_of(budget: BudgetOptions, steps_per_epoch: int) -> tuple[int, int]:
    """Steps of the shortest and of the longest course: two budgets, if the limit allows two, and all budgets."""
    sizes = doubled(budget.epochs, budget.max_epochs)
    totals = [max(2, round(size * steps_per_epoch)) for size in sizes]
    untils = [round((1 - budget.anneal) * total) for total in totals]
    taken = [untils[last] + sum(totals[: last + 1]) - sum(untils[: last + 1]) for last in range(len(sizes))]
    return taken[min(1, len(taken) - 1)], taken[-1]


def _gain(losses: list[float]) -> float | None:
    """Relative decrease of the loss by the last doubling; None before any doubling."""
    if len(losses) < 2:
        return None
    return 1 - losses[-1] / losses[-2] if losses[-2] else 0.0


def _gained_little(losses: list[float], tolerance: float) -> bool:
    gain = _gain(losses)
    return gain is not None and gain < tolerance


def _doubt(verdict: Verdict, tried: float) -> Finding:
    """The reason why an attack is not called converged."""
    epochs, gain = verdict.curve[-1].epochs, verdict.gain_of_doubling
    if tried > epochs:
        return finding("budget_diverged", epochs=epochs, tried=tried)
    if gain is None:
        return finding("never_doubled", epochs=epochs)
    return finding("not_converged", epochs=epochs, gain=100 * gain)


def _tell(progress: Progress, name: str, part: str, epochs: float, total: float, error: float) -> None:
    progress(f"{name}: {part}", epochs, total, {"mse": error} if math.isfinite(error) else {})


class _Course(Generic[L]):
    """The trunk in training, and the copies that branch off; each reports its progress under a name of its own."""

    def __init__(
        self,
        trunk: L,
        copied: Callable[[L], L],
        budget: BudgetOptions,
        tell: Callable[[str, float, float, float], None],
    ) -> None:
        self.trunk, self.copied, self.budget, self.tell = trunk, copied, budget, tell
        self.longest = (1 - budget.anneal) * doubled(budget.epochs, budget.max_epochs)[-1]
        self.done = 0
        self.error = math.nan

    def annealed_at(self, epochs: float) -> tuple[L, float, float]:
        """A copy of the trunk, annealed to a total of `epochs` epochs, with its validation error and loss."""
        total = max(2, round(epochs * self.trunk.steps_per_epoch))
        until = round((1 - self.budget.anneal) * total)
        while self.done < until:
            self.trunk.step(self.budget.lr * min(1.0, (self.done + 1) / WARMUP_STEPS))
            self.done += 1
            self._tell(written("stage.part.trunk"), self.done, self.longest)
        learner = self.copied(self.trunk)
        began = written("stage.part.annealed", epoch=until / self.trunk.steps_per_epoch)
        for step in range(until, total):
            learner.step(self.budget.lr * (total - step) / (total - until))
            self._tell(began, step + 1, epochs)
        self.error, loss = learner.validate()
        return learner, self.error, loss

    def _tell(self, part: str, step: int, total: float) -> None:
        if step % _TELL_EVERY == 0:
            self.tell(part, step / self.trunk.steps_per_epoch, total, self.error)
