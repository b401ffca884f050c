"""Findings: what a person should know about a result, each with a code by which programs know it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from attncem.base.record import Record
from attncem.base.texts import has_text, retold, text, written
from attncem.base.texts.titles import row_title

_ROWS = ("base", "floor", "leaders", "other", "rows")
"""Values that name rows: one, several with a comma between them, or RUN: ROW; RUN: ROW."""
_ABOUT_RUNS = ("run_status", "compare_unaudited", "compare_same_result", "compare_mixed", "compare_not_paired")
"""Codes of findings in which no row is named."""


@dataclass(frozen=True)
class Finding(Record):
    """One finding: its code, what it is about (a row's name, or nothing), and the values its sentence needs.

    ``said`` is the sentence in English as it was when the finding was made; it is shown where a later version knows no
    such code. What is kept never depends on the language that was spoken.
    """

    code: str
    about: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    said: str = ""

    @property
    def text(self) -> str:
        """The sentence, with what it is about in front."""
        sentence = self._sentence()
        return text("said.about", about=self.topic, said=sentence) if self.about else sentence

    @property
    def topic(self) -> str:
        """What it is about, as people are shown it: a row by its title, a run by its name."""
        about = retold(self.about)
        return about if self.code in _ABOUT_RUNS else row_title(about)

    def _sentence(self) -> str:
        key = f"finding.{self.code}"
        try:
            return text(key, **{name: self._value(name) for name in self.values}) if has_text(key) else self.said
        except (LookupError, ValueError, TypeError):  # another version's sentence had other values
            return self.said

    def _value(self, name: str) -> Any:
        """A value as the sentence says it: names of rows by their titles."""
        value = self.values[name]
        if not isinstance(value, str):
            return value
        return _titled(value) if name in _ROWS and self.code not in _ABOUT_RUNS else retold(value)


def _titled(rows: str) -> str:
    """Every name that stands by itself by its title."""
    return "".join(row_title(part) for part in re.split(r"(, |; |: )", rows))


def finding(code: str, about: str = "", **values: Any) -> Finding:
    """A finding whose sentence stands in the catalogue under ``finding.CODE``."""
    return Finding(code, about, values, written(f"finding.{code}", **values))


def unique(findings: Iterable[Finding]) -> list[Finding]:
    """The first of each code about each thing, in order."""
    return list({(item.code, item.about): item for item in reversed(list(findings))}.values())[::-1]
