"""One run, one result: audits of one run with the same `AuditKey` are joined, whatever their suites."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from attncem.base.types import RunError
from attncem.records.audit import AuditPart, AuditPlan, AuditResult, Row
from attncem.records.averaging import Averaging
from attncem.records.findings import Finding, finding, unique
from attncem.records.image_scores import ImageScores
from attncem.records.joining import join
from attncem.records.ledger import Ledger, ledgers
from attncem.records.rivals import Rival
from attncem.records.shared_scores import shared_errors
from attncem.records.study.keys import AuditKey, newest

Names = Mapping[str, str]
"""Names of rows in the join by their names in one audit."""


def joined_suites(audits: Iterable[AuditResult]) -> list[AuditResult]:
    """The audits with those of the same key joined, in the order of their first."""
    groups: dict[tuple[str, AuditKey], list[AuditResult]] = {}
    for audit in audits:
        groups.setdefault((audit.subject.run, AuditKey.of(audit.plan)), []).append(audit)
    return [join_suites(group) for group in groups.values()]


def with_other_suites(audit: AuditResult) -> AuditResult:
    """An audit joined with those of the same key in the same folder of audits; alone where one cannot be read."""
    key, place = AuditKey.of(audit.plan), Path(audit.folder)
    try:
        alike = [ledger for ledger in ledgers(place.parent) if AuditKey.of(ledger.plan) == key]
        others = [
            it for it in newest(alike, lambda ledger: ledger.plan).values() if _suite(it.plan) != _suite(audit.plan)
        ]
        return join_suites([audit, *(ledger.result() for ledger in others)])
    except RunError:
        return audit


def _suite(plan: AuditPlan) -> tuple[str, tuple[str, ...]]:
    return plan.suite, tuple(plan.changed)


def join_suites(audits: Sequence[AuditResult]) -> AuditResult:
    """Audits of one model under one threat model, on the same images with the same seed, as one.

    Of rows with the same name and options one stays: one with a result, then the newest. Of rows with the same name and
    other options both stay; the name of the later one then includes the options that differ. The strongest attack is
    that of all rows. The suite with the most attacks comes first.
    """
    if len(audits) == 1:
        return audits[0]
    ordered = sorted(audits, key=lambda audit: (-_num_attacks(audit), audit.plan.suite, audit.plan.changed))
    rows: dict[str, Row] = {}
    sources: dict[str, AuditResult] = {}
    names = [_add(audit, rows, sources) for audit in ordered]
    parts = [
        AuditPart(
            audit.plan,
            audit.folder,
            {new: old for old, new in renamed.items() if sources.get(new, audit) is audit},
        )
        for audit, renamed in zip(ordered, names, strict=True)
    ]
    plan = _plan([audit.plan for audit in ordered], names)
    shared = shared_errors(list(rows.values()), lambda name: _scores(name, parts))
    errors = shared.errors or {name: row.mse.mean for name, row in rows.items() if "mse" in row.scores}
    gains = [it for audit, renamed in zip(ordered, names, strict=True) for it in _gains(audit, renamed)]
    rivals = [it for audit, renamed in zip(ordered, names, strict=True) for it in _rivals(audit, renamed)]
    result = join(plan, list(rows.values()), errors, ordered[0].folder, _once(gains), rivals)
    lacking = [finding("images_missing", rows=", ".join(shared.missing))] if shared.missing else []
    replaced = [it for audit, part in zip(ordered, parts, strict=True) for it in _replaced(audit, part)]
    return replace(result, findings=unique([*result.findings, *replaced, *lacking]), parts=parts)


def _replaced(audit: AuditResult, part: AuditPart) -> list[Finding]:
    """Findings on damaged rows that another suite replaces: they are still named."""
    rows = [row for row in audit.rows if row.outcome == "damaged" and row.name not in part.rows.values()]
    return [finding("row_damaged", f"{audit.plan.suite}: {row.name}", reason=row.why) for row in rows]


def _num_attacks(audit: AuditResult) -> int:
    return sum(row.kind == "attack" for row in audit.rows)


# rows


def _add(audit: AuditResult, rows: dict[str, Row], sources: dict[str, AuditResult]) -> Names:
    """Add the rows of an audit to those of the audits before; the names that its rows get."""
    names = {}
    for row in audit.rows:
        names[row.name] = name = _name(row, rows, audit.plan.suite)
        if name not in rows or _counts_more(row, audit, rows[name], sources[name]):
            rows[name], sources[name] = row, audit
    waiting = [name for name in audit.plan.rows if name not in names]
    for row in audit.rows:
        if sources[names[row.name]] is audit:
            rows[names[row.name]] = _renamed(row, names)
    return {**names, **{name: name for name in waiting}}


def _name(row: Row, rows: Mapping[str, Row], suite: str) -> str:
    """The name of a row in the join: its name, or a longer one where rows with other options have that name."""
    if row.name not in rows or _asks(row) == _asks(rows[row.name]):
        return row.name
    other = rows[row.name].options
    differing = [f"{key}={value}" for key, value in row.options.items() if other.get(key) != value]
    name = f"{row.name} ({', '.join(differing) or suite})"
    return name if name not in rows or _asks(row) == _asks(rows[name]) else f"{name} ({suite})"


def _asks(row: Row) -> tuple[str, str, tuple[int, int]]:
    """What a row measures: equal for rows that repeat each other."""
    return row.method, repr(sorted(row.options.items())), row.sight


def _counts_more(row: Row, audit: AuditResult, other: Row, source: AuditResult) -> bool:
    """Whether a row replaces another one with the same name and options."""
    return (row.ok, audit.plan.made) > (other.ok, source.plan.made)


def _renamed(row: Row, names: Names) -> Row:
    """The row with its name in the join, also in its findings and in what its numbers were obtained by."""
    findings = [replace(it, about=names.get(it.about, it.about)) for it in row.findings]
    bounds = {name: replace(bound, by=names.get(bound.by, bound.by)) for name, bound in row.bounds.items()}
    return replace(row, name=names[row.name], findings=findings, bounds=bounds, by=names.get(row.by, row.by))


# the plan and what compares rows image by image


def _plan(plans: Sequence[AuditPlan], names: Sequence[Names]) -> AuditPlan:
    """The plan of the join: ``suite`` names all suites, those before the last with their versions."""
    *others, last = dict.fromkeys((plan.suite, plan.suite_version) for plan in plans)
    suites = [*(f"{suite} v{version}" for suite, version in others), last[0]]
    return replace(
        plans[0],
        id=" + ".join(plan.id for plan in plans),
        suite=" + ".join(suites),
        suite_version=last[1],
        changed=list(dict.fromkeys(change for plan in plans for change in plan.changed)),
        rows=list(dict.fromkeys(name for renamed in names for name in renamed.values())),
        accuracy=next((plan.accuracy for plan in plans if plan.accuracy), None),
        findings=unique(item for plan in plans for item in plan.findings),
        made=max(plan.made for plan in plans),
        reference=next((plan.reference for plan in plans if plan.reference), ""),
        units=next((plan.units for plan in plans if plan.units), None),
    )


def _scores(name: str, parts: Sequence[AuditPart]) -> ImageScores | None:
    """The per-image scores of a row of the join, from its audit's folder."""
    part = next(part for part in parts if name in part.rows)
    return Ledger(Path(part.folder), part.plan).errors(part.rows[name]) if part.folder else None


def _gains(audit: AuditResult, names: Names) -> list[Averaging]:
    return [replace(item, row=names[item.row], base=names[item.base]) for item in audit.averaging]


def _rivals(audit: AuditResult, names: Names) -> list[Rival]:
    return [replace(item, row=names[item.row], other=names[item.other]) for item in audit.rivals]


def _once(gains: Iterable[Averaging]) -> list[Averaging]:
    """The first gain of each row over each base."""
    return list({(item.row, item.base): item for item in reversed(list(gains))}.values())[::-1]
