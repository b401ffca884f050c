"""The client alone, in words: its accuracy, what the server adds and leaks, or the command that finds out.

Report, comparison, campaign page, card and terminal use these sentences, so that all of them say the same.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from attncem.base.shown_paths import shown_path
from attncem.base.texts import text, translated
from attncem.base.types import AttncemError
from attncem.records.audit import AuditResult
from attncem.records.findings import Finding
from attncem.records.judge import removed
from attncem.records.leaks import LIMIT, limit, say_leak
from attncem.records.on_device import Reference, References, Worth, worth_of
from attncem.records.runs import RunDirectory
from attncem.records.study import AuditKind, Cell, Study
from attncem.records.study.runs import load_run
from attncem.reporting import wording
from attncem.reporting.table_formats import Item

JudgedCell = Cell[AuditResult]


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
    return Alone(said(worth, leak), worth.findings, worth)


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


def of_campaign(study: Study[AuditResult], kind: AuditKind | None) -> dict[str, Alone]:
    """What the clients of a campaign's arms could do alone, by label, from audits of one kind.

    Empty where nothing is known of any arm and the campaign has no arm of the client alone.
    """
    if kind is None:
        return {}
    references = references_for(cell.path for cell in study.cells if cell.manifest)
    found = {}
    for arm in study.arms:
        audited = [Audited(cell, audit) for cell in arm.cells if (audit := cell.audit(kind)) is not None]
        if audited and (alone := of_arm(arm.cells, audited, references)):
            found[arm.label] = alone
    asked = any(arm.on_device for arm in study.arms)
    if not asked and not any(alone.worth for alone in found.values()):
        return {}
    waiting = text("on_device.campaign.waiting") if asked else ""
    return {label: it if it.worth or not asked else replace(it, sentence=waiting) for label, it in found.items()}


def worths(study: Study[AuditResult], kind: AuditKind | None) -> dict[str, Worth]:
    """What the server adds to each arm's client alone, by label, where that is known."""
    return {label: it.worth for label, it in of_campaign(study, kind).items() if it.worth is not None}


def points_item(worth: Worth | None) -> Item:
    """What the server adds, in points, as a table's entry; a dash where it is not known."""
    if worth is None:
        return Item(None, wording.MISSING)
    known = worth.low is not None and worth.high is not None
    ends = f"[{100 * (worth.low or 0):+z.1f}, {100 * (worth.high or 0):+z.1f}]" if known else ""
    more = {"low": worth.low, "high": worth.high}
    return Item(worth.difference, f"{100 * worth.difference:+z.1f}", ends, more)


# the sentences


def said(worth: Worth, leak: str) -> str:
    """The sentence about a defended model and its reference."""
    client = _numbers(worth.alone, worth.alone_low, worth.alone_high, worth.macs)
    return text("on_device.sentence", alone=client, points=points(worth), leak=leak)


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
    return shlex.join(["attncem", *words, _place(run.path, local=local), *plugins])


def _place(run: Path, *, local: bool = False) -> str:
    """The run from the current folder; of one elsewhere the whole path (``local``), or for others its last name."""
    path, here = run.resolve(), Path.cwd().resolve()
    if path != here != Path(here.anchor) and path.is_relative_to(here):
        path = path.relative_to(here)
    return str(path) if local else shown_path(path)


def leak_of(audits: Sequence[Sequence[AuditResult]], firsts: Sequence[Audited]) -> str:
    """What one release leaks: the limit that is proven for every seed, or else what the strongest attack recovers.

    ``audits`` are those of each seed under one adversary; a limit may come from another suite under the same one.
    """
    limits = [_limit([*own, *it.cell.results]) for own, it in zip(audits, firsts, strict=True)]
    known = [limit for limit in limits if limit is not None]
    if known and len(known) == len(limits):
        return text("on_device.leak.bound", nats=say_leak(LIMIT, max(known)))
    every = [audit for own in audits for audit in own]
    shown = [removed(audit)[0] for audit in every if audit.judgement.answer("picture").status == "leaks"]
    if shown:
        return text("on_device.leak.attack", share=wording.percent(fmean(shown), 0))
    return text("on_device.leak.unknown")


def _limit(audits: Sequence[AuditResult]) -> float | None:
    """The limit that the tables show: of the first audit, or of another one of these weights, adversary and images."""
    marks = [(it.subject.fingerprint, it.plan.threat, it.plan.evaluation) for it in audits]
    alike = (audit for audit, mark in zip(audits, marks, strict=True) if mark == marks[0])
    leak = next((it for audit in alike if (it := limit(audit)) is not None), None)
    return None if leak is None or leak.vacuous else leak.mean
