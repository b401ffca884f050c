"""What comparing runs gives: how their configurations differ, their numbers, and the answers of the tests."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from attncem.base.record import Record
from attncem.records.comparison import Comparison, SeedSummary
from attncem.records.findings import Finding


class ComparedRun(Record):
    """One run: where it lies, the group it counts in, what came of its training, and its numbers by quantity.

    ``along`` is the validation accuracy after a quarter, half, three quarters and all of the training (None: not
    reached); ``audit`` is the folder of the audit that the numbers are from, empty without one.
    """

    label: str
    path: str
    group: str
    seed: int
    status: str
    along: list[float | None] = field(default_factory=list)
    best_accuracy: float | None = None
    training_seconds: float | None = None
    audit: str = ""
    strongest: str = ""
    numbers: dict[str, float] = field(default_factory=dict)


class Group(Record):
    """Runs that are compared as one arm, and their numbers over them."""

    name: str
    runs: list[str]
    numbers: dict[str, SeedSummary] = field(default_factory=dict)


class Difference(Record):
    """One option and the values that it has in each group, by group; none where the group has no such option."""

    key: str
    values: dict[str, list[Any]]

    @property
    def everywhere(self) -> bool:
        """Whether all groups have the option."""
        return all(self.values.values())


class CommonAudit(Record):
    """What was asked in all audits that are compared."""

    suite: str
    version: int
    threat: str
    changed: list[str] = field(default_factory=list)


class Quantity(Record):
    """One number that is compared: the accuracy, or a measure of a row; ``row`` is empty for each run's strongest."""

    key: str
    title: str
    measure: str
    row: str = ""


class RunsComparison(Record):
    """Runs side by side. ``by`` are the options that they were grouped by; empty: by all but the seed."""

    runs: list[ComparedRun]
    groups: list[Group]
    by: list[str]
    differences: list[Difference]
    audit: CommonAudit | None
    quantities: list[Quantity]
    comparisons: list[Comparison]
    findings: list[Finding]
