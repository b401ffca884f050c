"""Checks of a report's validity: each is pure and returns its findings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attncem.base.texts import text
from attncem.records import joining
from attncem.records.audit import AuditResult
from attncem.records.findings import Finding, finding, unique
from attncem.records.study.runs import JudgedRun
from attncem.records.study.suites import joined_suites
from attncem.reporting.runs.methods import Entry, name_audits
from attncem.training.health import spans

COLLAPSED = joining.FAR_BELOW
"""An accuracy below this share of the best run's counts as collapsed."""


def run_warnings(run: JudgedRun, best_accuracy: float | None = None) -> list[str]:
    """Everything a reader must know before trusting the numbers of one run, and the audits that are left out."""
    return [*(item.text for item in run_findings(run, best_accuracy)), *run.run.left_out]


def run_findings(run: JudgedRun, best_accuracy: float | None = None) -> list[Finding]:
    """The findings about a run: its status, its training, its audits; without repeats."""
    training = [span.finding for span in spans(run.run.metrics)]
    told = {(item.code, item.about) for item in training}
    audits = joined_suites(run.results)
    lists = [[*audit.findings, *accuracy_findings(audit, best_accuracy)] for audit in audits]
    audited = _merged([[item for item in own if (item.code, item.about) not in told] for own in lists], audits)
    status = [] if any(item.code == "not_finished" for item in audited) else status_findings(run.manifest)
    return [*status, *training, *audited]


def _merged(lists: Sequence[Sequence[Finding]], audits: Sequence[AuditResult]) -> list[Finding]:
    """The findings of all audits; a finding that is not in all of them names its audit."""
    shared = [item for item in (lists[0] if lists else []) if all(item in others for others in lists)]
    found = list(shared)
    for name, own in zip(name_audits(audits)[0], lists, strict=True):
        found += [item.moved(_joined(name, item)) for item in own if item not in shared]
    return unique(found)


def _joined(name: str, item: Finding) -> str:
    return text("said.about", about=name, said=item.topic) if item.about else name


def status_findings(manifest: Mapping[str, Any]) -> list[Finding]:
    """A finding if the training did not finish."""
    status = manifest.get("status", "finished")
    return [] if status == "finished" else [finding("run_status", status=status)]


def is_near_chance(audit: AuditResult) -> bool:
    """Whether the model hardly beats guessing; False if its accuracy is unknown."""
    return audit.accuracy is not None and joining.is_near_chance(audit.accuracy, audit.subject.num_classes)


def is_collapsed(audit: AuditResult, best_accuracy: float | None) -> bool:
    """Whether the accuracy is far below the undefended model's, if it is known, or the best run's."""
    if audit.accuracy is None:
        return False
    beaten = best_accuracy is not None and audit.accuracy.mean < COLLAPSED * best_accuracy
    return beaten or joining.is_far_below(audit.accuracy, audit.subject)


def is_useless(audit: AuditResult, best_accuracy: float | None) -> bool:
    """Whether the model lost its utility; its attack error is then no evidence of privacy."""
    return is_near_chance(audit) or is_collapsed(audit, best_accuracy)


def reference_findings(entries: Sequence[Entry]) -> list[Finding]:
    """Findings where no undefended accuracy is known for comparison: neither measured by us nor among these runs."""
    shown = {_setting(entry) for entry in entries if entry.defence == "none"}
    asked = dict.fromkeys(_setting(entry) for entry in entries if entry.audit.accuracy is not None)
    return [item for setting in asked if setting not in shown for item in _without_reference(*setting)]


def _setting(entry: Entry) -> tuple[str, str, int]:
    subject = entry.audit.subject
    return subject.dataset, subject.architecture, subject.images_per_class


def _without_reference(dataset: str, architecture: str, images_per_class: int) -> list[Finding]:
    known = None if images_per_class else joining.UNDEFENDED.get(dataset)
    if known is None:
        return [finding("no_reference", dataset=dataset, network=architecture)]
    if known.architecture == architecture:
        return []
    return [finding("other_reference", dataset=dataset, network=architecture, known=known.architecture)]


def accuracy_findings(audit: AuditResult, best_accuracy: float | None = None) -> list[Finding]:
    """A finding if the model lost its utility and so cannot count as private; not repeated if the audit has it."""
    if audit.accuracy is None or best_accuracy is None or is_near_chance(audit):
        return []
    told = any(item.code == "far_below_undefended" for item in audit.findings)
    if told or audit.accuracy.mean >= COLLAPSED * best_accuracy:
        return []
    return [finding("accuracy_collapsed", accuracy=100 * audit.accuracy.mean, best=100 * best_accuracy)]


def comparison_findings(audits: Sequence[AuditResult]) -> list[Finding]:
    """Differences between audits that forbid comparing their rows."""
    plans = [audit.plan for audit in audits]
    aspects: dict[str, set[object]] = {
        "dataset": {plan.subject.dataset for plan in plans},
        "data": {(plan.subject.dataset, plan.subject.data_sha256) for plan in plans},
        "suite": {frozenset((it.suite, it.suite_version) for it in audit.plans) for audit in audits},
        "changed": {tuple(plan.changed) for plan in plans},
        "threat": {repr(plan.threat) for plan in plans},
    }
    different = [text(f"report.aspect.{name}") for name, values in aspects.items() if len(values) > 1]
    found = [finding("rows_differ", aspects=", ".join(different))] if different else []
    if len({plan.device for plan in plans}) > 1:
        found.append(finding("devices_differ"))
    return [*found, *_sent_findings(audits)]


def _sent_findings(audits: Sequence[AuditResult]) -> list[Finding]:
    """A finding where models are judged on other images, because a client sends only some."""
    images = {audit.subject.fingerprint if audit.plan.selective else "" for audit in audits}
    return [finding("sent_differ", runs=sent_runs(audits))] if len(images) > 1 else []


def sent_runs(audits: Iterable[AuditResult]) -> str:
    """The runs that send only some images, each once, with their shares."""
    some = [(audit.subject.run, facts.share) for audit in audits if (facts := audit.plan.selective) is not None]
    return ", ".join(dict.fromkeys(f"{run} ({100 * share:.1f} %)" for run, share in some))


def best_accuracy(audits: Iterable[AuditResult]) -> dict[str, float]:
    """Highest accuracy per data set."""
    best: dict[str, float] = {}
    for audit in audits:
        if audit.accuracy is not None:
            best[audit.subject.dataset] = max(best.get(audit.subject.dataset, 0.0), audit.accuracy.mean)
    return best
