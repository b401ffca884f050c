"""scripts/try_pythons.py: which interpreters are tested, what is said of those that are missing, and what is kept."""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

import pytest

from scripts import try_pythons

ROOT = Path(__file__).parent.parent


@pytest.fixture
def interpreters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with Python 3.11 on the path, a broken 3.12, and 3.13 of pyenv; environments are only folders."""
    for place, script in (
        ("bin/python3.11", "echo 3.11"),
        ("bin/python3.12", "exit 127"),
        ("pyenv/versions/3.13.1/bin/python", "echo 3.13"),
    ):
        file = tmp_path / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(try_pythons, "PYENV", tmp_path / "pyenv")
    monkeypatch.setattr(try_pythons, "FOLDER", tmp_path / "environments")
    return tmp_path


@pytest.fixture
def calls(interpreters: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that are called; those with the word `fail` fail, and venv makes a folder."""
    made: list[list[str]] = []

    def call(*words: str | Path) -> int:
        made.append([str(word) for word in words])
        if "venv" in words:
            Path(words[-1]).mkdir(parents=True)
        return int("fail" in words and "3.13" in str(words[0]))

    monkeypatch.setattr(try_pythons, "call", call)
    return made


def test_each_interpreter_of_the_machine_is_tested_and_the_others_are_named(
    calls: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert try_pythons.main(["-k", "metrics"]) == 0
    assert capsys.readouterr().out == "Python 3.11: passed, Python 3.12: not on this machine, Python 3.13: passed\n"
    assert [words[1:3] for words in calls] == [["-m", "venv"], ["-m", "pip"], ["-m", "pip"], ["-m", "pytest"]] * 2
    assert calls[1][-1].startswith("torch==") and calls[2][7:10] == ["constraints.txt", "-e", "."]
    assert calls[3][-2:] == ["-k", "metrics"] and "not slow" in calls[3]


def test_an_environment_is_made_once_for_its_requirements(
    calls: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    try_pythons.main([])
    calls.clear()
    try_pythons.main([])
    assert len(calls) == 2, "only the tests"
    changed = {**try_pythons.requirements(), "dev": ["pytest"]}
    monkeypatch.setattr(try_pythons, "requirements", lambda: changed)
    try_pythons.main([])
    assert len(calls) == 2 + 8


def test_a_failure_is_named_and_counts(calls: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert try_pythons.main(["fail"]) == 1
    assert capsys.readouterr().out.endswith("Python 3.13: failed\n")


def test_the_classifiers_are_versions_that_the_script_tries() -> None:
    for file in ("pyproject.toml", "edge/pyproject.toml"):
        project = tomllib.loads((ROOT / file).read_text(encoding="utf-8"))["project"]
        named = [line.rpartition(" ")[2] for line in project["classifiers"] if " :: Python :: 3." in line]
        assert named and set(named) <= set(try_pythons.VERSIONS) and project["requires-python"] == f">={named[0]}"


def test_it_needs_the_standard_library_alone() -> None:
    tree = ast.parse(Path(try_pythons.__file__).read_text(encoding="utf-8"))
    names = {
        node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert names <= sys.stdlib_module_names
