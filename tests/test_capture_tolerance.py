"""What the comparison of a recorded step with the plain one tells apart: rounding from another step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import attncem
from attncem.base.progress import silent
from attncem.training.capture import (
    MOST_MISSING,
    ROOM,
    TOLERANCE,
    WARM_STEPS,
    Step,
    _copies,
    missing_share,
    relative_difference,
)

LARGEST_SEEN = 0.028
"""Between the compiled and the plain step of these batches on an H200, where convolutions round to 10 bits."""
FEW = [["surrogate.memory.per_class=2"], ["training.batches.name=balanced", "training.batches.samples_per_class=2"]]


class Found(Exception):
    """Ends a run at the step that was looked at."""


class Once:
    """The step at which one would be recorded, taken again and again from the same state."""

    def __init__(self, step: Step, inputs: tuple[torch.Tensor, ...]) -> None:
        self.step, self.inputs, self.objective = step, inputs, step._function.func.__self__
        self.tensors, self.generators = list(step._state()), list(step._generators)
        self.before = _copies(self.tensors), [one.get_state() for one in self.generators]
        self.start = _copies(step._watched)
        self.take()
        self.expected = _copies(step._watched)

    def take(self) -> None:
        self.step._function(*self.inputs)

    def put_back(self) -> None:
        with torch.no_grad():
            for tensor, value in zip(self.tensors, self.before[0], strict=True):
                tensor.copy_(value)
        for generator, state in zip(self.generators, self.before[1], strict=True):
            generator.set_state(state)

    def away(self) -> float:
        return relative_difference(self.step._watched, self.expected, self.start)

    def differs(self) -> float:
        self.take()
        return self.away()

    @contextmanager
    def nudged_weights(self) -> Iterator[None]:
        """Every weight off by up to half a unit of bf16's last place, which changes the rounding of everything."""
        draws = torch.Generator().manual_seed(1)
        with torch.no_grad():
            by = [p * (torch.rand(p.shape, generator=draws) - 0.5) * 2**-8 for p in self.step._watched]
            torch._foreach_add_(list(self.step._watched), by)
        yield
        with torch.no_grad():
            torch._foreach_sub_(list(self.step._watched), by)

    def in_32_bits(self) -> list[torch.Tensor]:
        """The watched tensors after the step in 32 bits."""
        self.put_back()
        assert self.step._in_32_bits is not None
        with self.step._in_32_bits():
            self.take()
        return _copies(self.step._watched)

    def expect_32_bits(self) -> None:
        """Compare with the step in 32 bits from now on."""
        weight = self.step.penalty_weight
        assert weight is self.objective.weight
        self.expected, value = self.in_32_bits(), float(weight)
        weight.zero_()
        self.bare = self.in_32_bits()
        weight.fill_(value)
        self.put_back()

    def lacks(self) -> float:
        """The share of the penalty that the last step lacks."""
        return missing_share(self.step._watched, self.expected, self.bare, self.start)


def differences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> dict[str, float]:
    """Differences of the step at which one would be recorded: the same again, with other noise, without its penalty."""
    seen: dict[str, float] = {}

    def look(step: Step, *inputs: torch.Tensor) -> Any:
        step._record_after -= 1
        if step._record_after != -1 - WARM_STEPS - 1:
            return step._function(*inputs)
        once = Once(step, inputs)
        if step._in_32_bits is not None:
            once.expect_32_bits()
        once.put_back()
        seen["again"] = once.differs()
        once.put_back()
        with once.nudged_weights():
            once.take()
        seen["other rounding"] = once.away()
        if step._in_32_bits is not None:
            seen["lacks by rounding"] = once.lacks()
        once.put_back()
        once.generators[1].manual_seed(5)
        seen["other noise"] = once.differs()
        once.put_back()
        once.objective.weight.zero_()
        seen["no penalty"] = once.differs()
        if step._in_32_bits is not None:
            seen["lacks without it"] = once.lacks()
        raise Found

    monkeypatch.setattr(Step, "__call__", look)
    options = (*options, "training.batch_size=16", "training.epochs=1", "device=cpu")
    with pytest.raises(Found):
        attncem.train("demo", list(options), out=tmp_path / "run", progress=silent)
    return seen


@pytest.mark.parametrize("few", FEW)
def test_a_step_without_its_penalty_or_with_other_noise_is_told_from_rounding(
    few: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = differences(tmp_path, monkeypatch, *few)
    assert seen["again"] == 0, "the same state, the same step"
    assert LARGEST_SEEN < TOLERANCE < min(seen["other noise"], seen["no penalty"]), seen


def test_in_bf16_steps_are_compared_with_one_in_32_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = differences(tmp_path, monkeypatch, *FEW[0], "training.precision=bf16-mixed", "training.penalty_weight=2")
    assert seen["again"] > 0, "the plain step rounds too"
    most = ROOM * seen["again"] + TOLERANCE
    assert seen["other rounding"] < most < min(seen["other noise"], seen["no penalty"]), seen


@pytest.mark.parametrize("macs", [1.2e6, 4e6])
def test_the_rounding_of_a_lean_client_does_not_hide_its_penalty(
    macs: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lean = ["model.name=lean", f"model.macs={macs}", "model.width=null", "training.precision=bf16-mixed"]
    seen = differences(tmp_path, monkeypatch, *FEW[0], *lean)
    most = ROOM * seen["again"] + TOLERANCE
    assert max(seen["other rounding"], seen["no penalty"]) < most, "the size of the difference does not tell"
    assert seen["lacks by rounding"] < MOST_MISSING < seen["lacks without it"], seen


@pytest.mark.parametrize(("weight", "mode"), [(0.1, "captured"), (0.01, "compiled"), (0.0, "compiled")])
def test_a_form_without_the_penalty_is_refused_where_that_can_be_seen(
    weight: float, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replays call the function again, so that no GPU is needed."""
    draws = torch.Generator().manual_seed(0)
    update, penalty, rounding, other = torch.nn.functional.normalize(torch.randn(4, 10_000, generator=draws))
    parameter, penalty_weight, exact = torch.nn.Parameter(torch.zeros(10_000)), torch.tensor(weight), list[bool]()

    @contextmanager
    def in_32_bits() -> Iterator[None]:
        exact.append(True)
        yield
        exact.clear()

    def plain(x: torch.Tensor) -> None:
        with torch.no_grad():
            parameter.add_(update + penalty_weight * penalty + (0 if exact else 0.3) * rounding)

    def without(x: torch.Tensor) -> None:
        with torch.no_grad():
            parameter.add_(update + 0.3 * other)

    def record(step: Step, function: Any, inputs: Any, before: Any) -> None:
        before.restore()
        step._graph = SimpleNamespace(replay=lambda: function(*inputs))  # type: ignore[assignment]

    monkeypatch.setattr(Step, "_record", record)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "default_generators", (torch.default_generator,))
    step = Step(
        plain, state=lambda: [parameter], watched=[parameter], faster={"compiled": without}, in_32_bits=in_32_bits
    )
    step.penalty_weight = penalty_weight
    for _ in range(WARM_STEPS + 1):
        step(torch.zeros(1))
    assert step.mode == mode, step.problems
    assert step.problems == (["steps are not compiled: its update lacks most of its penalty"] if weight == 0.1 else [])
    assert float(penalty_weight) == pytest.approx(weight)
