"""Pages of docs/ that say step by step how to add something: followed to the letter in a copy of the project."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
STEP = re.compile(
    r"^(?:New file `(?P<new>[^`]+)`"
    r"|At the end of `(?P<end>[^`]+)`"
    r"|In `(?P<file>[^`]+)`, (?P<side>before|after) the line `(?P<line>[^`]+)`):\n"
    r"```\w+\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def read_page(name: str) -> str:
    """A page of docs/."""
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def read_part(name: str, heading: str) -> str:
    """The part of a page of docs/ below a heading of the second level."""
    (part,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", read_page(name), re.MULTILINE | re.DOTALL)
    return str(part)


def follow(page: str, root: Path) -> None:
    """Put every block where the page says."""
    for step in STEP.finditer(page):
        file = root / (step["new"] or step["end"] or step["file"])
        if step["new"]:
            assert not file.exists(), f"{file} is not new"
            file.write_text(step["code"], encoding="utf-8")
        elif step["end"]:
            file.write_text(file.read_text(encoding="utf-8") + step["code"], encoding="utf-8")
        else:
            insert(file, step["line"], step["code"], after=step["side"] == "after")


def insert(file: Path, anchor: str, code: str, *, after: bool) -> None:
    """Put the code beside the one line that is the anchor, but for its indentation."""
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    places = [number for number, line in enumerate(lines) if line.strip() == anchor]
    assert len(places) == 1, f"{file.name}: the line {anchor!r} stands there {len(places)} times"
    place = places[0] + after
    file.write_text("".join([*lines[:place], code, *lines[place:]]), encoding="utf-8")


def copy_project(to: Path) -> Path:
    """A copy of what the pages touch, with the bytecode of what stays as it is."""
    for folder in ("src", "tests", "docs", "scripts"):
        shutil.copytree(ROOT / folder, to / folder, ignore=shutil.ignore_patterns("*.pyc.*"))  # half written
    for name in ("pyproject.toml", "dev.py", "README.md", "README.zh-CN.md"):
        shutil.copy(ROOT / name, to / name)
    return to


def run_python(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Python with the copy's package, in the copy."""
    environment = {**os.environ, "PYTHONPATH": str(project / "src"), "OMP_NUM_THREADS": "1"}
    environment = {key: value for key, value in environment.items() if not key.startswith("PYTEST_XDIST")}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


def run_testers(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The copy's own tests."""
    return run_python(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words)
