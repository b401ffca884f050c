"""until_converged(): budgets that double, told by a learner that gives what it was told."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from attncem.base.types import TrainingError
from attncem.config.options.attacks import BudgetOptions
from attncem.judging.attacks.convergence import WARMUP_STEPS, Converged, until_converged

Said = tuple[str, float, float, Mapping[str, float]]
Script = Sequence[float | tuple[float, float]]
"""For each budget a validation error that is also the loss, or an error and a loss."""


@dataclass
class Told:
    """What the trunk and its copies share: the script, and what was asked of them."""

    script: Script
    rates: list[tuple[str, float]] = field(default_factory=list)
    copies: int = 0


@dataclass
class Fake:
    """Counts its steps; a copy goes on from where it was copied."""

    told: Told
    name: str = "trunk"
    steps: int = 0
    steps_per_epoch: int = 10

    def step(self, rate: float) -> None:
        self.steps += 1
        self.told.rates.append((self.name, rate))

    def validate(self) -> tuple[float, float]:
        said = self.told.script[self.told.copies - 1]
        return said if isinstance(said, tuple) else (said, said)

    def copied(self) -> Fake:
        self.told.copies += 1
        return Fake(self.told, f"copy {self.told.copies}", self.steps, self.steps_per_epoch)

    @property
    def epochs(self) -> float:
        return self.steps / self.steps_per_epoch


def run(
    script: Script,
    *,
    epochs: float = 16,
    max_epochs: float = 64,
    anneal: float = 0.5,
    said: list[Said] | None = None,
) -> tuple[Converged[Fake], Told]:
    told = Told(script)
    budget = BudgetOptions(epochs=epochs, max_epochs=max_epochs, tolerance=0.02, lr=0.003, anneal=anneal)
    said = [] if said is None else said
    done = until_converged(
        Fake(told), Fake.copied, budget, name="fake", num_parameters=7, progress=lambda *now: said.append(now)
    )
    return done, told


@pytest.mark.parametrize(
    ("script", "reliable", "gain", "best"),
    [
        ([1.0, 0.5, 0.495], True, 0.01, 64),
        ([1.0, 0.99], True, 0.01, 32),
        ([1.0, 1.1], True, -0.1, 16),
        ([1.0, 0.5, 0.25], False, 0.5, 64),
        ([1.0, 0.97, 0.93], False, 1 - 0.93 / 0.97, 64),
        ([0.5, 0.0, 0.0], True, 0.0, 32),
    ],
)
def test_converged_is_when_a_doubled_budget_gains_little(
    script: list[float], reliable: bool, gain: float, best: int
) -> None:
    done, _ = run(script)
    assert done.verdict.reliable is reliable
    assert done.verdict.gain_of_doubling == pytest.approx(gain)
    assert [point.epochs for point in done.verdict.curve] == [16, 32, 64][: len(script)]
    assert [point.validation_error for point in done.verdict.curve] == pytest.approx(script)
    assert done.verdict.num_parameters == 7
    assert done.best.epochs == best


def test_a_budget_that_still_gains_is_not_converged() -> None:
    done, _ = run([1.0, 0.5, 0.25])
    assert [item.code for item in done.findings] == ["not_converged"]
    assert done.findings[0].values == {"epochs": 64, "gain": 50}
    assert done.findings[0].text == "not converged after 64 epochs: the last doubling of the budget gained 50.0 %"


def test_what_has_converged_has_no_findings() -> None:
    assert run([1.0, 0.99])[0].findings == []


@pytest.mark.parametrize(("script", "gain"), [([0.5, math.nan], None), ([1.0, 0.5, math.inf], 0.5)])
def test_a_budget_that_diverges_ends_the_doubling(script: list[float], gain: float | None) -> None:
    done, _ = run(script)
    tried = 16 * 2 ** (len(script) - 1)
    assert not done.verdict.reliable
    assert done.verdict.gain_of_doubling == gain
    assert [point.validation_error for point in done.verdict.curve] == script[:-1]
    assert done.best.epochs == tried / 2
    assert [item.code for item in done.findings] == ["budget_diverged"]
    assert done.findings[0].text == f"not converged after {tried // 2} epochs: {tried} epochs diverged"


def test_one_that_gained_little_before_it_diverged_is_not_asked_for_more() -> None:
    done, told = run([1.0, 0.99, math.nan])
    assert done.verdict.reliable
    assert told.copies == 2


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_diverging_at_once_is_an_error(loss: float) -> None:
    with pytest.raises(TrainingError, match=r"fake diverged within 16 epochs: lower its lr=0\.003"):
        run([(0.1, loss)])


@pytest.mark.parametrize("max_epochs", [16, 31.9])
def test_a_budget_that_was_never_doubled_is_unreliable(max_epochs: float) -> None:
    done, told = run([0.5], max_epochs=max_epochs)
    assert told.copies == 1
    assert not done.verdict.reliable
    assert done.verdict.gain_of_doubling is None
    assert [item.code for item in done.findings] == ["never_doubled"]
    assert done.findings[0].text == "not converged after 16 epochs: no doubling was tried"


@pytest.mark.parametrize(
    ("script", "best", "gain"),
    [
        ([(0.1, 0.5), (0.2, 0.3)], 32, 0.4),
        ([(0.2, 0.3), (0.1, 0.36)], 16, -0.2),
    ],
)
def test_the_loss_decides_and_not_the_error(script: Script, best: int, gain: float) -> None:
    """With a perceptual loss, the validation error may say something else."""
    done, _ = run(script, max_epochs=32)
    assert done.best.epochs == best
    assert done.verdict.gain_of_doubling == pytest.approx(gain)
    assert [point.validation_error for point in done.verdict.curve] == [0.1, 0.2] if best == 32 else [0.2, 0.1]


@pytest.mark.parametrize(("anneal", "branches"), [(0.5, [80, 160, 320]), (0.25, [120, 240, 480]), (1.0, [0, 0, 0])])
def test_every_copy_branches_off_one_trunk(anneal: float, branches: list[int]) -> None:
    _, told = run([1.0, 0.5, 0.25], anneal=anneal)
    steps = [sum(name == f"copy {number}" for name, _ in told.rates) for number in (1, 2, 3)]
    assert steps == [160 - branches[0], 320 - branches[1], 640 - branches[2]]
    assert sum(name == "trunk" for name, _ in told.rates) == branches[-1]


def test_the_trunk_warms_up_and_a_copy_cools_down() -> None:
    _, told = run([1.0, 0.99])
    trunk = [rate for name, rate in told.rates if name == "trunk"]
    assert trunk[:3] == pytest.approx([0.003 * step / WARMUP_STEPS for step in (1, 2, 3)])
    assert trunk[WARMUP_STEPS - 1 :] == pytest.approx([0.003] * (len(trunk) - WARMUP_STEPS + 1))
    for copy in ("copy 1", "copy 2"):
        rates = [rate for name, rate in told.rates if name == copy]
        assert rates[0] == pytest.approx(0.003)
        assert rates == sorted(rates, reverse=True)
        assert 0 < rates[-1] < 0.003 / 50


def test_progress_is_told_within_the_largest_budget() -> None:
    said: list[Said] = []
    run([1.0, 0.5, 0.25], said=said)
    epochs = [now for _, now, _, _ in said]
    assert len(said) > 20
    assert min(epochs) > 0
    assert max(epochs) == 64
    assert all(numbers == {} for _, _, _, numbers in said[: epochs.index(16.0) + 1])
    assert said[-1][1:] == (64, 64, {"mse": 0.5}), "the error is that of the last budget that is done"


def test_trunk_and_copies_are_named_and_none_goes_back() -> None:
    said: list[Said] = []
    run([1.0, 0.5, 0.25], said=said)
    course: dict[str, list[float]] = {}
    totals = {stage: total for stage, _, total, _ in said}
    for stage, now, _, _ in said:
        course.setdefault(stage, []).append(now)
    copies = {f"fake: annealed from {epoch}": 2.0 * epoch for epoch in (8, 16, 32)}
    assert totals == {"fake: trunk": 32, **copies}
    assert all(now == sorted(now) for now in course.values())
    assert {stage: now[-1] for stage, now in course.items()} == totals
    assert course["fake: annealed from 16"][0] == 18, "from where it left the trunk, by steps that are told"


def test_the_smallest_budget_is_two_steps() -> None:
    done, told = run([1.0], epochs=0.01, max_epochs=0.01)
    assert [name for name, _ in told.rates] == ["trunk", "copy 1"]
    assert done.best.steps == 2
