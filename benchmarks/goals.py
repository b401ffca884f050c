"""The goals for speed, and the values of a result file for each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

Match = Mapping[str, Any]


class Goal(NamedTuple):
    """A figure that should be at most `limit` in every matching row of a table."""

    text: str
    limit: float
    title: str
    figure: str
    match: Match = MappingProxyType({})

    def reached(self, results: Mapping[str, Any]) -> float | None:
        """The worst figure; None if none was measured."""
        tables = [table for part in results["parts"].values() for table in part.get("tables", [])]
        rows = [row for table in tables if table["title"] == self.title for row in table["rows"]]
        fitting = [row for row in rows if all(row.get(key) == value for key, value in self.match.items())]
        return max((row[self.figure] for row in fitting if row.get(self.figure) is not None), default=None)

    def row(self, results: Mapping[str, Any]) -> dict[str, Any]:
        """Goal, limit and measured value."""
        reached = self.reached(results)
        met = "not measured" if reached is None else "yes" if reached <= self.limit else "no"
        return {"goal": self.text, "at_most": self.limit, "reached": reached, "met": met}


FAST = {"batch_size": 128, "precision": "bf16-mixed"}
CAPTURED, COMPILED, OWN = {"steps": "captured"}, {"steps": "compiled"}, {"steps": "surrogate compiled"}
KMEANS, MANY = {"surrogate": "kmeans", **FAST}, {"classes": 1000}
EPOCH = "seconds of an epoch of CIFAR-10's size, kmeans, batch 128, refit included"
ACCURACY = "accuracy after 60 epochs, fast against plain: difference in standard errors"
ACCURACIES = "Accuracy of fast and plain training"
STEPS = {"capacity": 1.03, "gated": 1.06, "hybrid": 1.10, "slot": 1.25, "logdet": 1.25}
"""Limits of a captured step with a compiled surrogate."""
STEP = "captured step with {}, itself compiled, over one without"
CLASSES, ALONE = "Step against classes", "Surrogate alone against classes"
MANY_CLASSES = "a captured step with any surrogate, 1000 classes over 10"
FRONT_END = "captured step with any front end over one without"
KERNELS = "captured step without surrogate over its summed kernels"
GOALS = (
    Goal(EPOCH, 0.6, "Epoch", "epoch_seconds", KMEANS | COMPILED),
    Goal(ACCURACY, 2.0, ACCURACIES, "difference_over_error"),
    Goal("captured epoch with kmeans and its refit over one without", 1.06, "Epoch", "over_none", KMEANS | CAPTURED),
    Goal("the same, kmeans compiled", 1.06, "Epoch", "over_none", KMEANS | OWN),
    *(
        Goal(STEP.format(name), limit, "Step", "over_none", {"surrogate": name} | FAST | OWN)
        for name, limit in STEPS.items()
    ),
    Goal(FRONT_END, 1.03, "Step with a front end", "over_none"),
    Goal("peak memory with any surrogate over none", 1.10, "Memory", "peak_over_none"),
    Goal(KERNELS, 1.2, "Steps and their kernels", "over_kernels", {"step": "captured"}),
    Goal("any surrogate alone, 1000 classes over 10", 1.1, ALONE, "over_first", {"value": 1000}),
    Goal(MANY_CLASSES, 1.1, CLASSES, "over_first", MANY | CAPTURED),
    Goal("the same, the attentions compiled", 1.1, CLASSES, "over_first", MANY | OWN),
    Goal("seconds of 240 epochs", 180.0, "240 epochs", "whole_seconds"),
)
"""All goals, in the order of display."""
