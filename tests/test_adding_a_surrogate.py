"""docs/adding.md: a surrogate, executed step by step in a copy of the project."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pages import STEP, copy_project, follow, read_part, run_testers

PAGE = read_part("adding.md", "Adding a surrogate")
TESTERS = [
    "tests/contracts/test_surrogates.py",
    "tests/test_configs.py",
    "tests/test_recompute.py",
    "tests/test_readme.py",
    "tests/test_imports.py",
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return copy_project(tmp_path)


def test_every_block_of_the_page_is_a_step() -> None:
    assert len(STEP.findall(PAGE)) == PAGE.count("\n```\n") == 12


def test_the_page_makes_a_surrogate_that_passes_the_testers(project: Path) -> None:
    follow(PAGE, project)
    done = run_testers(project, *TESTERS, "-k", "deviation or first_line or imports", "-m", "not slow")
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
