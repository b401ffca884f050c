"""Compare runs: differences of their configurations, their numbers, and tests of the differences.

Two runs are compared image by image, which shows which of these models is higher; several seeds on each side are
compared seed by seed, which shows it for the methods. Whatever cannot be compared gets a finding and no number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attncem.base.texts import text
from attncem.base.texts.titles import FROM_SENT, row_title
from attncem.base.types import RunError
from attncem.records.audit import AuditResult, Row
from attncem.records.comparison import Comparison
from attncem.records.findings import Finding, finding
from attncem.records.leaks import LEAKS
from attncem.records.ledger import Ledger
from attncem.records.metrics import ACCURACY, shown_in
from attncem.records.run_comparison import CommonAudit, ComparedRun, Group, Quantity, RunsComparison
from attncem.records.score import Score
from attncem.records.sending import kept_sending
from attncem.records.statistics import Estimate, adjust, compare_apart, compare_arms, compare_images, seed_summary
from attncem.records.study import AuditKind, grouping
from attncem.records.study.grouping import JudgedArm
from attncem.records.study.leaking import nats_disagree
from attncem.records.study.runs import SHORT, JudgedRun, load_runs
from attncem.reporting.client_costs import CLIENT, TIMED_ON
from attncem.reporting.comparison import clients, leaking
from attncem.reporting.runs import health

STRONGEST = tuple(sorted(shown_in("compared")))
"""Compared measures of the strongest attack; for other rows, only the first one is compared."""
_QUARTERS = (0.25, 0.5, 0.75, 1.0)
Views = Mapping[str, JudgedRun]
Audits = Mapping[str, AuditResult]
"""Audits by run label."""


def compare_runs(paths: Sequence[Path], by: Sequence[str] = ()) -> tuple[RunsComparison, list[JudgedRun]]:
    """The comparison, and the runs that were read."""
    runs = load_runs([path.resolve() for path in paths])
    _refuse_itself([run.path for run in runs])
    views = {run.label: run for run in runs}
    arms, findings = grouping.arms(runs, by)
    findings = [*_status(runs), *findings]
    same, said = _same_data(runs)
    released = [run for run in runs if not run.on_device]
    audits, common, unaudited = _common_audits(released) if same and released else ({}, None, [])
    shown, lacking = _quantities(audits) if audits else (_without_audit(views) if same else [], [])
    kind = leaking.kind_of(views, audits)
    shown += leaking.leak_quantities(views, kind)
    read = _reader(views, audits, kind)
    told, notes = _tests(arms, shown, read, audits, kind) if shown else ([], [])
    notes = [*notes, *(nats_disagree(arms, kind) if kind is not None else [])]
    unmeasured, command = leaking.unmeasured(views, kind)
    alone = clients.alone(arms, audits)
    found = RunsComparison(
        runs=[leaking.hedged(_run(run, arm.name, audits, shown, read), run, kind) for arm in arms for run in arm.cells],
        groups=[_group(arm, shown, read) for arm in arms],
        by=list(by),
        differences=grouping.differences(arms),
        audit=common,
        quantities=shown,
        comparisons=told,
        findings=[*findings, *said, *unaudited, *lacking, *notes, *(it for _, one in alone for it in one.findings)],
        unmeasured=unmeasured,
        measure_leak=command,
        alone=[text("said.about", about=name, said=one.sentence) for name, one in alone],
        sending=clients.sentences(arms, audits, kind),
    )
    return found, [views[run.label] for run in found.runs]


def _refuse_itself(places: Sequence[Path]) -> None:
    """RunError unless there are at least two runs, all different."""
    if twice := next((path for path in places if places.count(path) > 1), None):
        raise RunError(f"{twice} is given twice: a run cannot be compared with itself")
    if len(places) < 2:
        raise RunError("compare needs at least two run folders")


def _status(runs: Sequence[JudgedRun]) -> list[Finding]:
    """Findings on runs whose training did not finish."""
    open_runs = [(run.label, str(run.manifest.get("status"))) for run in runs]
    return [finding("run_status", label, status=status) for label, status in open_runs if status != "finished"]


def _same_data(runs: Sequence[JudgedRun]) -> tuple[bool, list[Finding]]:
    """Whether all runs have the same images in the same splits."""
    hashes = [str((run.manifest.get("split") or {}).get("sha256") or "") for run in runs]
    names = [run.settings.data.name for run in runs]
    if len(set(hashes)) == len(set(names)) == 1:
        return True, []
    told = "; ".join(
        f"{run.label}: {name} {mark[:8]}".strip() for run, name, mark in zip(runs, names, hashes, strict=True)
    )
    return False, [finding("compare_other_data", data=told)]


# audits


def _common_audits(runs: Sequence[JudgedRun]) -> tuple[Audits, CommonAudit | None, list[Finding]]:
    """The audits of one kind that every run has, by label: the kind with the most attacks; or why there is none."""
    bare = [finding("compare_unaudited", run.label, run=run.path.name) for run in runs if not run.results]
    if bare:
        return {}, None, bare
    kinds = [{(kind, it.subject.data_sha256): it for kind, it in run.audits.items()} for run in runs]
    shared = set.intersection(*(set(audits) for audits in kinds))
    if not shared:
        told = "; ".join(f"{run.label}: {', '.join(_named(a) for a in run.results)}" for run in runs)
        return {}, None, [finding("compare_no_common_audit", audits=told)]
    chosen = max(
        sorted(shared, key=_order), key=lambda kind: min((len(it[kind].attacks), _made(it[kind])) for it in kinds)
    )
    audits = {run.label: found[chosen] for run, found in zip(runs, kinds, strict=True)}
    plan = kinds[0][chosen].plan
    common = CommonAudit(plan.suite, plan.suite_version, plan.threat.name, list(plan.changed))
    others = len(shared) - 1
    notes = [finding("compare_other_audits", count=others, chosen=_named(kinds[0][chosen]))] if others else []
    notes += [*_leaders(audits), *_doubts(audits), *clients.notes(audits.values())]
    return audits, common, [*_damaged(audits), *notes]


def _order(place: tuple[AuditKind, str]) -> tuple[object, ...]:
    kind, images = place
    return kind.suite, kind.version, kind.changed, repr(kind.threat), images, kind.number


def _made(audit: AuditResult) -> str:
    return audit.plan.made


def _named(audit: AuditResult) -> str:
    plan = audit.plan
    changed = f" ({', '.join(plan.changed)})" if plan.changed else ""
    pictures = f" {plan.threat.pictures.sha256[:SHORT]}" if plan.threat.pictures else ""
    return f"{plan.suite} v{plan.suite_version}, {plan.threat.name}{pictures}{changed}"


def _damaged(audits: Audits) -> list[Finding]:
    """Findings on damaged rows: they are not compared."""
    damaged = [(label, it) for label, audit in audits.items() for it in audit.findings if it.code == "row_damaged"]
    return [it.moved(text("said.about", about=label, said=it.topic)) for label, it in damaged]


def _leaders(audits: Audits) -> list[Finding]:
    """A finding where the strongest attack is not the same for all runs."""
    leaders = {label: audit.strongest for label, audit in audits.items()}
    if len(set(leaders.values())) < 2:
        return []
    told = "; ".join(f"{label}: {name or text('terminal.no_result')}" for label, name in leaders.items())
    return [finding("compare_leaders_differ", leaders=told)]


def _doubts(audits: Audits) -> list[Finding]:
    """Findings on runs that lost their utility, and on runs whose audit is not reliable, or not enough to tell."""
    best = health.best_accuracy(audits.values())
    lost = [label for label, audit in audits.items() if health.is_useless(audit, best.get(audit.subject.dataset))]
    weak = [label for label, audit in audits.items() if audit.state == "not_reliable"]
    unknown = [label for label, audit in audits.items() if audit.state == "not_enough"]
    findings = [finding("compare_useless", runs=", ".join(lost))] if lost else []
    findings += [finding("compare_unreliable", runs=", ".join(weak))] if weak else []
    return [*findings, *([finding("compare_not_enough", runs=", ".join(unknown))] if unknown else [])]


# what is compared


def _quantities(audits: Audits) -> tuple[list[Quantity], list[Finding]]:
    """The numbers that all audits have, and the rows that some lack."""
    found = list(audits.values())
    shown: list[Quantity] = []
    if all(audit.accuracy is not None for audit in found):
        shown.append(Quantity("accuracy", text("compare.accuracy"), "accuracy"))
    leaders = {audit.strongest for audit in found}
    if "" not in leaders:
        names = [name for name in STRONGEST if all(name in audit.strongest_attack.scores for audit in found)]
        shown += [Quantity(f"strongest.{name}", _of_strongest(name, leaders), name) for name in names]
    rows, lacking = _shared_rows(found)
    shown += [_of_row(row, STRONGEST[0]) for row in rows if leaders != {row}]  # otherwise it is listed already
    return shown, [finding("compare_rows_lacking", rows=", ".join(lacking))] if lacking else []


def _of_strongest(name: str, leaders: Set[str]) -> str:
    measure = text(f"measure.{name}")
    if len(leaders) > 1:
        return text("compare.strongest", measure=measure)
    return text("compare.strongest_is", measure=measure, row=row_title(next(iter(leaders))))


def _of_row(row: str, name: str) -> Quantity:
    return Quantity(f"row.{row}", text("compare.row", measure=text(f"measure.{name}"), row=row_title(row)), name, row)


def _shared_rows(audits: Sequence[AuditResult]) -> tuple[list[str], list[str]]:
    """Attacks that have a result in all audits, and attacks that have one only in some, without twins."""
    names = [[row.name for row in audit.attacks if row.kind == "attack"] for audit in audits]
    every = dict.fromkeys(name for own in names for name in own)
    shared = [name for name in every if all(name in own for own in names)]
    return shared, [name for name in every if name not in shared and not name.endswith(FROM_SENT)]


def _without_audit(views: Views) -> list[Quantity]:
    """Only the validation accuracy, where all runs have it."""
    if any(_best_accuracy(run) is None for run in views.values()):
        return []
    return [Quantity("validation_accuracy", text("compare.validation_accuracy"), "validation_accuracy")]


Reader = Callable[[str, Quantity], float | None]


def _reader(views: Views, audits: Audits, kind: AuditKind | None) -> Reader:
    """A function that returns the number of a run and a quantity; None for the client alone, which is not attacked."""

    def read(label: str, quantity: Quantity) -> float | None:
        if quantity.measure == "validation_accuracy":
            return _best_accuracy(views[label]) or 0.0
        if quantity.measure in LEAKS:
            leak = views[label].leak(quantity.measure, kind)
            return None if leak is None else leak.mean
        score = _found(views[label], quantity, audits)
        return None if score is None else score.mean

    return read


def _found(run: JudgedRun, quantity: Quantity, audits: Audits) -> Estimate | None:
    """A score of a run, from its audit, or for the client alone its accuracy."""
    if run.label in audits:
        return _score(audits[run.label], quantity)
    return run.score(ACCURACY) if quantity.measure == ACCURACY else None


def _values(arm: JudgedArm, quantity: Quantity, read: Reader) -> list[float]:
    """The numbers of all runs of an arm; empty where one has none."""
    values = [read(run.label, quantity) for run in arm.cells]
    return [] if None in values else [value for value in values if value is not None]


def _score(audit: AuditResult, quantity: Quantity) -> Score:
    return audit.known_accuracy if quantity.measure == "accuracy" else _row(audit, quantity).scores[quantity.measure]


def _row(audit: AuditResult, quantity: Quantity) -> Row:
    return audit.row(quantity.row) if quantity.row else audit.strongest_attack


def _best_accuracy(run: JudgedRun) -> float | None:
    best = run.manifest.get("best") or {}
    value = best.get("validation_accuracy")
    return None if value is None else float(value)


# tests


def _tests(
    arms: Sequence[JudgedArm], shown: Sequence[Quantity], read: Reader, audits: Audits, kind: AuditKind | None
) -> tuple[list[Comparison], list[Finding]]:
    """Every arm against the first: over seeds where any arm has several, otherwise over images.

    Numbers of the leak that cannot be compared have no test.
    """
    if len(arms) < 2:
        return [], [finding("compare_one_group")]
    both = [(arm, it) for it in shown for arm in arms[1:] if _values(arm, it, read) and _values(arms[0], it, read)]
    pairs = [(arm, it) for arm, it in both if arm.is_comparable(arms[0], it.measure, kind)]
    if any(len(arm.cells) > 1 for arm in arms):
        return adjust([_over_seeds(arm, arms[0], it, read) for arm, it in pairs]), []
    if not audits:
        return [], [finding("compare_one_seed")]
    by_image = [pair for pair in pairs if pair[1].measure not in LEAKS]  # a limit over one seed is a number, not a test
    tested = [_over_images(arm, arms[0], it, audits) for arm, it in by_image]
    apart = [item for item in tested if item.over == "images_apart" and item.measure != text("compare.accuracy")]
    notes = [finding("compare_not_paired", rows=", ".join(dict.fromkeys(it.measure for it in apart)))] if apart else []
    return tested, [finding("compare_one_seed"), *notes]


def _over_seeds(a: JudgedArm, b: JudgedArm, quantity: Quantity, read: Reader) -> Comparison:
    first, second = (_values(arm, quantity, read) for arm in (a, b))
    return compare_arms(first, second, a=a.name, b=b.name, measure=quantity.title)


def _over_images(a: JudgedArm, b: JudgedArm, quantity: Quantity, audits: Audits) -> Comparison:
    one, two = a.cells[0], b.cells[0]
    both = one.label in audits and two.label in audits
    pairs = _pairs(audits[one.label], audits[two.label], quantity) if both else None
    if pairs is not None:
        return compare_images(*pairs, a=a.name, b=b.name, measure=quantity.title)
    first, second = (_found(run, quantity, audits) for run in (one, two))
    assert first is not None and second is not None
    counts = _count(one, quantity, audits), _count(two, quantity, audits)
    return compare_apart(first, second, counts, a=a.name, b=b.name, measure=quantity.title)


def _count(run: JudgedRun, quantity: Quantity, audits: Audits) -> int:
    """The number of images of a score; the client alone is measured on all test images."""
    if run.label not in audits:
        return int((run.manifest.get("split") or {}).get("test") or 0)
    audit = audits[run.label]
    return audit.num_seen if quantity.measure == "accuracy" else _row(audit, quantity).num_images


Values = NDArray[np.float64]


def _pairs(first: AuditResult, second: AuditResult, quantity: Quantity) -> tuple[Values, Values] | None:
    """Scores of the images that both rows saw; None where per-image scores were not kept."""
    if quantity.measure == "accuracy":
        return None
    a, b = _by_image(first, quantity), _by_image(second, quantity)
    if a is None or b is None:
        return None
    _, own, other = np.intersect1d(a.index, b.index, return_indices=True)
    return (a.values[own], b.values[other]) if len(own) else None


@dataclass(frozen=True)
class _ByImage:
    index: NDArray[np.int64]
    values: Values


def _by_image(audit: AuditResult, quantity: Quantity) -> _ByImage | None:
    """The per-image scores of one row; None for result archives, which lack them."""
    folder = Path(audit.folder)
    name = _row(audit, quantity).name
    if not Ledger.open(folder).has_scores(name):
        return None
    scores = Ledger.open(folder).scores(name)
    if quantity.measure not in scores.values:
        return None
    return _ByImage(scores.index, np.asarray(scores.values[quantity.measure], dtype=np.float64))


# runs and groups as they are shown


def _run(run: JudgedRun, group: str, audits: Audits, shown: Sequence[Quantity], read: Reader) -> ComparedRun:
    audit, seconds = audits.get(run.label), run.manifest.get("training_seconds")
    return ComparedRun(
        label=run.label,
        path=run.path.name,
        group=group,
        seed=run.settings.seed,
        status=str(run.manifest.get("status")),
        along=_along(run),
        best_accuracy=_best_accuracy(run),
        training_seconds=None if seconds is None else float(seconds),
        audit=Path(audit.folder).name if audit else "",
        strongest=audit.strongest if audit else "",
        numbers={it.key: value for it in shown if (value := read(run.label, it)) is not None},
        sending=kept_sending(audit.plan.selective) if audit and audit.plan.selective else None,
        costs={name: cost for name in (*CLIENT, TIMED_ON) if (cost := run.manifest.get(name))},
    )


def _along(run: JudgedRun) -> list[float | None]:
    """Validation accuracy at each quarter of the training: the latest measurement up to that point."""
    epochs, measured = (
        run.settings.training.epochs,
        [(line["epoch"], line["accuracy"]) for line in run.run.records("validation")],
    )
    end = max((epoch for epoch, _ in measured), default=0)
    marks = [part * epochs for part in _QUARTERS]
    return [_last_by(measured, mark) if mark <= end else None for mark in marks]


def _last_by(measured: Sequence[tuple[Any, Any]], mark: float) -> float | None:
    values = [float(value) for epoch, value in measured if epoch <= mark]
    return values[-1] if values else None


def _group(arm: JudgedArm, shown: Sequence[Quantity], read: Reader) -> Group:
    numbers = {it.key: seed_summary(values) for it in shown if (values := _values(arm, it, read))}
    return Group(arm.name, [run.label for run in arm.cells], numbers)
