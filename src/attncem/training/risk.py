"""Risk of each class from an earlier audit, for a surrogate that protects some classes."""

from __future__ import annotations

import math
from pathlib import Path

from attncem.base.types import ConfigError, RunError
from attncem.records.audit import AuditResult
from attncem.records.ledger import ledgers, read_audit


def read_risk_audit(source: str | Path) -> AuditResult:
    """The audit in a folder, or the only one of a run folder; ConfigError names the problem."""
    path = Path(source)
    try:
        audit = read_audit(_only_audit(path) if (path / "config.yaml").is_file() else path)
    except RunError as error:
        raise ConfigError(f"surrogate.risk_audit={source}: {error}") from error
    if not audit.strongest:
        raise ConfigError(f"surrogate.risk_audit={source}: no attack of this audit has a result")
    return audit


def _only_audit(run: Path) -> Path:
    folders = [ledger.path for ledger in ledgers(run / "audits")]
    if len(folders) == 1:
        return folders[0]
    number = f"it has {len(folders)}, name one: {', '.join(map(str, folders))}" if folders else "it has none"
    raise RunError(f"expected a run folder with one audit, {number}")


def class_risks(audit: AuditResult, num_classes: int, by: str) -> list[float]:
    """Minus the strongest attack's MSE for each class; −inf where no image of the class was attacked."""
    risk, subject = audit.risk, audit.subject
    assert risk is not None, "an audit without a result was refused"
    errors = risk.per_class if by == "mean" else risk.per_class_p05
    if by != "mean" and not any(error is not None for error in errors):
        raise ConfigError(
            f"surrogate.risk_by={by}: the audit of {subject.run} does not have this number: run attncem audit again"
        )
    if {subject.num_classes, len(errors)} != {num_classes}:
        raise ConfigError(
            f"surrogate.risk_audit: the audit of {subject.run} is about {subject.num_classes} classes of "
            f"{subject.dataset}, this model has {num_classes}"
        )
    return [-math.inf if error is None else -error for error in errors]
