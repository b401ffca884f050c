"""The result of a search: search.json in its folder."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal

from attncem.base.record import Record
from attncem.records.findings import Finding

TrialState = Literal["done", "failed", "unfinished"]


class SearchTrial(Record):
    """One trial: its cell, the searched values, and on validation images its accuracy and the error of its strongest
    attack, the geometric mean of MSE and structure error. ``nats`` is the limit on its leak, if the audit has one;
    ``beside`` are the numbers that may contradict it, as files of results keep them (`records/leaks.py`).
    """

    cell: str
    method: str
    values: dict[str, Any]
    state: TrialState
    accuracy: float | None = None
    error: float | None = None
    seconds: float = 0.0
    reason: str = ""
    nats: float | None = None
    beside: dict[str, dict[str, Any]] = field(default_factory=dict)


class MethodFound(Record):
    """The result of one method: its trials and seconds, its Pareto-optimal cells from the most accurate on, and the
    best cell of every accuracy level that it reaches.
    """

    name: str
    trials: int
    failed: int
    seconds: float
    front: list[str]
    levels: dict[str, str]


class SearchResult(Record):
    """A search. ``undefended`` is the reference accuracy of the levels, ``levels`` the distance of each below it.

    ``budget`` is the requested budget, ``complete`` says whether it is spent; with ``equal_budget`` every method had
    the same share. ``choose`` is the rule among settings that are accurate enough: `error` or `nats`. ``files`` are
    configurations by method and level, ready for training. ``findings`` are the pairs of chosen trials that a ranking
    by the limit alone would mislead about. All numbers are from validation images.
    """

    name: str
    budget: str
    equal_budget: bool
    undefended: float
    levels: dict[str, float]
    methods: list[MethodFound]
    trials: list[SearchTrial]
    files: dict[str, str] = field(default_factory=dict)
    complete: bool = True
    folder: str = ""
    choose: str = "error"
    findings: list[Finding] = field(default_factory=list)

    def trial(self, cell: str) -> SearchTrial:
        """The trial of a cell."""
        return next(trial for trial in self.trials if trial.cell == cell)
