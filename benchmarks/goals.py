"""The goals for speed, and what a result file shows of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Goal:
    """A figure that should be at most `limit` in every row of a table that matches."""

    text: str
    limit: float
    part: str
    title: str
    figure: str
    match: Mapping[str, Any] = field(default_factory=dict)

    def reached(self, results: Mapping[str, Any]) -> float | None:
        """The worst figure; None where none was measured."""
        tables = results["parts"].get(self.part, {}).get("tables", [])
        rows = [row for table in tables if table["title"] == self.title for row in table["rows"]]
        fitting = [row for row in rows if all(row.get(key) == value for key, value in self.match.items())]
        return max((row[self.figure] for row in fitting if row.get(self.figure) is not None), default=None)

    def row(self, results: Mapping[str, Any]) -> dict[str, Any]:
        """Goal, limit and what was reached."""
        reached = self.reached(results)
        met = "not measured" if reached is None else "yes" if reached <= self.limit else "no"
        return {"goal": self.text, "at_most": self.limit, "reached": reached, "met": met}


def _step_goal(surrogate: str, limit: float) -> Goal:
    """Captured, with the surrogate compiled."""
    match = {"surrogate": surrogate, "steps": "surrogate compiled", "batch_size": 128, "precision": "bf16-mixed"}
    text = f"captured step with {surrogate}, itself compiled, over one without"
    return Goal(text, limit, "epochs", "Step", "over_none", match)


def _classes_goal(text: str, steps: str) -> Goal:
    match = {"classes": 1000, "steps": steps}
    return Goal(text, 1.1, "classes", "Step against classes", "over_first", match)


_EPOCH = {"surrogate": "kmeans", "batch_size": 128, "precision": "bf16-mixed"}


def _refit_goal(text: str, steps: str) -> Goal:
    return Goal(text, 1.06, "epochs", "Epoch", "over_none", {**_EPOCH, "steps": steps})


GOALS = (
    Goal(
        "seconds of an epoch of CIFAR-10's size, kmeans, batch 128, refit included",
        0.6,
        "epochs",
        "Epoch",
        "epoch_seconds",
        {**_EPOCH, "steps": "compiled"},
    ),
    Goal(
        "accuracy after 60 epochs, fast against plain: difference in standard errors",
        2.0,
        "accuracy",
        "Accuracy of fast and plain training",
        "difference_over_error",
    ),
    _refit_goal("captured epoch with kmeans and its refit over one without", "captured"),
    _refit_goal("the same, kmeans compiled", "surrogate compiled"),
    _step_goal("capacity", 1.03),
    _step_goal("gated", 1.06),
    _step_goal("hybrid", 1.10),
    _step_goal("slot", 1.25),
    _step_goal("logdet", 1.25),
    Goal("captured step with any front end over one without", 1.03, "front_ends", "Step with a front end", "over_none"),
    Goal("peak memory with any surrogate over none", 1.10, "memory", "Memory", "peak_over_none"),
    Goal(
        "captured step without surrogate over its summed kernels",
        1.2,
        "floor",
        "Steps and their kernels",
        "over_kernels",
        {"step": "captured"},
    ),
    Goal(
        "any surrogate alone, 1000 classes over 10",
        1.1,
        "overhead",
        "Surrogate alone against classes",
        "over_first",
        {"value": 1000},
    ),
    _classes_goal("a captured step with any surrogate, 1000 classes over 10", "captured"),
    _classes_goal("the same, the attentions compiled", "surrogate compiled"),
    Goal("seconds of 240 epochs", 180.0, "long", "240 epochs", "whole_seconds"),
)
"""All goals, in the order they are shown."""
