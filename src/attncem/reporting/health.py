"""Checks that keep a report honest: each is pure and returns the warnings it found."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from attncem.reporting.load import Record, Run
from attncem.types import AuditResult

NEAR_CHANCE = 1.5
"""Accuracy below this many times chance says that nothing was learned."""
COLLAPSED = 0.6
"""Accuracy below this part of the best run's says that it was given up."""
GATES = ("gate_dimension", "gate_snr", "gate_class")


def run_warnings(run: Run, best_accuracy: float | None = None) -> list[str]:
    """Everything a reader must know before trusting the numbers of one run."""
    found = status_warnings(run.manifest) + surrogate_warnings(run.train)
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


def surrogate_warnings(train: Sequence[Record]) -> list[str]:
    """Signs in the training log that the penalty no longer measures anything; none where nothing was penalised."""
    weights = [record["penalty_weight"] for record in train if "penalty_weight" in record]
    if weights and not any(weights):
        return []
    return [*_collapse(train), *_silence(train), *_gates(train), *_lost_samples(train)]


def _collapse(train: Sequence[Record]) -> Iterable[str]:
    effective = last(train, "effective_samples")
    if effective is not None and effective < 0.1:
        yield f"surrogate collapsed: its weights rest on {100 * effective:.1f} % of the samples (effective_samples)"


def _silence(train: Sequence[Record]) -> Iterable[str]:
    """A penalty of zero while the classes are as spread as at the start."""
    loss, weight = last(train, "rob_loss"), last(train, "penalty_weight")
    spread = [value for value in (number(record.get("intra_mse")) for record in train) if value is not None]
    if loss is None or not weight or len(spread) < 2:
        return
    if abs(loss) < 1e-6 and spread[-1] >= 0.9 * spread[0]:
        yield "rob_loss is zero although intra_mse has not fallen: the surrogate no longer sees the spread"


def _gates(train: Sequence[Record]) -> Iterable[str]:
    saturation = last(train, "gate_saturation")
    if saturation is not None and saturation > 0.5:
        yield f"gates saturated: {100 * saturation:.0f} % of them are fully open or shut"
    for gate in GATES:
        mean = last(train, gate)
        if mean is not None and mean < 0.02:
            yield f"{gate} has closed (mean {mean:.3f}): the penalty hardly reaches the encoder"


def _lost_samples(train: Sequence[Record]) -> Iterable[str]:
    skipped = last(train, "skipped")
    if skipped is not None and skipped > 0.05:
        yield f"the surrogate skipped {100 * skipped:.0f} % of the samples (too few of their class in a batch)"
    if last(train, "shut_off") == 1:
        yield "the surrogate has shut itself off (shut_off = 1)"


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


def last(records: Sequence[Record], key: str) -> float | None:
    """The last finite value that was logged under a key."""
    return next((value for record in reversed(records) if (value := number(record.get(key))) is not None), None)


def number(value: Any) -> float | None:
    """A finite float, or None for anything else."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
