"""The report's models: runs that differ in the seed alone are one method, with one row, one colour and mean ± sd."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from attncem.records.audit import AuditPlan, Score
from attncem.reporting.runs import grouping
from attncem.reporting.runs.grouping import Arm
from attncem.reporting.runs.load import Entry, RunView, entries


@dataclass(frozen=True)
class Method:
    """Runs that differ in the seed alone, under one kind of audit; most often a single run with its audit.

    ``entries`` are the audits in the order of the runs, none where there is none. ``label`` tells it from all others,
    ``name`` from those of the same suite and threat model; ``color`` is its place in the palette.
    """

    label: str
    name: str
    color: int
    runs: Sequence[RunView]
    entries: Sequence[Entry]

    @property
    def several(self) -> bool:
        """Whether it stands for more than one seed."""
        return len(self.runs) > 1

    @property
    def accuracies(self) -> list[Score]:
        """The accuracy of each seed that has one."""
        return [entry.audit.accuracy for entry in self.entries if entry.audit.accuracy is not None]

    def scores(self, measure: str) -> list[Score]:
        """A measure of the strongest attack of each seed that has one."""
        attacked = [entry.audit.strongest_attack for entry in self.entries if entry.audit.strongest]
        return [row.scores[measure] for row in attacked if measure in row.scores]


def methods(runs: Sequence[RunView]) -> list[Method]:
    """The runs as methods, in the order given; a method has a row for each kind of audit."""
    arms = grouping.methods(runs)
    colors = {run.label: color for color, arm in enumerate(arms) for run in arm.runs}
    audited = entries(runs, colors)
    return [method for color, arm in enumerate(arms) for method in _of_arm(arm, color, audited)]


def _of_arm(arm: Arm, color: int, audited: Sequence[Entry]) -> list[Method]:
    kinds: dict[tuple[object, ...], list[Entry]] = {}
    for run in arm.runs:
        seen: Counter[tuple[object, ...]] = Counter()
        for entry in (entry for entry in audited if entry.run is run):
            kind = _kind(entry.audit.plan)
            seen[kind] += 1  # audits of one kind by several seeds of the attacks are told apart by their order
            kinds.setdefault((*kind, seen[kind]), []).append(entry)
    if not kinds:
        return [Method(arm.name, arm.name, color, arm.runs, [])]
    return [_method(arm, color, own) for own in kinds.values()]


def _kind(plan: AuditPlan) -> tuple[object, ...]:
    """What audits of several seeds must share to be one row."""
    return plan.suite, plan.suite_version, repr(plan.threat), tuple(plan.changed)


def _method(arm: Arm, color: int, own: Sequence[Entry]) -> Method:
    first = own[0]
    label, name = (arm.name + words.removeprefix(first.run.label) for words in (first.label, first.name))
    return Method(label, name, color, arm.runs, own)
