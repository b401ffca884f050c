"""Options of `attncem audit` that make it a gate: --fail-if, --min-images and --junit; its exit code and its JSON."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attncem.base.progress import show_line
from attncem.base.texts import text
from attncem.base.types import ConfigError
from attncem.cli.verbs.base import print_json

if TYPE_CHECKING:
    from attncem.config.options.suites import Suite
    from attncem.judging.conditions import Checked, Condition
    from attncem.records.audit import AuditResult

_FAIL_IF = (
    "exit code 3 if it holds or cannot be excluded: for the strongest attack mse<0.02, mse.p05<0.005, for a "
    "certificate leakage>20, for a probe reidentification.rank_1>0.05; repeatable"
)


def add_gate(parser: argparse.ArgumentParser) -> None:
    """Add the options of a gate."""
    group = parser.add_argument_group("a gate for releases", "docs/gate.md has an example for continuous integration")
    group.add_argument("--fail-if", action="append", default=[], metavar="CONDITION", help=_FAIL_IF)
    group.add_argument("--min-images", type=int, metavar="N", help="exit code 3 if fewer images were judged")
    group.add_argument("--junit", metavar="FILE", help="write rows and conditions as JUnit XML")


@dataclass(frozen=True)
class Gate:
    """What audits must pass; ``rows`` are those that must have a result."""

    conditions: Sequence[Condition]
    rows: Sequence[str]
    min_images: int
    junit: Path | None
    json: bool

    @classmethod
    def read(cls, known: argparse.Namespace, suite: Suite) -> Gate:
        """The gate that the options describe; ConfigError or RunError names a mistake before any work."""
        from attncem.config.options.suites import select_rows
        from attncem.judging.conditions import parse_conditions

        if known.min_images is not None and known.min_images < 1:
            raise ConfigError(f"--min-images {known.min_images}: must be at least 1")
        junit = None if known.junit is None else Path(known.junit)
        if junit is not None:
            from attncem.reporting.junit import refuse

            refuse(junit)
        rows = select_rows(suite, known.only, known.skip)
        return cls(parse_conditions(known.fail_if, suite), rows, known.min_images or 0, junit, known.json)

    def close(self, results: Sequence[tuple[str, AuditResult]], errors: Mapping[str, str]) -> int:
        """Test the audits, print a line for each test, write the files, and return the exit code."""
        checked = [self._check(run, result) for run, result in results]
        failed = any(row.unfinished for _, result in results for row in result.rows)
        stopped = failed or any(item.failed for items in checked for item in items)
        code = 2 if errors else 3 if stopped else 0
        judged = [(run, result, items) for (run, result), items in zip(results, checked, strict=True)]
        if self.junit is not None:
            from attncem.reporting.junit import write_junit

            write_junit(self.junit, judged, errors, self.rows)
        if self.json:
            print_json(_data(judged, errors, code))
        return code

    def _check(self, run: str, result: AuditResult) -> list[Checked]:
        """The tests of one audit; a line on stderr says what each compared."""
        from attncem.judging.conditions import check

        if not (self.conditions or self.min_images):
            return []
        checked = check(result, self.conditions, self.rows, min_images=self.min_images)
        for item in checked:
            key = "failed" if item.failed else "passed"
            show_line(text(f"command.checked.{key}", run=run, said=_sentence(item)))
        return checked


def _sentence(item: Checked) -> str:
    """What was compared; a reason to distrust the audit follows its state."""
    from attncem.reporting.answers import state_word

    return text("said.about", about=state_word(item.state), said=item.said.text) if item.state else item.said.text


def _check_data(item: Checked) -> dict[str, Any]:
    return {"condition": item.condition, "failed": item.failed, "state": item.state, "said": item.said}


def _data(
    judged: Sequence[tuple[str, AuditResult, Sequence[Checked]]], errors: Mapping[str, str], code: int
) -> dict[str, Any]:
    """The output of `audit --json`; ``passed`` is null where nothing was tested."""
    audits = [
        {
            "run": run,
            "passed": None if not checked else not any(item.failed for item in checked),
            "checks": [_check_data(item) for item in checked],
            "result": result,
        }
        for run, result, checked in judged
    ]
    return {
        "exit_code": code,
        "audits": audits,
        "errors": [{"run": run, "error": line} for run, line in errors.items()],
    }
