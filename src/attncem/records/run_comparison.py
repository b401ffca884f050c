"""Results of comparing runs: differences between their configurations, their numbers, and the tests."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from attncem.base.record import Record
from attncem.records.comparison import Comparison, SeedSummary
from attncem.records.findings import Finding
from attncem.records.sending import KeptSending


class ComparedRun(Record):
    """One run: the name of its folder, its group, the outcome of its training, and its numbers by quantity.

    ``along`` is the validation accuracy after a quarter, half, three quarters and all of the training (None: not
    reached); ``audit`` is the name of the folder of the audit with these numbers, empty without one. ``vacuous`` and
    ``at_ceiling`` are the keys of numbers of the leak that say nothing, or could hardly be larger.
    ``costs`` are those of the client that are known, by their names in the manifest. ``sending``: its client sends only
    some images, and its numbers are for these.
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
    vacuous: list[str] = field(default_factory=list)
    at_ceiling: list[str] = field(default_factory=list)
    costs: dict[str, Any] = field(default_factory=dict)
    sending: KeptSending | None = None


class Group(Record):
    """Runs that are compared as one arm, with statistics of their numbers."""

    name: str
    runs: list[str]
    numbers: dict[str, SeedSummary] = field(default_factory=dict)


class Difference(Record):
    """One option with its values in each group; empty where the group has no such option."""

    key: str
    values: dict[str, list[Any]]

    @property
    def everywhere(self) -> bool:
        """Whether all groups have the option."""
        return all(self.values.values())


class CommonAudit(Record):
    """The settings that all compared audits share."""

    suite: str
    version: int
    threat: str
    changed: list[str] = field(default_factory=list)


class Quantity(Record):
    """One compared number: the accuracy, or a measure of a row; ``row`` is empty for each run's strongest attack."""

    key: str
    title: str
    measure: str
    row: str = ""


class RunsComparison(Record):
    """Runs side by side. ``by`` are the options that group them; empty: all options but the seed.

    ``unmeasured`` are runs of which no limit on the leak is known, ``measure_leak`` the command for the first of them.
    ``alone`` are sentences about what the clients could do alone, ``sending`` about clients that send only some images.
    """

    runs: list[ComparedRun]
    groups: list[Group]
    by: list[str]
    differences: list[Difference]
    audit: CommonAudit | None
    quantities: list[Quantity]
    comparisons: list[Comparison]
    findings: list[Finding]
    unmeasured: list[str] = field(default_factory=list)
    measure_leak: str = ""
    alone: list[str] = field(default_factory=list)
    sending: list[str] = field(default_factory=list)
