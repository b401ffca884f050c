"""The catalogue: every sentence that a report, a page, a table or a finding shows to people stands in one place.

A text has a dotted key and may hold {names} for values. A language is one TOML file; English is the one that
results are written in, whoever reads them: `text` speaks, `written` writes, `retold` says what was written.
"""

from __future__ import annotations

import os
import re
import string
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

LANGUAGES = ("en", "zh")
"""Languages, each a TOML file in this folder; the first one is the default."""
VARIABLE = "ATTNCEM_LANG"
"""The environment variable that asks for one: of a process, of its threads, and of the processes it starts."""
RETOLD = ("about.", "health.", "measure.", "noise_guess.", "reason.", "subject.lacks", "threat.lacks")
"""Beginnings of the keys of sentences that stand in results: reasons of rows, warnings of a training, measures."""

_asked: ContextVar[str | None] = ContextVar("language", default=None)


def language() -> str:
    """The language now spoken."""
    return _asked.get() or known_language(os.environ.get(VARIABLE) or LANGUAGES[0], VARIABLE)


def known_language(word: str, name: str = "lang") -> str:
    """The language itself; ValueError, which says what asked for it, where there is no such catalogue."""
    if word not in LANGUAGES:
        raise ValueError(f"{name}={word}: there is no such language; known are {', '.join(LANGUAGES)}")
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


def written(key: str, /, **values: Any) -> str:
    """A text as it is written into results: the same whatever language is spoken."""
    return catalogue(LANGUAGES[0])[key].format(**values)


def retold(sentence: str) -> str:
    """A sentence of a result in the language now spoken, where the catalogue knows how it was made; else as it is.

    What stands in it is retold as well: a reason inside a reason, the advice of a warning.
    """
    return _said_again(sentence, RETOLD, retold)


def shown_name(name: str, *among: str) -> str:
    """A name that programs know in English, as people are shown it; one that no key beginning so has stays as it is."""
    return _said_again(name, among, str)


def _said_again(sentence: str, among: tuple[str, ...], value: Callable[[str], str]) -> str:
    """An English sentence in the language now spoken, where a key that begins so made it; its values pass `value`."""
    if language() == LANGUAGES[0]:
        return sentence
    key = _constants(among).get(sentence)
    if key is not None:
        return pattern(key)
    for form, known in _forms(among):
        if match := form.fullmatch(sentence):
            return _unformatted(pattern(known)).format(
                **{name: value(said) for name, said in match.groupdict().items()}
            )
    return sentence


@cache
def _constants(among: tuple[str, ...]) -> dict[str, str]:
    """Sentences without values, with their keys."""
    return {said: key for key, said in reversed(_beginning(among)) if "{" not in said}


@cache
def _forms(among: tuple[str, ...]) -> list[tuple[re.Pattern[str], str]]:
    """Sentences with values, those with the most words of their own first, with their keys."""
    found = [(said, key) for key, said in _beginning(among) if "{" in said]
    found.sort(key=lambda pair: -len(re.sub(r"\{\w+[^}]*\}", "", pair[0])))
    return [(_form(said), key) for said, key in found]


def _beginning(among: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(key, said) for key, said in catalogue(LANGUAGES[0]).items() if key.startswith(among)]


def _form(said: str) -> re.Pattern[str]:
    """What the text looks like with its values in it; a value that is formatted is a number."""
    parts = [
        (re.escape(words), name, r"[^\s()]+" if spec else ".+?")
        for words, name, spec, _ in string.Formatter().parse(said)
    ]
    return re.compile("".join(words + (f"(?P<{name}>{value})" if name else "") for words, name, value in parts))


def _unformatted(said: str) -> str:
    """A text whose values are words already."""
    return re.sub(r"\{(\w+)[^}]*\}", r"{\1}", said)
