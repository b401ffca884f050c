"""The leak in nats in words: its limit, the part beyond the label, and the command that measures what is missing."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from attncem.base.texts import text, translated
from attncem.base.types import AttncemError
from attncem.records.audit import AuditResult
from attncem.records.files import read_record
from attncem.records.leak import Leak
from attncem.records.leaks import BEYOND, LEAKS, LIMIT, OVER_ALL, leak_of, rows_of
from attncem.records.repeating import audit_options
from attncem.records.run_files import Best
from attncem.records.study import spread_of
from attncem.reporting.table_formats import hedged, mean_sd

SHOWN = (LIMIT, BEYOND)
"""Numbers of the leak that a table does not hide at first."""
_DEFAULT = "train"
"""The adversary of `attncem audit` without --threat."""
MOST_RELEASES = 256
"""The most releases that a row of the suite `standard` sees."""


@dataclass(frozen=True)
class LeakWords:
    """The leak of a model for a first screen: ``limit`` is the number alone, empty where there is none.

    ``beyond`` is the line on the part beyond the label. ``missing`` says what was not measured, with the command, or,
    with ``none``, that certificates were computed and none limits the leak; ``lacks`` is the number that is missing.
    ``sent``: the limit is for an image that is sent; ``over_all`` is then the line on the mean over all images.
    """

    limit: str = ""
    beyond: str = ""
    missing: str = ""
    none: bool = False
    lacks: str = LIMIT
    sent: bool = False
    over_all: str = ""

    @property
    def about(self) -> str:
        """What the limit is about, in the words of a first screen."""
        return text("leak.first.sent") if self.sent else text("leak.first")


def leaks_in(audits: Sequence[AuditResult], measure: str) -> list[Leak]:
    """A number of the leak for every audit that has it."""
    return [leak for audit in audits if (leak := leak_of(audit, measure)) is not None]


def words(audits: Sequence[AuditResult], place: str) -> LeakWords:
    """The leak of one model, from the audits of its seeds; ``place`` is the folder of a run."""
    means = leaks_in(audits, OVER_ALL)
    over_all = text("leak.over_all", value=number(OVER_ALL, means)) if means else ""
    sent = any(audit.plan.selective is not None for audit in audits)
    return replace(_words(audits, place), sent=sent, over_all=over_all)


def _words(audits: Sequence[AuditResult], place: str) -> LeakWords:
    limits, beyond = leaks_in(audits, LIMIT), leaks_in(audits, BEYOND)
    if not limits:
        none = not may_have(audits, LIMIT)
        return LeakWords(missing=text("leak.none") if none else missing(audits, place, LIMIT), none=none)
    limit = number(LIMIT, limits)
    if beyond:
        return LeakWords(limit, text("leak.beyond", value=number(BEYOND, beyond)))
    if not may_have(audits, BEYOND):
        return LeakWords(limit, text("leak.beyond.none"))
    return LeakWords(limit, text("leak.beyond.unmeasured"), missing(audits, place, BEYOND), lacks=BEYOND)


def number(measure: str, leaks: Sequence[Leak]) -> str:
    """A number of nats over seeds, with the words without which it misleads."""
    spread = spread_of(leaks)
    assert spread is not None
    return hedged(text("leak.nats", value=mean_sd(measure, spread.seeds)), leaks)


def describe(audits: Sequence[AuditResult], place: str) -> str:
    """The same words in one line, for a terminal and a card."""
    said = words(audits, place)
    if not said.limit:
        return said.missing
    limit = text("leak.at_most.sent", value=said.limit) if said.sent else text("leak.at_most", value=said.limit)
    line = text("leak.line", limit=limit, beyond=said.beyond)
    return text("leak.line", limit=line, beyond=said.over_all) if said.over_all else line


def missing(audits: Sequence[AuditResult], place: str, measure: str) -> str:
    """Why a number of the leak is absent: the command that measures it, or why no command can.

    For a foreign encoder it is only the suite.
    """
    if not may_have(audits, measure):
        if LEAKS[measure].selective:
            return ""
        absent = next((row for row in rows_of(audits, measure) if row.outcome == "not_applicable"), None)
        if absent is None:
            return ""
        said = text("report.outcome.not_applicable")
        return text("report.outcome.reason", outcome=said, reason=translated(absent.why))
    suite = LEAKS[measure].suite
    if any(audit.subject.foreign for audit in audits):
        return text("leak.missing.suite", suite=suite)
    return text("leak.missing", command=command(audits, place, suite))


def may_have(audits: Sequence[AuditResult], measure: str) -> bool:
    """Whether another audit could give a number of the leak: its rows did not run, or failed."""
    if LEAKS[measure].selective and all(audit.plan.selective is None for audit in audits):
        return False
    rows = rows_of(audits, measure)
    if not LEAKS[measure].methods and all(it.plan.threat.releases_per_input >= MOST_RELEASES for it in audits):
        return False
    return not rows or any(row.unfinished for row in rows)


def command(audits: Sequence[AuditResult], place: str, suite: str) -> str:
    """The command that audits a run with another suite: the weights and the adversary of its first audit."""
    options = ["--suite", suite]
    if audits:
        plan = audits[0].plan
        plugins = [use for use in plan.plugins if use.kind != "attack"]  # what the run needs; the suite is another
        options = audit_options(replace(plan, suite=suite, changed=[], reference="", plugins=plugins))
        if plan.threat.base == _DEFAULT:
            place_of = options.index("--threat")
            options = options[:place_of] + options[place_of + 2 :]
        options = [*_weights(audits[0]), *options]
    return shlex.join(["attncem", "audit", place, *options])


def _weights(audit: AuditResult) -> list[str]:
    """The option for the weights of an audit; none for the best weights of its run."""
    if not audit.folder or audit.subject.foreign:
        return []
    try:
        best = read_record(Best, Path(audit.folder).parent.parent / "best.json").checkpoint
    except AttncemError:  # named weights are right in any case
        best = ""
    return [] if audit.subject.weights == best else ["--weights", audit.subject.weights]
