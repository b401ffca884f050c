"""Audits as JUnit XML, which continuous integration shows: a test case for each condition and for each row."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from attncem.base.shown_paths import shown_path, without_paths
from attncem.base.texts import joined, text, translated
from attncem.base.types import RunError
from attncem.judging.conditions import Checked
from attncem.records.audit import AuditResult, Row
from attncem.reporting import answers
from attncem.reporting.html import refuse_foreign, write_page

NAME = "attncem audit"
"""Name of all our suites, by which an older file is recognised."""
_NOT_XML = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
"""Characters that no XML file may hold, not even escaped."""

_HEAD = '<?xml version="1.0" encoding="UTF-8"?>'

Judged = tuple[str, AuditResult, Sequence[Checked]]
"""A run's name, its audit and its tests."""


def refuse(file: Path) -> None:
    """RunError unless the file can be written: it is absent, or an older one of ours."""
    if not file.name or file.is_dir():
        raise RunError(f"--junit {file}: is a folder; give the name of a file, e.g. audit.xml")
    refuse_foreign(file, f'<testsuites name="{NAME}"')


def write_junit(file: Path, judged: Sequence[Judged], errors: Mapping[str, str], rows: Sequence[str]) -> None:
    """Write the file atomically. ``rows`` are those that were asked for, ``errors`` runs that were not audited."""
    root = Element("testsuites", name=NAME)
    for run, audit, checked in judged:
        name = _clean(shown_path(run))
        cases = [*_gate(audit, checked), *_rows(audit, rows)]
        _add_suite(root, name, cases)
    for run, line in errors.items():
        _add_suite(root, _clean(shown_path(run)), [_case("audit", "audit", error=line)])
    _count(root, list(root))
    indent(root)
    write_page(file, f"{_HEAD}\n{tostring(root, encoding='unicode')}\n")


def _add_suite(root: Element, name: str, cases: Sequence[Element]) -> None:
    suite = SubElement(root, "testsuite", name=name)
    for case in cases:
        case.set("classname", f"{name}.{case.get('classname')}")
        suite.append(case)
    _count(suite, cases)


def _count(parent: Element, parts: Sequence[Element]) -> None:
    """Set the numbers of tests, failures, errors and skipped tests of a suite, or of all suites."""
    words = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    parent.set("tests", str(sum(1 for _ in parent.iter("testcase"))))
    for key, tag in words.items():
        parent.set(key, str(sum(1 for _ in parent.iter(tag))))
    parent.set("time", f"{sum(float(part.get('time') or 0) for part in parts):.3f}")


def _gate(audit: AuditResult, checked: Sequence[Checked]) -> Iterator[Element]:
    """A case for each condition and for --min-images, and one for the reasons to distrust the audit."""
    for item in checked:
        if item.condition or item.said.code.endswith("_images"):
            name = item.condition or "--min-images"
            yield _case("conditions", name, failure=item.said.text if item.failed else "", output=item.said.text)
    reasons = [item for item in checked if item.state is not None or item.said.code == "fails_missing"]
    if checked:
        said = joined(text("state.reason", reason=item.said.text) for item in reasons)
        state = answers.worst([item.state for item in reasons if item.state]) or audit.state
        head = text("state.sentence", state=answers.state_word(state))
        yield _case("conditions", "judgement", failure=joined([head, said]) if reasons else "", output=head)


def _rows(audit: AuditResult, rows: Sequence[str]) -> Iterator[Element]:
    """A case for each row that was asked for, in the order of the suite."""
    by_name = {row.name: row for row in audit.rows}
    for name in rows:
        row = by_name.get(name)
        yield _case("rows", name, failure=text("junit.no_result")) if row is None else _row(row)


def _row(row: Row) -> Element:
    reason = translated(row.why) or text("junit.no_result")
    failure, skipped = (reason if row.outcome == outcome else "" for outcome in ("failed", "not_applicable"))
    return _case("rows", row.name, failure=failure, skipped=skipped, seconds=row.seconds)


def _case(group: str, name: str, *, seconds: float = 0.0, output: str = "", **outcome: str) -> Element:
    """One test case; an outcome is `failure`, `error` or `skipped` with its message, empty where it passed."""
    case = Element("testcase", classname=group, name=_clean(name), time=f"{seconds:.3f}")
    for tag, message in outcome.items():
        if message:
            said = _clean(without_paths(message))
            SubElement(case, tag, message=said.partition("\n")[0]).text = said
    if output:
        SubElement(case, "system-out").text = _clean(without_paths(output))
    return case


def _clean(words: str) -> str:
    """The words without what XML cannot hold, which is written as an escape."""
    return _NOT_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", words)
