"""The catalogue: every sentence that a report, a page, a table or a finding shows to people stands in one place.

A text has a dotted key and may hold {names} for values. A language is one TOML file; English is the one that
results are written in, whoever reads them: `text` speaks, `written` writes, `translated` shows what was written.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, Self

LANGUAGES = ("en", "zh")
"""Languages, each a TOML file in this folder; the first one is the default."""
VARIABLE = "ATTNCEM_LANG"
"""The environment variable that asks for one: of a process, of its threads, and of the processes it starts."""

_asked: ContextVar[str | None] = ContextVar("language", default=None)


def language() -> str:
    """The language now spoken."""
    return _asked.get() or known_language(os.environ.get(VARIABLE) or LANGUAGES[0], VARIABLE)


def known_language(word: str, name: str = "lang") -> str:
    """The language itself; ValueError, which says what asked for it, where there is no such catalogue."""
    if word not in LANGUAGES:
        raise ValueError(f"{name}={word}: unknown language; choose one of {', '.join(LANGUAGES)}")
    return word


@contextmanager
def speaking(word: str) -> Iterator[None]:
    """Texts are in this language inside."""
    token = _asked.set(known_language(word))
    try:
        yield
    finally:
        _asked.reset(token)


@cache
def catalogue(word: str) -> Mapping[str, str]:
    """All texts of a language by key."""
    return {key: sentence for part in parts(word).values() for key, sentence in part.items()}


def parts(word: str) -> dict[str, dict[str, str]]:
    """The parts of a language's file by name: the texts of each by key."""
    return tomllib.loads(Path(__file__).with_name(f"{word}.toml").read_text(encoding="utf-8"))


def text(key: str, /, **values: Any) -> str:
    """The text of a key with its values put in; an unknown key is our mistake."""
    return pattern(key).format(**values)


def pattern(key: str) -> str:
    """The text of a key as it stands in the catalogue, with {names} for values."""
    return catalogue(language())[key]


def joined(sentences: Iterable[str]) -> str:
    """Sentences one after the other, those that say something, set apart as the language does it."""
    return pattern("said.between").join(filter(None, sentences))


def has_text(key: str) -> bool:
    """Whether the catalogue has this key."""
    return key in catalogue(language())


class Sentence(str):
    """An English sentence as results keep it, with its source: the key and the values that it was made from."""

    source: Mapping[str, Any]

    def __new__(cls, english: str, source: Mapping[str, Any] | None = None) -> Self:
        """Without a source, as in results of version 0.2, it stays English in every language."""
        sentence = super().__new__(cls, english)
        sentence.source = source or {}
        return sentence


def written(key: str, /, **values: Any) -> Sentence:
    """A text as it is written into results: in English, whatever language is spoken."""
    sources = {name: (isinstance(value, Sentence) and value.source) or value for name, value in values.items()}
    return Sentence(catalogue(LANGUAGES[0])[key].format(**values), {"key": key, "values": sources})


def translated(sentence: str) -> str:
    """A sentence of a result in the language now spoken; in English where this version cannot read its source."""
    source = sentence.source if isinstance(sentence, Sentence) else {}
    if not source or language() == LANGUAGES[0]:
        return sentence
    try:
        return _text_of(source)
    except (LookupError, ValueError, TypeError, AttributeError):  # another version's source
        return sentence


def _text_of(source: Mapping[str, Any]) -> str:
    """The text of a source; a value that is a mapping is the source of a sentence inside the sentence."""
    values = {
        name: _text_of(value) if isinstance(value, Mapping) else value for name, value in source["values"].items()
    }
    return text(source["key"], **values)
