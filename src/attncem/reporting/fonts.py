"""Fonts of figures: an installed font for letters that matplotlib's default font lacks."""

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
"""Matplotlib ships this font."""
FURTHER: dict[str, tuple[str, ...]] = {
    "zh": (
        *("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "Source Han Sans CN", "PingFang SC"),
        *("Hiragino Sans GB", "Microsoft YaHei", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "SimHei"),
        *("Noto Sans CJK JP", "Droid Sans Fallback"),
    ),
}
"""Fonts that cover a language, best first."""


@cache
def further(word: str) -> str | None:
    """The installed font for a language that needs one; None where no font is needed or installed."""
    if word not in FURTHER:
        return None
    return _installed(FURTHER[word]) or (_installed(FURTHER[word]) if _look_again() else None)


def _installed(names: Sequence[str]) -> str | None:
    installed = set(font_manager.get_font_names())
    return next((name for name in names if name in installed), None)


def _look_again() -> bool:
    """Add fonts that were installed after matplotlib cached its font list; True if there were any."""
    fonts = font_manager.fontManager
    listed = {font.fname for font in fonts.ttflist}
    new = [file for file in font_manager.findSystemFonts() if file not in listed]
    for file in new:
        with suppress(OSError, RuntimeError):  # a file that only looks like a font
            fonts.addfont(file)
    return bool(new)


def families() -> Any:
    """Font settings for the current language; matplotlib draws each letter with the first font that has it."""
    font = further(language())
    return {"font.family": [OWN, font]} if font else {}


def pdf_type(figure: Figure) -> int:
    """The font type of a PDF: 42 (embedded font), or 3 (outlines) where a figure uses further fonts.

    For type 42, matplotlib declares fonts with cubic outlines (most Chinese fonts) as fonts with quadratic outlines;
    some PDF readers reject them.
    """
    return 3 if any(len(words.get_fontfamily()) > 1 for words in figure.findobj(Text)) else 42


def is_lacking() -> bool:
    """Whether figures in files cannot show the current language: its letters would be empty boxes."""
    return language() in FURTHER and further(language()) is None


def drawable() -> str:
    """The language of figures in files: the current one, or English where no installed font has its letters."""
    return LANGUAGES[0] if is_lacking() else language()
