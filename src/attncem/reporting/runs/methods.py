"""The report's models: runs that differ only in the seed form one method, with one row, one colour and mean ± sd.

The suites of a run that audited the same question are joined into one row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass

from attncem.base.texts import text
from attncem.base.texts.titles import threat_title
from attncem.records.audit import AuditResult
from attncem.records.score import Score
from attncem.records.study import Arm, AuditKind
from attncem.records.study.grouping import methods_of
from attncem.records.study.runs import JudgedRun
from attncem.records.study.suites import joined_suites


@dataclass(frozen=True)
class Entry:
    """One audit and its run; ``color`` is the palette index of the run or its method.

    ``label`` is unique among all audits, ``name`` among those of the same suite and threat model.
    """

    run: JudgedRun
    audit: AuditResult
    label: str
    color: int
    name: str = ""

    @property
    def defence(self) -> str:
        """The defence of its run, in a few words."""
        return defence_of(self.run)


def defence_of(run: JudgedRun) -> str:
    """The defence of a run, in a few words, from its configuration, or else from its audits."""
    if run.on_device:
        return text("on_device.defence")
    return run.results[0].subject.surrogate if run.config is None else run.config.defence


@dataclass(frozen=True)
class Method:
    """An arm under one kind of audit; usually a single run with its audit.

    ``entries`` are the audits in the order of the runs; empty without audits. ``label`` is unique among all methods,
    ``name`` among those of the same suite and threat model; ``color`` is the palette index.
    """

    label: str
    name: str
    color: int
    runs: Sequence[JudgedRun]
    entries: Sequence[Entry]

    @property
    def several(self) -> bool:
        """Whether it has more than one seed."""
        return len(self.runs) > 1

    @property
    def audits(self) -> list[AuditResult]:
        """Its audits."""
        return [entry.audit for entry in self.entries]

    @property
    def on_device(self) -> bool:
        """Whether it is the client alone, which releases nothing."""
        return any(run.on_device for run in self.runs)

    def scores(self, measure: str) -> list[Score]:
        """The accuracy, or a measure of the strongest attack, of each seed that has it."""
        if self.on_device:
            return [score for run in self.runs if isinstance(score := run.score(measure), Score)]
        return [score for entry in self.entries if (score := entry.audit.score(measure)) is not None]


def methods(runs: Sequence[JudgedRun]) -> list[Method]:
    """The runs as methods, in their order; a method has one row per adversary and seed of the attacks.

    Suites that not all audited seeds have are rows of their own: seeds are compared on the same attacks.
    """
    return [method for arm in methods_of(runs) for method in _of_arm(arm)]


def _of_arm(arm: Arm[AuditResult]) -> list[Method]:
    kinds = [frozenset(run.audits) for run in arm.cells if run.audits]
    if not kinds:
        return [Method(arm.label, arm.label, arm.color, arm.cells, [])]
    common = frozenset.intersection(*kinds)
    groups: dict[object, list[Entry]] = {}
    for run in arm.cells:
        seen: Counter[object] = Counter()
        for entry in entries_of(run, arm.color, common):
            suites = frozenset(AuditKind.of(plan) for plan in entry.audit.plans)
            seen[suites] += 1
            groups.setdefault((suites, seen[suites]), []).append(entry)
    return [_method(arm, group) for group in groups.values()]


def _method(arm: Arm[AuditResult], group: Sequence[Entry]) -> Method:
    first = group[0]
    label, name = (arm.label + words.removeprefix(first.run.label) for words in (first.label, first.name))
    return Method(label, name, arm.color, arm.cells, group)


def entries_of(run: JudgedRun, color: int, common: Set[AuditKind] | None = None) -> list[Entry]:
    """All audits of a run, in order, each with a unique label; those of the ``common`` kinds (default: all) joined."""
    shared = [audit for kind, audit in run.audits.items() if common is None or kind in common]
    alone = [audit for kind, audit in run.audits.items() if common is not None and kind not in common]
    audits = [*joined_suites(shared), *alone]
    entries = []
    for audit, longer, shorter in zip(audits, *name_audits(audits), strict=True):
        label, name = (f"{run.label} · {words}" if words else run.label for words in (longer, shorter))
        entries.append(Entry(run, audit, label, color, name))
    return entries


def name_audits(audits: Sequence[AuditResult]) -> tuple[list[str], list[str]]:
    """Names that distinguish the audits, with suite and threat model and without; empty for a single audit."""
    plans = [audit.plan for audit in audits]
    seeds = len({plan.seed for plan in plans}) > 1
    changes = len({tuple(plan.changed) for plan in plans}) > 1
    marks = [
        [*([text("report.seed", seed=plan.seed)] if seeds else []), *(plan.changed if changes else [])]
        for plan in plans
    ]
    if len(plans) == 1:
        return [""], [""]
    audited = zip(plans, marks, strict=True)
    longer = [" · ".join([plan.suite, threat_title(plan.threat.name), *mark]) for plan, mark in audited]
    return longer, [" · ".join(mark) for mark in marks]
