"""docs/plugins.md, executed outside the repository, and a campaign with its plugins, killed and resumed."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pages import ROOT, STEP, follow, read_page

PAGE = read_page("plugins.md")
COMMANDS = [
    line for block in PAGE.split("```\n")[1:] for line in block.splitlines() if line.startswith(("att", "pyth"))
]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
QUICK = ("training.epochs=1", "model.width=4", "data.held_out_fraction=0.8", "training.batch_size=32", "device=cpu")
"""Overrides that make the page's runs short."""


def called(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )


def as_words(command: str) -> list[str]:
    """The words for Python: the package's command with short runs."""
    first, *words = shlex.split(command)
    if first == "python":
        return words
    trains = words[0] == "train" and "--help" not in words
    kept = [word for word in words if not word.startswith("training.epochs")]
    return [
        "-m",
        "attncem",
        *(kept if trains else words),
        *(QUICK if trains or words[:2] == ["campaign", "run"] else ()),
    ]


def test_every_block_of_the_page_is_a_file_or_a_command() -> None:
    files = STEP.findall(PAGE)
    assert len(files) == 6 and len(COMMANDS) == 8
    assert PAGE.count("```") == 2 * (len(files) + 4 + 1)  # four blocks of commands, one of TOML


@pytest.mark.slow
def test_the_page_works_outside_the_repository(tmp_path: Path) -> None:
    follow(PAGE, tmp_path)
    for command in COMMANDS:
        done = called(tmp_path, *as_words(command))
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "deviation" in page and "blend" in page
    assert (tmp_path / "own/report.html").is_file()
    alone = called(tmp_path, "-m", "attncem", "explain", "run", "test:1")
    assert alone.returncode == 2
    assert "run uses the surrogate deviation of the plugin deviation.py (sha256" in alone.stderr
    assert "name it with --plugin FILE.py" in alone.stderr


@pytest.mark.slow
def test_a_campaign_with_plugins_is_killed_and_resumed(tmp_path: Path) -> None:
    follow(PAGE, tmp_path)
    words = ["-m", "attncem", "campaign", "run", "campaign.yaml", "--out", "own", "--workers", "2"]
    named = ["--plugin", "deviation.py", "--plugin", "blend.py"]
    long = [*QUICK[1:], "training.epochs=40"]
    log = (tmp_path / "log").open("w")
    process = subprocess.Popen(
        [sys.executable, *words, *named, *long], cwd=tmp_path, env=ENVIRONMENT, stderr=log, stdout=log
    )
    checkpoints = tmp_path / "own/runs/deviation-s0/checkpoints"
    until = time.monotonic() + 120
    while not list(checkpoints.glob("epoch-*")) and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    log.close()
    time.sleep(1)  # the workers end with their parent
    begun = json.loads((tmp_path / "own/runs/deviation-s0/manifest.json").read_text())
    assert begun["status"] == "running" and [use["file"] for use in begun["plugins"]] == ["deviation.py"]
    resume = ["-m", "attncem", "campaign", "run", "own", "--workers", "2"]
    done = called(tmp_path, *resume)
    assert done.returncode == 2 and "own uses the surrogate deviation of the plugin deviation.py" in done.stderr
    text = (tmp_path / "deviation.py").read_text(encoding="utf-8")
    (tmp_path / "deviation.py").write_text(f"{text}# another\n", encoding="utf-8")
    done = called(tmp_path, *resume, *named)
    assert done.returncode == 2 and "own began with the surrogate deviation" in done.stderr
    (tmp_path / "deviation.py").write_text(text, encoding="utf-8")
    done = called(tmp_path, *resume, *named)
    assert done.returncode == 0, done.stderr
    for name in ("none-s0", "deviation-s0"):
        assert json.loads((tmp_path / f"own/runs/{name}/manifest.json").read_text())["status"] == "finished"
    assert called(tmp_path, "-m", "attncem", "campaign", "report", "own").returncode == 0
