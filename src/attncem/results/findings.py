"""Findings: what a person should know about a result, each with a code by which programs know it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from attncem.results.record import Record
from attncem.texts import has_text, retold, text, written


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
        return text("said.about", about=retold(self.about), said=sentence) if self.about else sentence

    def _sentence(self) -> str:
        key = f"finding.{self.code}"
        try:
            return (
                text(key, **{name: _said(value) for name, value in self.values.items()}) if has_text(key) else self.said
            )
        except (LookupError, ValueError, TypeError):  # another version's sentence had other values
            return self.said


def _said(value: Any) -> Any:
    return retold(value) if isinstance(value, str) else value


def finding(code: str, about: str = "", **values: Any) -> Finding:
    """A finding whose sentence stands in the catalogue under ``finding.CODE``."""
    return Finding(code, about, values, written(f"finding.{code}", **values))


def unique(findings: Iterable[Finding]) -> list[Finding]:
    """The first of each code about each thing, in order."""
    return list({(item.code, item.about): item for item in reversed(list(findings))}.values())[::-1]
