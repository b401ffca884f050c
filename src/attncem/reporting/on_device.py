"""The client alone, in words: its accuracy, what the server adds and leaks, or the command that finds out.

Report, comparison, campaign page, card and terminal use these sentences, so that all of them say the same.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from attncem.base.texts import text, translated
from attncem.base.types import AttncemError
from attncem.records.audit import AuditResult
from attncem.records.findings import Finding
from attncem.records.judge import removed
from attncem.records.leak import Leak
from attncem.records.leaks import LIMIT, OVER_ALL, limit, over_all, say_leak
from attncem.records.ledger import count_audits
from attncem.records.listing import DAMAGED, UNKNOWN, list_runs, name_in, newest_audit
from attncem.records.on_device import Reference, References, Worth, worth_of
from attncem.records.runs import RunDirectory
from attncem.records.study import AuditKind, Cell, Study
from attncem.records.study.runs import load_run
from attncem.reporting import sending, wording
from attncem.reporting.places import run_place
from attncem.reporting.table_formats import Item

JudgedCell = Cell[AuditResult]
_LISTED = 6
"""Largest number of runs that a list has a sentence about."""


@dataclass(frozen=True)
class Alone:
    """What is known about the client alone: a sentence, its findings, and the numbers (None: not known).

    ``known`` is false where the sentence only gives the command that trains it.
    """

    sentence: str
    findings: Sequence[Finding] = ()
    worth: Worth | None = None
    known: bool = True


@dataclass(frozen=True)
class Audited:
    """A run with the audit that its numbers are from."""

    cell: JudgedCell
    audit: AuditResult


def references_for(paths: Iterable[Path]) -> References:
    """The on-device runs among these runs, and beside them."""
    places = [path.resolve() for path in paths]
    return References([*places, *(place.parent for place in places)])


def of_arm(cells: Sequence[JudgedCell], audited: Sequence[Audited], references: References) -> Alone | None:
    """What the client of these seeds could do alone; None for audits without a run, and for the client alone itself.

    Of several audits of one run the first counts.
    """
    runs = [cell for cell in cells if cell.manifest and not cell.on_device]
    if not runs:
        return None
    if audited:
        return _of_audits(audited, references)
    reference = _reference(runs[0], references)
    if reference is None:
        return Alone(unknown(runs[0]), known=False)
    return Alone(text("on_device.unaudited", alone=_alone(reference), command=_command(runs[0], "audit")))


def _reference(cell: JudgedCell, references: References) -> Reference | None:
    """The client alone for a run; its configuration is read only where there is something to compare it with."""
    return references.of(cell.manifest, cell.seed, cell.config) if references else None


def _of_audits(audited: Sequence[Audited], references: References) -> Alone:
    firsts = list({it.cell.path: it for it in reversed(audited)}.values())[::-1]
    pairs = []
    for it in firsts:
        reference = _reference(it.cell, references)
        images = "validation" if it.audit.plan.evaluation == "validation" else "test"
        score = reference.scores.get(images) if reference else None
        if reference is None or score is None or it.audit.accuracy is None:
            return Alone(unknown(it.cell), known=False)
        pairs.append((it.audit.accuracy, score, reference))
    worth = worth_of(pairs)
    leak = leak_of([[other.audit for other in audited if other.cell is it.cell] for it in firsts], firsts)
    return Alone(said(worth, leak, [it.audit for it in firsts]), worth.findings, worth)


def itself(*, measured: bool) -> Alone:
    """What is said of the client alone where it is shown as a model of its own."""
    nothing = text("on_device.nothing")
    return Alone(nothing if measured else f"{nothing}; {text('on_device.untested')}")


def of_audits(audits: Sequence[AuditResult], *, local: bool = False) -> Alone | None:
    """What the client of audits in their run's folder could do alone; None for audits elsewhere.

    ``local``: for the same machine, where a command may name the run's path.
    """
    subject, folder = audits[0].subject, Path(audits[0].folder)
    try:
        run = RunDirectory(folder.parents[1])
        if subject.foreign or not audits[0].folder or not (run.path / "manifest.json").is_file():
            return None
        cell = replace(load_run(run.path), id=subject.run, seed=subject.seed)
    except (AttncemError, IndexError):
        return None
    alone = of_arm([cell], [Audited(cell, audit) for audit in audits], references_for([run.path]))
    if local and alone and not alone.known:
        return replace(alone, sentence=unknown(cell, local=True))
    return alone


def of_folder(folder: str | Path) -> list[str]:
    """What the clients of a folder's audited runs could do alone, for a terminal.

    A sentence for each of the first few runs with a reference and for the first run without one, and how many follow.
    """
    runs = [run for run in list_runs(folder) if _is_audited(run)]
    beside = {run.path.parent: references_for([run.path]) for run in runs}
    having = [run for run in runs if beside[run.path.parent].of(run.manifest, run.config.seed, run.config)]
    lacking = [run for run in runs if run not in having]
    lines = [line for run in (*having[:_LISTED], *lacking[:1]) if (line := _line(run, name_in(folder, run)))]
    if more := len(having[_LISTED:]):
        lines.append(text("on_device.list.known", count=more, folder=run_place(Path(folder), local=True)))
    if more := len(lacking[1:]):
        lines.append(text("on_device.list.unknown", count=more))
    return lines


def _is_audited(run: RunDirectory) -> bool:
    """Whether a run that releases something has audits; False where it is damaged."""
    try:
        return not run.config.on_device and run.is_finished and count_audits(run.path / "audits") not in ("0", UNKNOWN)
    except DAMAGED:
        return False


def _line(run: RunDirectory, name: str) -> str:
    """The sentence about a run of a list; empty without a readable audit of its best weights on test images."""
    try:
        audit = newest_audit(run)
    except DAMAGED:
        return ""
    alone = None if audit is None else of_audits([audit], local=True)
    return "" if alone is None else text("said.about", about=name, said=alone.sentence)


def of_campaign(study: Study[AuditResult], kind: AuditKind | None) -> dict[str, Alone]:
    """What the clients of a campaign's arms could do alone, by label, from audits of one kind.

    Empty where nothing is known of any arm and the campaign has no arm of the client alone.
    """
    if kind is None:
        return {}
    references = references_for(cell.path for cell in study.cells if cell.manifest)
    by_label = {}
    for arm in study.arms:
        audited = [Audited(cell, audit) for cell in arm.cells if (audit := cell.audit(kind)) is not None]
        if audited and (alone := of_arm(arm.cells, audited, references)):
            by_label[arm.label] = alone
    asked = any(arm.on_device for arm in study.arms)
    if not asked and not any(alone.worth for alone in by_label.values()):
        return {}
    waiting = text("on_device.campaign.waiting") if asked else ""
    return {label: it if it.worth or not asked else replace(it, sentence=waiting) for label, it in by_label.items()}


def worths(study: Study[AuditResult], kind: AuditKind | None) -> dict[str, Worth]:
    """What the server adds to each arm's client alone, by label, where that is known."""
    return {label: it.worth for label, it in of_campaign(study, kind).items() if it.worth is not None}


def points_item(worth: Worth | None) -> Item:
    """What the server adds, in points, as a table's entry; a dash where it is not known."""
    if worth is None:
        return Item(None, wording.MISSING)
    has_interval = worth.low is not None and worth.high is not None
    ends = f"[{100 * (worth.low or 0):+z.1f}, {100 * (worth.high or 0):+z.1f}]" if has_interval else ""
    more = {"low": worth.low, "high": worth.high}
    return Item(worth.difference, f"{100 * worth.difference:+z.1f}", ends, more)


# the sentences


def said(worth: Worth, leak: str, audits: Sequence[AuditResult] = ()) -> str:
    """The sentence about a defended model and its reference; the accuracy is that of client and server together.

    ``audits`` are those of its seeds, which say whether only some images are sent.
    """
    client = _numbers(worth.alone, worth.alone_low, worth.alone_high, worth.macs)
    values = {"alone": client, "points": points(worth), "leak": leak}
    if facts := sending.facts_in(audits):
        return text("on_device.sentence.selective", share=sending.share(facts), **values)
    return text("on_device.sentence", **values)


def _alone(reference: Reference) -> str:
    score = reference.scores.get("test") or reference.scores["validation"]
    return _numbers(score.mean, score.low, score.high, reference.macs)


def _numbers(mean: float, low: float, high: float, macs: int) -> str:
    values = {
        "accuracy": wording.percent(mean),
        "low": wording.percent(low, unit=""),
        "high": wording.percent(high, unit=""),
    }
    return text("on_device.alone", macs=wording.count(macs), **values)


def points(worth: Worth) -> str:
    """What the server adds, in percentage points, with its interval where there is one."""
    return translated(worth.points)


def unknown(run: JudgedCell, *, local: bool = False) -> str:
    """That the client alone is not known, with the command that trains it."""
    return text("on_device.unknown", command=_command(run, "train", "--on-device", local=local))


def _command(run: JudgedCell, *words: str, local: bool = False) -> str:
    """A command on a run, with the names of the plugins that it needs."""
    files = dict.fromkeys(str(use["file"]) for use in run.manifest.get("plugins", ()))
    plugins = [word for file in files for word in ("--plugin", file)]
    return shlex.join(["attncem", *words, run_place(run.path, local=local), *plugins])


def leak_of(audits: Sequence[Sequence[AuditResult]], firsts: Sequence[Audited]) -> str:
    """What one release leaks: the limit that is proven for every seed, or else what the strongest attack recovers.

    ``audits`` are those of each seed under one adversary; a limit may come from another suite under the same one.
    """
    by_seed = [[*of_seed, *it.cell.results] for of_seed, it in zip(audits, firsts, strict=True)]
    limits = [most for seed in by_seed if (most := _most(seed, limit)) is not None]
    every = [audit for of_seed in audits for audit in of_seed]
    is_sent = bool(sending.facts_in(every))
    if limits and len(limits) == len(by_seed):
        nats = say_leak(LIMIT, max(limits))
        return _of_sent(nats, by_seed) if is_sent else text("on_device.leak.bound", nats=nats)
    shown = [removed(audit)[0] for audit in every if audit.judgement.answer("picture").status == "leaks"]
    if shown:
        share = wording.percent(fmean(shown), 0)
        return (
            text("on_device.leak.attack.sent", share=share) if is_sent else text("on_device.leak.attack", share=share)
        )
    return text("on_device.leak.unknown.sent") if is_sent else text("on_device.leak.unknown")


def _of_sent(nats: str, by_seed: Sequence[Sequence[AuditResult]]) -> str:
    """The limit for an image that is sent; in brackets the mean over all images, where every seed has it."""
    means = [mean for seed in by_seed if (mean := _most(seed, over_all)) is not None]
    if len(means) < len(by_seed):
        return text("on_device.leak.bound.sent", nats=nats)
    return text("on_device.leak.bound.both", nats=nats, over_all=say_leak(OVER_ALL, max(means)))


def _most(audits: Sequence[AuditResult], read: Callable[[AuditResult], Leak | None]) -> float | None:
    """A bound that the tables show: of the first audit, or of another one of these weights, adversary and images."""
    marks = [(it.subject.fingerprint, it.plan.threat, it.plan.evaluation) for it in audits]
    alike = (audit for audit, mark in zip(audits, marks, strict=True) if mark == marks[0])
    leak = next((it for audit in alike if (it := read(audit)) is not None), None)
    return None if leak is None or leak.vacuous else leak.mean
