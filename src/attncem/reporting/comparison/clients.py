"""The clients of compared runs: what they could do alone, and what they send where they send only some images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from attncem.base.texts import text
from attncem.records.audit import AuditResult
from attncem.records.findings import Finding, finding
from attncem.records.leaks import OVER_ALL
from attncem.records.study import AuditKind
from attncem.records.study.grouping import JudgedArm
from attncem.reporting import on_device
from attncem.reporting.runs import health
from attncem.reporting.sending import describe, with_mean

Audits = Mapping[str, AuditResult]
"""Audits by run label."""


def alone(arms: Sequence[JudgedArm], audits: Audits) -> list[tuple[str, on_device.Alone]]:
    """What is known about the client alone, by the group's name."""
    references = on_device.references_for(run.path for arm in arms for run in arm.cells)
    clients = []
    for arm in arms:
        audited = [on_device.Audited(run, audits[run.label]) for run in arm.cells if run.label in audits]
        if item := on_device.of_arm(arm.cells, audited, references):
            moved = [it.moved(arm.name) for it in item.findings]
            clients.append((arm.name, replace(item, findings=moved)))
        elif arm.on_device:
            clients.append((arm.name, on_device.itself(measured=any(run.alone for run in arm.cells))))
    return clients


def notes(audits: Iterable[AuditResult]) -> list[Finding]:
    """A finding on runs whose clients send only some images: their numbers are for these images."""
    runs = health.sent_runs(audits)
    return [finding("compare_sent", runs=runs)] if runs else []


def sentences(arms: Sequence[JudgedArm], audits: Audits, kind: AuditKind | None) -> list[str]:
    """What the clients of each group send, by the group's name; empty where all send every image."""
    groups = [(arm, describe([audits[it.label] for it in arm.cells if it.label in audits])) for arm in arms]
    return [
        text("said.about", about=arm.name, said=with_mean(sentence, arm.leaks(OVER_ALL, kind)))
        for arm, sentence in groups
        if sentence
    ]
