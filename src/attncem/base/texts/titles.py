"""Names as people are shown them: rows of the packaged suites, stages that a progress is told, figures beside a bar.

Files, options and callbacks have these names in English, and an own name is everywhere as it was given: ask here
where a name is shown, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable

from attncem.base.texts import LANGUAGES, language, shown_name, text

_HEADS = ("stage.", "row.")
_PARTS = ("row.", "stage.part.")


def row_title(name: str) -> str:
    """A row's name as it is shown."""
    return shown_name(name, "row.")


def row_titles(names: Iterable[str]) -> str:
    """The names of several rows, in one line."""
    return ", ".join(map(row_title, names))


def stage_title(stage: str) -> str:
    """A stage as it is shown. It is called VERB NAME: ROW: PART; a run's name stays, and so does every other word."""
    if language() == LANGUAGES[0]:
        return stage
    head, *parts = stage.split(": ")
    said = shown_name(head, *_HEADS)
    for part in parts:
        said = text("said.about", about=said, said=shown_name(part, *_PARTS))
    return said


def number_title(name: str) -> str:
    """The name of a figure beside a bar, as it is shown."""
    return shown_name(name, "number.")


def failed_at(stage: str) -> str:
    """The step at which a cell of a campaign failed, as it is shown."""
    return shown_name(stage, "failed_at.")
