"""How to call this command again: by its name if the shell finds it, otherwise by its environment's path."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

_NAME = "attncem"


def own_command() -> str:
    """The command line for `attncem` in the shell that started this process."""
    if shutil.which(_NAME):
        return _NAME
    script = _beside_python(f"{_NAME}.exe" if os.name == "nt" else _NAME)
    return _quoted(script) if script else f"{_quoted(Path(sys.executable))} -m {_NAME}"


def activation() -> str:
    """The command that puts `attncem` on the shell's path; empty if it is there, or if there is nothing to activate."""
    script = None if shutil.which(_NAME) else _beside_python("activate")
    if script is None:
        return ""
    return _quoted(script) if os.name == "nt" else f"source {_quoted(script)}"


def as_typed(path: Path) -> Path:
    """A path to type: relative if this process and the shell are in the same folder."""
    here = Path.cwd()
    absolute = path.absolute()  # not resolved: an environment's python is a symbolic link
    same = Path(os.environ.get("PWD", here)).resolve() == here.resolve()
    return absolute.relative_to(here) if same and absolute.is_relative_to(here) else absolute


def _beside_python(name: str) -> Path | None:
    file = Path(sys.executable).with_name(name)
    return file if file.is_file() else None


def _quoted(path: Path) -> str:
    typed = as_typed(path)
    return f'"{typed}"' if os.name == "nt" else shlex.quote(str(typed))
