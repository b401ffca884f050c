"""What a defence costs in training: time and memory of every surrogate over an undefended run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from evidence.drawing import Lines, exact, of_lines
from evidence.source import Source
from evidence.words import table_of

FIGURE = "results-cost.svg"
NONE = "none"
CLOSE = 1.05
"""A ratio up to which a cost counts as hardly any."""


@dataclass(frozen=True)
class Cost:
    """A surrogate: an epoch, a step and the peak of memory over those of an undefended run."""

    surrogate: str
    epoch: float
    step: float
    memory: float


def costs(source: Source) -> list[Cost]:
    """Every surrogate with captured steps, batches of 128 and bf16; empty if not measured yet."""
    file = source.folder / "benchmark.json"
    if not file.is_file():
        return []
    parts = json.loads(file.read_text(encoding="utf-8"))["parts"]
    epochs, steps = (_captured(table["rows"]) for table in parts["epochs"]["tables"])
    memory = {row["surrogate"]: row["peak_over_none"] for row in parts["memory"]["tables"][0]["rows"]}
    return [Cost(name, epochs[name], steps[name], memory[name]) for name in epochs if name in memory and name != NONE]


def _captured(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The ratio to an undefended run by surrogate."""
    usual = {"batch_size": 128, "precision": "bf16-mixed", "steps": "captured"}
    return {row["surrogate"]: row["over_none"] for row in rows if usual.items() <= row.items()}


def cost_table(source: Source) -> str:
    """The costs of every surrogate, as multiples of an undefended run's."""
    columns: dict[str, Callable[[Cost], str]] = {
        "surrogate": lambda one: f"`{one.surrogate}`",
        "epoch, times": lambda one: f"{one.epoch:.2f}",
        "step, times": lambda one: f"{one.step:.2f}",
        "peak memory, times": lambda one: f"{one.memory:.3f}",
    }
    return table_of(costs(source), columns)


def answer(source: Source) -> str:
    """Which surrogates cost hardly any time, which cost more, and the memory of all."""
    rows = costs(source)
    if not rows:
        return "Costs are not measured yet: `python -m benchmarks --out results/benchmark.json`."
    cheap = [one for one in rows if one.epoch <= CLOSE]
    dear = sorted((one for one in rows if one.epoch > CLOSE), key=lambda one: one.epoch)
    parts = []
    if cheap:
        longest = max(one.epoch for one in cheap)
        parts.append(f"an epoch with {_names(cheap)} takes at most {longest:.2f} times that of an undefended run")
    if dear:
        slow = ", ".join(f"{one.epoch:.2f} times with `{one.surrogate}`" for one in dear)
        parts.append(f"{'it takes ' if cheap else 'an epoch takes '}{slow}")
    sentence = "; ".join(parts)
    most = max(one.memory for one in rows)
    return f"{sentence[:1].upper()}{sentence[1:]}. The peak of memory is at most {most:.2f} times that of such a run."


def _names(rows: Sequence[Cost]) -> str:
    return ", ".join(f"`{one.surrogate}`" for one in rows)


def figure(source: Source) -> bytes | None:
    """The time of an epoch over that of an undefended run; None if not measured yet."""
    rows = sorted(costs(source), key=lambda one: one.epoch)
    if not rows:
        return None
    lines = [(one.surrogate, [exact(one.epoch), exact(one.step)]) for one in rows]
    across = "times an undefended run"
    return of_lines(FIGURE, Lines("Training time of every surrogate", across, ("epoch", "step"), lines, at=1))
