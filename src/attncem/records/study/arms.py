"""Cells, arms and the study: scores over seeds, tests against a reference, the front, effects of options."""

from __future__ import annotations

import statistics as plain
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from attncem.base.types import AttncemError, RunError
from attncem.config.options.run import RunConfig
from attncem.records.campaign import State
from attncem.records.comparison import Comparison, FrontPoint, SeedSummary
from attncem.records.judgement import State as AuditState
from attncem.records.leak import Leak
from attncem.records.leaks import LEAKS, have_equal_scale, leak_of, private_of
from attncem.records.metrics import ACCURACY, METRICS
from attncem.records.runs import RunDirectory
from attncem.records.statistics import Estimate, adjust, compare_arms, pareto, seed_summary
from attncem.records.study.keys import AuditKind


class Audited(Protocol):
    """The interface of an audit in a study, for audits in a folder or in a file of results."""

    @property
    def strongest(self) -> str | None:
        """The row of the strongest attack; empty or None where no attack has a result."""

    @property
    def state(self) -> AuditState:
        """Whether its numbers are reliable, not reliable, or not enough to tell."""

    def score(self, measure: str, row: str = "") -> Estimate | None:
        """The accuracy, or a measure of the strongest attack or of the named row; None where it is absent."""


A = TypeVar("A", bound=Audited)


@dataclass(frozen=True)
class RunFacts:
    """The contents of a run's folder. Audits without a run have no manifest, and ``config`` is None.

    ``left_out`` names audits that are not shown, each with the reason.
    """

    path: Path = Path()
    label: str = ""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    config: RunConfig | None = None
    config_text: str = ""
    metrics: Sequence[Mapping[str, Any]] = ()
    left_out: Sequence[str] = ()

    def records(self, kind: str) -> list[Mapping[str, Any]]:
        """The lines of metrics.jsonl of one kind, such as `train` or `validation`, in order."""
        return [record for record in self.metrics if record.get("kind") == kind]


@dataclass(frozen=True)
class Cell(Generic[A]):
    """A run and its audits. ``run`` is empty where there is no folder.

    ``state`` and ``reason`` are the state of a campaign's cell; ``collapsed``: it ended near chance. ``unfinished`` is
    the number of audits that lack rows, which are not among its audits. A run ``on_device`` has no audit; its
    accuracies are in ``alone``, by the images (`test`, `validation`): only where it was chosen among its candidates.
    """

    id: str
    seed: int
    audits: Mapping[AuditKind, A] = field(default_factory=dict)
    run: RunFacts = field(default_factory=RunFacts)
    state: State = "done"
    reason: str = ""
    collapsed: bool = False
    unfinished: int = 0
    on_device: bool = False
    alone: Mapping[str, Estimate] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The folder of its run."""
        return self.run.path

    @property
    def manifest(self) -> Mapping[str, Any]:
        """The manifest of its run; empty where it is missing."""
        return self.run.manifest

    @property
    def results(self) -> list[A]:
        """Its audits, in order."""
        return list(self.audits.values())

    def audit(self, kind: AuditKind | None = None) -> A | None:
        """The audit of a kind, by default the first one; None where it is missing."""
        return self.audits.get(kind) if kind else next(iter(self.audits.values()), None)

    def score(self, measure: str, kind: AuditKind | None = None, row: str = "") -> Estimate | None:
        """The accuracy, a number of the leak, or a measure of the strongest attack or of the named row."""
        if measure in LEAKS:
            return self.leak(measure, kind)
        audit = self.audit(kind)
        if audit is None and measure == ACCURACY:
            wanted = ("test", "validation") if kind is None else (kind.evaluation or "test",)
            return next((self.alone[images] for images in wanted if images in self.alone), None)
        return audit.score(measure, row) if audit else None

    def leak(self, measure: str, kind: AuditKind | None = None) -> Leak | None:
        """A number of the leak, of the audit of a kind, else of another one of the same model (`alike`)."""
        leaks = (leak_of(audit, measure) for audit in self.alike(kind))
        return next((leak for leak in leaks if leak is not None), None)

    def alike(self, kind: AuditKind | None = None) -> list[A]:
        """The audit of a kind, then those of the same weights under its adversary, on its images."""
        first = kind or next(iter(self.audits), None)
        if first is None or first not in self.audits:
            return []
        same = [other for other in self.audits if self._judged(other) == self._judged(first)]
        return [self.audits[other] for other in sorted(same, key=lambda other: other != first)]

    def _judged(self, kind: AuditKind) -> tuple[object, ...]:
        """The model, the adversary and the images of an audit; a file of results has its weights in the kind."""
        subject = getattr(self.audits[kind], "subject", None)
        model = None if subject is None else (subject.fingerprint, subject.weights)
        return model, kind.weights, kind.threat, kind.evaluation

    @property
    def training_seconds(self) -> float | None:
        """The time of its training; None where training is not finished."""
        seconds = self.manifest.get("training_seconds")
        return float(seconds) if isinstance(seconds, int | float) and seconds > 0 else None

    @property
    def label(self) -> str:
        """Its name on a page."""
        return self.run.label or self.id

    @property
    def config(self) -> RunConfig | None:
        """The configuration of its run; None where the run is missing or unreadable."""
        if self.run.config is not None or not self.manifest:
            return self.run.config
        try:
            return RunDirectory.open(self.path).config
        except AttncemError:
            return None

    @property
    def settings(self) -> RunConfig:
        """The configuration; RunError for audits without their run."""
        if self.run.config is None:
            raise RunError(f"{self.path} holds audits without their run: only runs can be compared")
        return self.run.config

    def records(self) -> list[dict[str, Any]]:
        """The lines of its metrics.jsonl; empty where it cannot be read."""
        try:
            return RunDirectory.open(self.path).records()
        except AttncemError:
            return []


@dataclass(frozen=True)
class Spread:
    """One number of an arm: over its seeds, and over the images (ends of the intervals, averaged over the seeds)."""

    seeds: SeedSummary
    image_low: float
    image_high: float

    def ends(self, over_seeds: tuple[float, float] | None) -> tuple[float, float]:
        """The ends of the interval that a figure draws: these over seeds, or those over images for a single seed."""
        return over_seeds or (self.image_low, self.image_high)


def spread_of(scores: Sequence[Estimate]) -> Spread | None:
    """One score for each seed as a spread; None without scores."""
    if not scores:
        return None
    low, high = plain.fmean(score.low for score in scores), plain.fmean(score.high for score in scores)
    return Spread(seed_summary([score.mean for score in scores]), low, high)


@dataclass(frozen=True)
class Arm(Generic[A]):
    """Cells that differ only by their seed: a method at one point of its grid. ``color`` is the method's index.

    ``others`` are candidates of the client alone that were not chosen; its cells are those that were.
    """

    name: str
    label: str
    color: int
    cells: Sequence[Cell[A]]
    point: Mapping[str, Any] = field(default_factory=dict)
    others: Sequence[Cell[A]] = ()

    @property
    def on_device(self) -> bool:
        """Whether it is the client alone."""
        return any(cell.on_device for cell in self.cells)

    @property
    def seeds(self) -> list[int]:
        """The seeds of its cells."""
        return [cell.seed for cell in self.cells]

    @property
    def collapsed(self) -> list[int]:
        """Seeds that ended near chance: they count in every mean, but are not points of a curve."""
        return [cell.seed for cell in self.cells if cell.collapsed]

    def audits(self, kind: AuditKind | None = None) -> list[A]:
        """The audits of all seeds that have one."""
        return [audit for cell in self.cells if (audit := cell.audit(kind)) is not None]

    def attacked(self, kind: AuditKind | None = None) -> list[A]:
        """The audits in which an attack has a result."""
        return [audit for audit in self.audits(kind) if audit.strongest]

    def scores(self, measure: str, kind: AuditKind | None = None, row: str = "") -> list[Estimate]:
        """A measure for every seed that has it."""
        return [score for cell in self.cells if (score := cell.score(measure, kind, row)) is not None]

    def values(self, measure: str, kind: AuditKind | None = None, row: str = "") -> list[float]:
        """The same scores as numbers."""
        return [score.mean for score in self.scores(measure, kind, row)]

    def leaks(self, measure: str, kind: AuditKind | None = None) -> list[Leak]:
        """A number of the leak for every seed that has it."""
        return [leak for cell in self.cells if (leak := cell.leak(measure, kind)) is not None]

    def summary(self, measure: str, kind: AuditKind | None = None) -> Spread | None:
        """A measure over seeds and over images; None where no seed has it."""
        return spread_of(self.scores(measure, kind))

    def mean(self, measure: str, kind: AuditKind | None = None) -> float:
        """The mean of a measure over the seeds."""
        return plain.fmean(self.values(measure, kind))

    @property
    def accuracy(self) -> float:
        """The mean over the seeds, in the first audit."""
        return self.mean(ACCURACY)

    def measures(self, kind: AuditKind | None = None) -> list[str]:
        """The strongest attack's measures that every seed has, in their usual order."""
        return [name for name in METRICS if len(self.values(name, kind)) == len(self.cells)]

    def unreliable(self, kind: AuditKind | None = None) -> int:
        """The number of seeds whose audit is not reliable, or not enough to tell."""
        return sum(audit.state != "reliable" for audit in self.attacked(kind))

    def first(self, kind: AuditKind | None = None) -> Cell[A] | None:
        """The first seed with a result of an attack."""
        return next((cell for cell in self.cells if (audit := cell.audit(kind)) and audit.strongest), None)

    def agrees(self, other: Arm[A]) -> bool:
        """Whether both are at the same point in the keys that both have."""
        shared = self.point.keys() & other.point.keys()
        return all(repr(self.point[key]) == repr(other.point[key]) for key in shared)

    def is_comparable(self, other: Arm[A], measure: str, kind: AuditKind | None = None) -> bool:
        """Whether a difference means anything: no vacuous bound, no evidence at its ceiling, equal counts."""
        leaks = [*self.leaks(measure, kind), *other.leaks(measure, kind)] if measure in LEAKS else []
        return have_equal_scale(leaks, measure) and not any(leak.vacuous or leak.at_ceiling for leak in leaks)


@dataclass(frozen=True)
class Effect:
    """One method at one value of an option: a measure over seeds, with other options averaged within each seed."""

    value: object
    summary: SeedSummary


@dataclass(frozen=True)
class Study(Generic[A]):
    """Arms side by side. ``problems`` are sentences about files that could not be read."""

    arms: Sequence[Arm[A]]
    problems: Sequence[str] = ()

    @cached_property
    def cells(self) -> list[Cell[A]]:
        """All cells, arm by arm."""
        return [cell for arm in self.arms for cell in (*arm.cells, *arm.others)]

    @cached_property
    def names(self) -> list[str]:
        """The methods in order, each once."""
        return list(dict.fromkeys(arm.name for arm in self.arms))

    @cached_property
    def kinds(self) -> list[AuditKind]:
        """The kinds of audits; the first one leads."""
        return list(dict.fromkeys(kind for cell in self.cells for kind in cell.audits))

    @cached_property
    def options(self) -> list[str]:
        """Keys of the points that take more than one value."""
        seen: dict[str, set[str]] = {}
        for arm in self.arms:
            for key, value in arm.point.items():
                seen.setdefault(key, set()).add(repr(value))
        return [key for key, values in seen.items() if len(values) > 1]

    def pairs(self, kind: AuditKind) -> Iterator[tuple[Arm[A], Cell[A], A]]:
        """Every cell with an audit of this kind."""
        for arm in self.arms:
            for cell in arm.cells:
                if kind in cell.audits:
                    yield arm, cell, cell.audits[kind]

    def counterpart(self, arm: Arm[A], reference: str) -> Arm[A] | None:
        """The reference method at the arm's point: the first of its arms that agrees in every key both have."""
        return next((other for other in self.arms if other.name == reference and arm.agrees(other)), None)

    def against(self, reference: str, kind: AuditKind, measures: Sequence[str]) -> dict[tuple[str, str], Comparison]:
        """Every arm against the reference method at the same point, by label and measure.

        False discoveries are controlled over all of these tests. Numbers of the leak that cannot be compared have none.
        """
        tests = []
        for arm in self.arms:
            other = self.counterpart(arm, reference)
            if other is None or arm.name == reference:
                continue
            for measure in measures:
                values, others = arm.values(measure, kind), other.values(measure, kind)
                if values and others and arm.is_comparable(other, measure, kind):
                    tests.append(compare_arms(values, others, a=arm.label, b=other.label, measure=measure))
        return {(test.a, test.measure): test for test in adjust(tests)}

    def leaks(self, kind: AuditKind | None = None) -> list[str]:
        """The numbers of the leak that any cell has, in their usual order."""
        return [name for name in LEAKS if any(arm.leaks(name, kind) for arm in self.arms)]

    def front(self, measure: str, kind: AuditKind | None = None) -> dict[str, FrontPoint]:
        """The standing of each arm between accuracy and this error, by label; seeds that have both count."""
        sign = 1.0 if private_of(measure) == "higher" else -1.0
        points = {}
        for arm in self.arms:
            both = [(cell.score(ACCURACY, kind), cell.score(measure, kind)) for cell in arm.cells]
            pairs = [(one.mean, sign * other.mean) for one, other in both if one is not None and other is not None]
            if pairs:
                points[arm.label] = pairs
        return {point.name: point for point in pareto(points)}

    def effects(self, option: str, name: str, measure: str, kind: AuditKind) -> list[Effect]:
        """How a measure of a method changes with an option.

        Points of the other options count only where a seed has them at every value.
        """
        table: dict[tuple[int, str], dict[str, float]] = {}
        values: dict[str, object] = {}
        for arm in (arm for arm in self.arms if arm.name == name and option in arm.point):
            values[repr(arm.point[option])] = arm.point[option]
            rest = repr({key: value for key, value in arm.point.items() if key != option})
            for cell in arm.cells:
                if score := cell.score(measure, kind):
                    table.setdefault((cell.seed, rest), {})[repr(arm.point[option])] = score.mean
        present = {value for row in table.values() for value in row}
        whole = {place: row for place, row in table.items() if row.keys() == present}
        effects = []
        for value in (value for value in values if value in present):
            by_seed: dict[int, list[float]] = {}
            for (seed, _), row in whole.items():
                by_seed.setdefault(seed, []).append(row[value])
            if by_seed:
                means = [plain.fmean(numbers) for numbers in by_seed.values()]
                effects.append(Effect(values[value], seed_summary(means)))
        return effects

    def heat(self, options: tuple[str, str], name: str, measure: str, kind: AuditKind) -> dict[tuple[str, str], float]:
        """The mean of a measure at every pair of values of two options, over all others; keys are the values' repr."""
        numbers: dict[tuple[str, str], list[float]] = {}
        for arm in (arm for arm in self.arms if arm.name == name and set(options) <= arm.point.keys()):
            place = repr(arm.point[options[0]]), repr(arm.point[options[1]])
            numbers.setdefault(place, []).extend(arm.values(measure, kind))
        return {place: plain.fmean(values) for place, values in numbers.items() if values}
