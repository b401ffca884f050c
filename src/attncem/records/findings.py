"""Findings: facts about a result that a person should know, each with a code for programs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Any

from attncem.base.record import Record
from attncem.base.texts import Sentence, has_text, text, translated, written
from attncem.base.texts.titles import FROM_SENT, row_title

_ROWS = ("base", "floor", "leaders", "other", "rows")
"""Values that name rows: one, several separated by commas, or RUN: ROW; RUN: ROW."""
_ABOUT_RUNS = (
    "run_status",
    "compare_unaudited",
    "compare_same_result",
    "compare_mixed",
    "compare_not_paired",
    "server_not_worth_it",
)
"""Codes of findings that name no row."""


class Finding(Record):
    """One finding: its code, its subject (a row's name, or nothing), and the values of its sentence.

    ``said`` is the English sentence from when the finding was made; it is shown where a later version does not know the
    code. ``sources`` are the keys and values of those values (and of ``about``) that are sentences themselves; without
    one, as in results of version 0.2, such a value is shown in English. The stored data never depends on the current
    language.
    """

    code: str
    about: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    said: str = ""
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The sentence, preceded by its subject."""
        sentence = self._sentence()
        return text("said.about", about=self.topic, said=sentence) if self.about else sentence

    @property
    def topic(self) -> str:
        """The subject as shown to people: the title of a row, the name of a run."""
        if "about" in self.sources:
            return translated(Sentence(self.about, self.sources["about"]))
        return self.about if self.code in _ABOUT_RUNS else row_title(self.about)

    def moved(self, about: str) -> Finding:
        """The same finding about another subject."""
        return replace(self, about=about, sources={name: it for name, it in self.sources.items() if name != "about"})

    def _sentence(self) -> str:
        key = f"finding.{self.code}"
        try:
            return text(key, **{name: self._value(name) for name in self.values}) if has_text(key) else self.said
        except (LookupError, ValueError, TypeError):  # the sentence of another version had other values
            return self.said

    def _value(self, name: str) -> Any:
        """A value as shown in the sentence: titles for names of rows, sentences in the current language."""
        value = self.values[name]
        if name in self.sources:
            return translated(Sentence(value, self.sources[name]))
        is_row = name in _ROWS and isinstance(value, str) and self.code not in _ABOUT_RUNS
        return _titled(value) if is_row else value


def _titled(rows: str) -> str:
    """The rows with every name replaced by its title."""
    return "".join(row_title(part) for part in re.split(rf"((?!{FROM_SENT}), |; |: )", rows))


def finding(code: str, about: str = "", **values: Any) -> Finding:
    """A finding whose sentence has the key ``finding.CODE`` in the catalogue."""
    sentences = {"about": about, **values}
    sources = {name: value.source for name, value in sentences.items() if isinstance(value, Sentence) and value.source}
    return Finding(code, about, values, written(f"finding.{code}", **values), sources)


def unique(findings: Iterable[Finding]) -> list[Finding]:
    """The first finding of each code and subject, in order."""
    return list({(item.code, item.about): item for item in reversed(list(findings))}.values())[::-1]
