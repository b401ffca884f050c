"""Paths as other people see them: pages, results and archives hold no absolute path and no user's name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HOME = "~"
"""Stands for a user's home folder."""
_COMMON = {"", "root", "user", "users", "home", "data", "runs"}
"""Names of accounts that are ordinary words as well: they tell nothing about a person."""
_HOMES = r"(?:/(?:export/)?home|/Users|[A-Za-z]:[\\/](?:Users|Documents\ and\ Settings))"
_PART = r"""[^\s\\/'"<>|:;,()\[\]{}*?]+"""
_HOME_FOLDER = re.compile(rf"(?:file://)?{_HOMES}[\\/][^\\/]+[\\/]*|/root/*|~[\w.-]*[\\/]*")
_ABSOLUTE = re.compile(r"[\\/]|~|[A-Za-z]:[\\/]|file://")
_KEYS = ("root", "init_from", "config", "attacker_data", "folder", "path", "file", "source", "saved")
"""Keys of data whose text is a path and nothing else, with spaces or without."""
_KEYED = re.compile(
    r"""^([\s-]*(?:[\w.]+\.)?(?:root|init_from|config|attacker_data): )(["']?)([\\/~.A-Za-z][^\n]*?)\2$""", re.MULTILINE
)
"""Lines of a configuration with a path."""
_URL = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]+://")
_PATHS = re.compile(
    rf"""
    (?P<url>\b(?!file:)[A-Za-z][A-Za-z0-9+.-]+://\S*)
    | (?P<quote>["'])(?P<quoted>(?:file://|~[\w.-]*|[A-Za-z]:)?[\\/][^"'\n]*)(?P=quote)
    | (?<![A-Za-z0-9_.~+\\/])(?:
        (?:file://)?{_HOMES}[\\/](?:[^\\/\n'"<>:;,]{{1,64}}(?=[\\/])|{_PART})(?:[\\/]{_PART})*  # a name may hold spaces
        | (?:file://|~[\w.-]*|[A-Za-z]:|\\)?(?:[\\/]{_PART}){{2,}}
        | (?:~[\w.-]*|[A-Za-z]:|\.\.(?:[\\/]\.\.)*)(?:[\\/]{_PART})+
      )[\\/]?
    | (?:(?<=:\ )|(?<==)|^)/{_PART}/?(?=\s|$)
    """,
    re.VERBOSE | re.MULTILINE,
)


def shown_path(path: str | os.PathLike[str]) -> str:
    """A path for others: a relative one as it is, of any other the last name; a home folder is `~`."""
    text = os.fspath(path)
    if _URL.match(text):
        return text
    if _HOME_FOLDER.fullmatch(text) or text.rstrip("\\/") == str(Path.home()):
        return HOME
    parts = [part for part in re.split(r"[\\/]+", text) if part not in ("", ".")]
    if not (_ABSOLUTE.match(text) or ".." in parts):
        return _after_user(text)
    name = parts[-1] if parts else ""
    return HOME if name in (*_user_names(), "..", "") else name


def without_paths(text: str) -> str:
    """A text for others: every absolute path in it becomes its last name; addresses of the web stay."""
    if not any(mark in text for mark in "/\\") or text.startswith("data:"):
        return text
    home = str(Path.home())
    if len(home) > 1 and home in text:
        text = re.sub(rf"(?<![A-Za-z0-9_.~+\\/]){re.escape(home)}(?=[\\/])", "/home/-", text)
    text = _KEYED.sub(lambda line: f"{line[1]}{line[2]}{shown_path(line[3])}{line[2]}", text)
    return _after_user(_PATHS.sub(_replaced, text))


def without_paths_in(data: Any) -> Any:
    """Plain data (texts, lists, mappings) for others: the same without absolute paths."""
    if isinstance(data, str):
        return without_paths(data)
    if isinstance(data, Mapping):
        return {without_paths(key) if isinstance(key, str) else key: _entry(key, it) for key, it in data.items()}
    return [without_paths_in(item) for item in data] if isinstance(data, list | tuple) else data


def _entry(key: Any, value: Any) -> Any:
    is_path = isinstance(value, str) and isinstance(key, str) and key.rpartition(".")[2] in _KEYS
    return shown_path(value) if is_path else without_paths_in(value)


def _replaced(match: re.Match[str]) -> str:
    if match["url"] is not None:
        return match[0]
    if match["quote"] is not None:
        return f"{match['quote']}{shown_path(match['quoted'])}{match['quote']}"
    path = match[0].rstrip(".")  # the end of a sentence
    return shown_path(path) + match[0][len(path) :]


def _after_user(text: str) -> str:
    """A text in which no relative path leads through a folder with the user's name."""
    for name in _user_names():
        if name in text:
            text = re.sub(rf"(?<![\w.-])(?:[\w.-]+/)*{re.escape(name)}/", "", text)
    return text


def _user_names() -> set[str]:
    """Names of the current user."""
    named = {os.environ.get(key, "") for key in ("USER", "LOGNAME", "USERNAME")} | {Path.home().name}
    return {name for name in named if name.lower() not in _COMMON and len(name) > 2}
