"""Displayed names: rows of the packaged suites, threat models, channels, stages and numbers of progress.

Files, options and callbacks use the English names; a name that a user chose is never translated. Call this module
only where a name is displayed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from attncem.base.texts import LANGUAGES, catalogue, has_text, language, pattern, text, translated, written

FROM_SENT = ", from sent images"
"""End of the name of a row that learned only from images that a client with a head would send."""
_HEADS = ("stage.", "row.")
_PARTS = ("row.", "stage.part.")
_EXTENDED = re.compile(r"(?P<name>.+?)(?:-(?P<mark>[xqn])(?P<number>\d+)|\+(?P<pictures>[\w.]+)|-(?P<answers>answers))")
"""The name of a threat model with one mark at its end."""


def row_title(name: str) -> str:
    """A row's name as it is shown."""
    if name.endswith(FROM_SENT):
        return text("row.from_sent", name=_title(name.removesuffix(FROM_SENT), "row."))
    return _title(name, "row.")


def row_titles(names: Iterable[str]) -> str:
    """The names of several rows, in one line."""
    return ", ".join(map(row_title, names))


def stage_title(stage: str) -> str:
    """A stage as it is shown. It is called VERB NAME: ROW: PART; a run's name stays, and so does every other word."""
    if language() == LANGUAGES[0]:
        return stage
    head, *parts = stage.split(": ")
    said = _title(head, *_HEADS)
    for part in parts:
        said = text("said.about", about=said, said=_title(part, *_PARTS))
    return said


def number_title(name: str) -> str:
    """The name of a figure beside a bar, as it is shown."""
    return _title(name, "number.")


def failed_at(stage: str) -> str:
    """The step at which a cell of a campaign failed, as it is shown."""
    return _title(stage, "failed_at.")


def threat_word(name: str) -> str:
    """A threat model's name as results store it: a sentence that can be translated, or the name of a user's own."""
    if match := _EXTENDED.fullmatch(name):
        base, number = threat_word(match["name"]), match["number"]
        if match["answers"]:
            return written("threat.seeing_answers", name=base)
        if match["mark"] == "x":
            return written("threat.repeated", name=base, releases=number)
        if match["mark"] == "q":
            return written("threat.asking", name=base, queries=number)
        if match["mark"] == "n":
            return written("threat.owning", name=base, images=number)
        return written("threat.of_pictures", name=base, pictures=match["pictures"])
    return written(f"threat_name.{name}") if has_text(f"threat_name.{name}") else name


def threat_title(name: str) -> str:
    """A threat model's name as it is shown."""
    return translated(threat_word(name))


def noise_title(kind: str) -> str:
    """A kind of noise, fresh or keyed, as it is shown."""
    return _title(kind, "noise_name.")


def channel_title(name: str) -> str:
    """A channel's name as it is shown."""
    return _title(name, "channel_name.")


def images_title(part: str) -> str:
    """A part of a data set, such as test or validation, as it is shown."""
    return _title(part, "images_name.")


def _title(name: str, *kinds: str) -> str:
    """A name in the language now spoken, where a key of these kinds has it in English; else as it is."""
    key, values = ("", {}) if language() == LANGUAGES[0] else _match(name, kinds)
    return re.sub(r"{(\w+)[^}]*}", r"{\1}", pattern(key)).format(**values) if key else name


@lru_cache(maxsize=1024)
def _match(name: str, kinds: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    """The key of an English name and the values in it; no key where the catalogue does not have the name."""
    names = [(key, english) for key, english in catalogue(LANGUAGES[0]).items() if key.startswith(kinds)]
    for key, english in names:
        form = re.sub(r"\\{(\w+)[^}]*\\}", r"(?P<\1>.+)", re.escape(english))
        if match := re.fullmatch(form, name):
            return key, match.groupdict()
    return "", {}
