"""Fonts of figures: what draws letters that matplotlib's own font lacks, where such a font is installed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.text import Text

from attncem.base.texts import LANGUAGES, language

OWN = "DejaVu Sans"
"""Comes with matplotlib."""
FURTHER: dict[str, tuple[str, ...]] = {
    "zh": (
        *("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "Source Han Sans CN", "PingFang SC"),
        *("Hiragino Sans GB", "Microsoft YaHei", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "SimHei"),
        *("Noto Sans CJK JP", "Droid Sans Fallback"),
    ),
}
"""Fonts with the letters of a language, the best first."""


@cache
def further(word: str) -> str | None:
    """The installed font for a language that needs one; None where there is none, or none is needed."""
    if word not in FURTHER:
        return None
    return _installed(FURTHER[word]) or (_installed(FURTHER[word]) if _look_again() else None)


def _installed(names: Sequence[str]) -> str | None:
    installed = set(font_manager.get_font_names())
    return next((name for name in names if name in installed), None)


def _look_again() -> bool:
    """Take in fonts that were installed since matplotlib made its list, which it keeps; whether there were any."""
    fonts = font_manager.fontManager
    listed = {font.fname for font in fonts.ttflist}
    new = [file for file in font_manager.findSystemFonts() if file not in listed]
    for file in new:
        with suppress(OSError, RuntimeError):  # a file that only looks like a font
            fonts.addfont(file)
    return bool(new)


def families() -> Any:
    """What figures in the language now spoken need: fonts by name, for a letter is drawn with the first that has it."""
    font = further(language())
    return {"font.family": [OWN, font]} if font else {}


def pdf_type(figure: Figure) -> int:
    """How a PDF keeps the letters of a figure: as a font (type 42), or those of further fonts as outlines (type 3).

    As type 42 matplotlib names a font of cubic outlines, as most for Chinese are, one of quadratic ones, which not
    every reader forgives.
    """
    return 3 if any(len(words.get_fontfamily()) > 1 for words in figure.findobj(Text)) else 42


def is_lacking() -> bool:
    """Whether figures in files cannot show the language now spoken: their letters would be empty boxes."""
    return language() in FURTHER and further(language()) is None


def drawable() -> str:
    """The language of figures in files: the one now spoken, or English where no font has its letters."""
    return LANGUAGES[0] if is_lacking() else language()
