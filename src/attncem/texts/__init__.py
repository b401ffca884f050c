"""The catalogue: every sentence that a report, a page, a table or a finding shows to people stands in one place.

A text has a dotted key and may hold {names} for values. Another language is another folder beside `en`.
"""

from __future__ import annotations

from typing import Any

from attncem.texts.en import TEXTS


def text(key: str, /, **values: Any) -> str:
    """The text of a key with its values put in; an unknown key is our mistake."""
    return pattern(key).format(**values)


def pattern(key: str) -> str:
    """The text of a key as it stands in the catalogue, with {names} for values."""
    return TEXTS[key]


def has_text(key: str) -> bool:
    """Whether the catalogue has this key."""
    return key in TEXTS
