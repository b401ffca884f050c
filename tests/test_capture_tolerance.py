"""What the comparison of a recorded step with the plain one tells apart: rounding from another step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import attncem
from attncem.base.progress import silent
from attncem.training.capture import TOLERANCE, WARM_STEPS, Step, _copies, _relative_difference

LARGEST_SEEN = 0.028
"""Between the compiled and the plain step of these batches on an H200, where convolutions round to 10 bits."""
LARGEST_IN_BF16 = 0.22
"""The same in bf16, of VGG11-BN on batches of 256."""
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

    def differs(self) -> float:
        self.take()
        return _relative_difference(self.step._watched, self.expected, self.start)


@pytest.mark.parametrize("few", FEW)
def test_a_step_without_its_penalty_or_with_other_noise_is_told_from_rounding(
    few: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, float] = {}

    def look(step: Step, *inputs: torch.Tensor) -> Any:
        step._record_after -= 1
        if step._record_after != -1 - WARM_STEPS - 1:
            return step._function(*inputs)
        once = Once(step, inputs)
        once.put_back()
        seen["again"] = once.differs()
        once.put_back()
        once.generators[1].manual_seed(5)
        seen["other noise"] = once.differs()
        once.put_back()
        once.objective.weight.zero_()
        seen["no penalty"] = once.differs()
        raise Found

    monkeypatch.setattr(Step, "__call__", look)
    given = [*few, "training.batch_size=16", "training.epochs=1", "device=cpu"]
    with pytest.raises(Found):
        attncem.train("demo", given, out=tmp_path / "run", progress=silent)
    assert seen["again"] == 0, "the same state, the same step"
    assert LARGEST_SEEN < TOLERANCE["32-true"] < min(seen["other noise"], seen["no penalty"]), seen
    assert LARGEST_IN_BF16 < TOLERANCE["bf16-mixed"] < seen["other noise"], seen
