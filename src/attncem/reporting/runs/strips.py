"""Certificates and probes as strips of a model's row on the first screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from attncem.base.texts import text
from attncem.base.texts.titles import row_title
from attncem.records.audit import AuditResult, Row
from attncem.reporting import answers
from attncem.reporting.runs import certificates
from attncem.reporting.runs.methods import Method
from attncem.reporting.runs.tables import other_numbers


class Strip(NamedTuple):
    """One strip: a title, one sentence, and the section of the page that has the rest."""

    title: str
    words: str
    place: str


def strips(methods: Sequence[Method]) -> dict[str, list[Strip]]:
    """The strips of each method by its label; for several seeds, those of the first one."""
    return {method.label: _of_audit(method.entries[0].audit) if method.entries else [] for method in methods}


def _of_audit(audit: AuditResult) -> list[Strip]:
    certified = any(row.kind == "certificate" for row in audit.rows)
    bounds = [Strip(text("certificates.title"), certificates.describe(audit), "certificates")] if certified else []
    shown = {audit.judgement.answer(question).row for question in answers.QUESTIONS}  # lines of the row itself
    probes = [row for row in audit.rows if row.ok and row.kind == "probe" and row.scores and row.name not in shown]
    return [*bounds, *(Strip(row_title(row.name), _main_number(row), "attacks") for row in probes)]


def _main_number(row: Row) -> str:
    """A probe's first measure in words; first the attack whose pictures it used.

    Of a measure with several numbers of labels (`MEASURE@LABELS`) the last: fewer labels would show less leakage.
    """
    words, names = other_numbers(row), list(row.scores)
    measure = names[0].partition("@")[0]
    last = max(place for place, name in enumerate(names) if name.partition("@")[0] == measure)
    return "; ".join([*(words[:1] if row.by else []), words[last - len(names)]])
