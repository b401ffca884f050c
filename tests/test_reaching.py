"""What is printed to be typed next can be typed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from attncem.base.progress import silent
from attncem.campaigns.demonstration import Demo
from attncem.cli.main import main
from attncem.cli.verbs.reaching import activation, as_typed, own_command
from attncem.judging.auditing import audit


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with an environment that the shell does not know, and this process in its folder."""
    folder = tmp_path / ".venv" / "bin"
    folder.mkdir(parents=True)
    for name in ("python", "attncem", "activate"):
        (folder / name).write_text("")
    monkeypatch.setattr("sys.executable", str(folder / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    return folder


def test_a_command_that_the_shell_finds_is_called_by_its_name(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "attncem").write_text("")
    (tmp_path / "attncem").chmod(0o755)
    assert own_command() == "attncem"
    assert activation() == ""


def test_else_by_the_path_in_its_environment(environment: Path) -> None:
    assert own_command() == ".venv/bin/attncem"
    assert activation() == "source .venv/bin/activate"


def test_a_shell_in_another_folder_gets_whole_paths(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python3 elsewhere/dev.py demo` runs in the folder of dev.py."""
    monkeypatch.setenv("PWD", "/")
    assert own_command() == str(environment / "attncem")
    assert as_typed(Path("runs/demo")) == environment.parents[1] / "runs" / "demo"


def test_without_a_script_by_python(environment: Path) -> None:
    for name in ("attncem", "activate"):
        (environment / name).unlink()
    assert own_command() == ".venv/bin/python -m attncem"
    assert activation() == ""


def test_a_path_with_a_space_is_quoted(tmp_path: Path, environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = environment.rename(tmp_path / "my bin")
    monkeypatch.setattr("sys.executable", str(moved / "python"))
    assert shlex.split(own_command()) == ["my bin/attncem"]


@pytest.fixture
def after_the_demo(
    small_run: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> list[list[str]]:
    """The commands that the demo prints at its end, with a small run for the one that it makes."""
    run = small_run("demo")
    found = audit(run, "quick", only=["grey"], out=tmp_path / "audits", progress=silent)
    demo = Demo([run], [found], tmp_path / "report.html", tmp_path / "alone")
    monkeypatch.setattr("attncem.campaigns.demonstration.run_demo", lambda *_, **__: demo)
    monkeypatch.setattr("attncem.cli.verbs.reaching._NAME", "attncem-that-is-nowhere")
    monkeypatch.setattr("attncem.cli.verbs.reaching._beside_python", lambda name: None)
    monkeypatch.chdir(tmp_path)
    assert main(["demo"]) == 0
    said = capsys.readouterr().out
    assert f"report: {tmp_path / 'report.html'}" in said
    return [shlex.split(line) for line in re.findall(r"^  (\S.*)$", said.partition("next:")[2], re.MULTILINE)]


@pytest.mark.slow
def test_what_the_demo_ends_with_can_be_typed(
    after_the_demo: list[list[str]], tmp_path: Path, tiny: dict[str, Any]
) -> None:
    rng = np.random.default_rng(0)
    for number in range(80):
        file = tmp_path / "photos" / f"class-{number % 2}" / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (40, 48, 3), dtype=np.uint8)).save(file)
    explain, audited, own = [
        [word.replace("attncem-that-is-nowhere", "attncem").replace("FOLDER", "photos") for word in words]
        for words in after_the_demo
    ]
    short = ["training.epochs=2", "training.warmup_epochs=0", "training.batch_size=8"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    for words in (explain, [*audited, "--only", "grey"], [*own, *short]):
        done = subprocess.run(words, check=False, cwd=tmp_path, env=environment, capture_output=True)
        assert done.returncode == 0, (words, done.stderr.decode())
    assert words[0] == sys.executable
    assert (tmp_path / "explanation.html").is_file()
    assert (tmp_path / "runs" / "photos-001" / "manifest.json").is_file()
