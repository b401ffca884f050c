"""How a person reaches this command again: by its name where the shell finds it, else by its environment's path."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

_NAME = "attncem"


def own_command() -> str:
    """What to type for `attncem` in the shell that this process was started from."""
    if shutil.which(_NAME):
        return _NAME
    script = _beside_python(f"{_NAME}.exe" if os.name == "nt" else _NAME)
    return _quoted(script) if script else f"{_quoted(Path(sys.executable))} -m {_NAME}"


def activation() -> str:
    """What makes the shell find `attncem` by its name; empty where it does, or where there is nothing to activate."""
    script = None if shutil.which(_NAME) else _beside_python("activate")
    if script is None:
        return ""
    return _quoted(script) if os.name == "nt" else f"source {_quoted(script)}"


def as_typed(path: Path) -> Path:
    """A path as it can be typed: relative where this process is in the folder that the shell is in."""
    here = Path.cwd()
    absolute = path.absolute()  # not resolved: an environment's python is a link
    same = Path(os.environ.get("PWD", here)).resolve() == here.resolve()
    return absolute.relative_to(here) if same and absolute.is_relative_to(here) else absolute


def _beside_python(name: str) -> Path | None:
    file = Path(sys.executable).with_name(name)
    return file if file.is_file() else None


def _quoted(path: Path) -> str:
    typed = as_typed(path)
    return f'"{typed}"' if os.name == "nt" else shlex.quote(str(typed))
