"""Checks that keep a report honest: each is pure and returns the warnings it found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attncem.health import NEAR_CHANCE, spans
from attncem.reporting.load import Record, Run
from attncem.types import AuditResult

COLLAPSED = 0.6
"""Accuracy below this part of the best run's says that it was given up."""


def run_warnings(run: Run, best_accuracy: float | None = None) -> list[str]:
    """Everything a reader must know before trusting the numbers of one run."""
    found = status_warnings(run.manifest) + [str(span) for span in spans(run.metrics)]
    for audit in run.audits:
        found += accuracy_warnings(audit, best_accuracy) + attack_warnings(audit)
        found += [text for text in audit.warnings if not _is_said(text, audit, found)]
    return list(dict.fromkeys(found))


def _is_said(text: str, audit: AuditResult, found: Sequence[str]) -> bool:
    """Whether a warning of the audit repeats one of the checks here in other words."""
    unreliable = [row.name for row in audit.attacks if not row.reliable]
    if any(text.startswith(f"{name}: not converged") for name in unreliable):
        return True
    pairs = (("near chance", "near chance"), ("loses to ridge", "no decoder beats ridge"))
    return any(theirs in text and any(ours in own for own in found) for theirs, ours in pairs)


def status_warnings(manifest: Record) -> list[str]:
    """Say so when the training did not finish."""
    status = manifest.get("status", "finished")
    return [] if status == "finished" else [f"training is not finished (status: {status})"]


def is_near_chance(audit: AuditResult) -> bool:
    """Whether the model hardly beats guessing."""
    return audit.accuracy.mean < NEAR_CHANCE / audit.num_classes


def is_collapsed(audit: AuditResult, best_accuracy: float | None) -> bool:
    """Whether the accuracy fell far below the best run's."""
    return best_accuracy is not None and audit.accuracy.mean < COLLAPSED * best_accuracy


def accuracy_warnings(audit: AuditResult, best_accuracy: float | None = None) -> list[str]:
    """Refuse to call a model private that has lost its use."""
    accuracy = f"{100 * audit.accuracy.mean:.1f} %"
    if is_near_chance(audit):
        chance = f"{100 / audit.num_classes:.1f} %"
        return [f"accuracy {accuracy} is near chance ({chance}): its privacy numbers mean nothing"]
    if is_collapsed(audit, best_accuracy):
        best = f"{100 * (best_accuracy or 0):.1f} %"
        return [f"accuracy collapsed to {accuracy} (best run: {best}): its privacy numbers mean little"]
    return []


def attack_warnings(audit: AuditResult) -> list[str]:
    """Attacks that had not converged, and decoders that lose to linear inversion."""
    found = [_unreliable(row.name, row.gain_of_doubling) for row in audit.attacks if not row.reliable]
    ridge = [row.mse.mean for row in audit.attacks if row.method == "ridge"]
    decoders = [row.mse.mean for row in audit.attacks if row.method == "decoder"]
    if ridge and decoders and min(decoders) > min(ridge):
        found.append("no decoder beats ridge inversion: the decoders are too weak or trained too briefly")
    return found


def _unreliable(name: str, gain: float | None) -> str:
    why = "" if gain is None else f" (doubling its budget still lowered the error by {100 * gain:.1f} %)"
    return f"attack “{name}” is not reliable{why}: the true leakage is probably larger than shown"


def comparison_warnings(audits: Sequence[AuditResult]) -> list[str]:
    """Differences between audits that forbid comparing their rows."""
    aspects: dict[str, set[object]] = {
        "data sets": {audit.dataset for audit in audits},
        "evaluation data": {(audit.dataset, audit.data_sha256) for audit in audits},
        "suites": {(audit.suite, audit.suite_version) for audit in audits},
        "threat models": {audit.threat for audit in audits},
    }
    different = [name for name, values in aspects.items() if len(values) > 1]
    found = [f"the rows differ in their {', '.join(different)}: compare only like with like"] if different else []
    if len({audit.device for audit in audits}) > 1:
        found.append("the runs were measured on different devices: their times are not comparable")
    return found


def best_accuracy(audits: Iterable[AuditResult]) -> dict[str, float]:
    """Highest accuracy per data set."""
    best: dict[str, float] = {}
    for audit in audits:
        best[audit.dataset] = max(best.get(audit.dataset, 0.0), audit.accuracy.mean)
    return best
