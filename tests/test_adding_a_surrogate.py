"""docs/adding-a-surrogate.md, followed to the letter in a copy of the project."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/adding-a-surrogate.md").read_text(encoding="utf-8")
STEP = re.compile(
    r"^(?:New file `(?P<new>[^`]+)`"
    r"|At the end of `(?P<end>[^`]+)`"
    r"|In `(?P<file>[^`]+)`, (?P<side>before|after) the line `(?P<line>[^`]+)`):\n"
    r"```\w+\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
TESTERS = [
    "tests/contracts/test_surrogates.py",
    "tests/test_configs.py",
    "tests/test_recompute.py",
    "tests/test_readme.py",
    "tests/test_imports.py",
]


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
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    places = [number for number, line in enumerate(lines) if line.strip() == anchor]
    assert len(places) == 1, f"{file.name}: the line {anchor!r} stands there {len(places)} times"
    place = places[0] + after
    file.write_text("".join([*lines[:place], code, *lines[place:]]), encoding="utf-8")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what the page touches."""
    for folder in ("src", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "README.zh-CN.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def run_testers(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    environment = {**os.environ, "PYTHONPATH": str(project / "src"), "OMP_NUM_THREADS": "1"}
    environment = {key: value for key, value in environment.items() if not key.startswith("PYTEST_XDIST")}
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


def test_every_block_of_the_page_is_a_step() -> None:
    assert len(STEP.findall(PAGE)) == PAGE.count("\n```\n") == 14


def test_the_page_makes_a_surrogate_that_passes_the_testers(project: Path) -> None:
    follow(PAGE, project)
    done = run_testers(project, *TESTERS, "-k", "deviation or source_file or imports", "-m", "not slow")
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None and int(passed[1]) > 40, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("(x - groups.one_hot @ mean).abs()", "x.abs()"),
        ("keep = groups.counts >= 2", "keep = groups.counts >= 1"),
        ('    "deviation": deviation_reference,\n', ""),
        (
            "(deviation / unit).log1p().mean(1)",
            "(deviation / unit).log1p().mean(1) * (2 if deviation.max() > 0 else 1)",
        ),
    ],
    ids=["not centred", "single samples", "no oracle", "host read"],
)
def test_a_page_with_a_mistake_does_not_pass(project: Path, right: str, wrong: str) -> None:
    assert PAGE.count(right) == 1
    follow(PAGE.replace(right, wrong), project)
    done = run_testers(project, TESTERS[0], "-k", "deviation or has_cases", "-m", "not slow", "-x")
    assert done.returncode == 1, done.stdout
