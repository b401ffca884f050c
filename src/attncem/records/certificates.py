"""Checks of certificates against each other and against attacks: contradicted bounds, and models without a bound."""

from __future__ import annotations

import math
from collections.abc import Iterator

from attncem.records.audit import AuditResult, Row
from attncem.records.bounds import Bound
from attncem.records.findings import Finding, finding


def certificate_findings(result: AuditResult) -> Iterator[Finding]:
    """Findings on contradicted claims, and on a model whose leakage no certificate bounds."""
    yield from _violations(result)
    rows = [row for row in result.rows if row.kind == "certificate"]
    reasons = [row.why for row in rows if row.method == "leakage" and row.outcome == "not_applicable"]
    if reasons and not any(_bounds_leakage(bound) for row in rows for bound in row.bounds.values()):
        yield finding("no_certificate", reason=reasons[0])


def _bounds_leakage(bound: Bound) -> bool:
    return (bound.about, bound.direction, bound.kind) == ("leakage", "at_most", "bound")


def _violations(result: AuditResult) -> Iterator[Finding]:
    """A finding for each row whose claim rows with the same releases and jitter contradict beyond an interval."""
    for row in (row for row in result.rows if row.ok and row.kind == "certificate"):
        for name, bound in row.bounds.items():
            found = _by_error(result, row, bound) or _by_rank(result, row, name, bound)
            found = found or _by_evidence(result, row, bound)
            if found is not None:
                other, seen = found
                values = {"bound": name, "claim": bound.claim, "other": other, "seen": seen}
                yield finding("bound_violated", row.name, **values)


def _by_error(result: AuditResult, row: Row, bound: Bound) -> tuple[str, float] | None:
    """The strongest attack, if its error is below the bound; bounds on unbiased attackers do not apply to it."""
    strongest = result.by_releases.get(row.sight)
    if strongest is None or (bound.about, bound.direction) != ("mse", "at_least") or "unbiased" in bound.assumptions:
        return None
    return (strongest.name, strongest.mse.high) if strongest.mse.high < bound.claim else None


def _by_rank(result: AuditResult, row: Row, name: str, bound: Bound) -> tuple[str, float] | None:
    """A probe that identified the right one of the same number of candidates more often than the bound allows."""
    for other in result.rows:
        score, chance = other.scores.get("rank_1"), other.chance.get("rank_1")
        if bound.about != "rank_1" or score is None or not chance or other.sight != row.sight:
            continue
        if name == f"rank_1@{round(1 / chance)}" and score.low > bound.claim:
            return other.name, score.low
    return None


def _by_evidence(result: AuditResult, row: Row, bound: Bound) -> tuple[str, float] | None:
    """Proven evidence of more leakage than the bound allows; for one beyond the label, less all that a label tells."""
    beyond = (bound.about, bound.direction, bound.kind) == ("beyond_label", "at_most", "bound")
    if not (_bounds_leakage(bound) or beyond):
        return None
    free = math.log(max(1, result.subject.num_classes)) if beyond else 0.0  # the label tells at most this
    seen = [other for other in result.rows if other.sight == row.sight]
    proofs = [(other.name, proof) for other in seen for proof in other.bounds.values()]
    for name, proof in proofs:
        proven = (proof.about, proof.direction, proof.kind) == ("leakage", "at_least", "bound")
        if proven and proof.claim - free > bound.claim:
            return name, proof.claim - free
    return None
