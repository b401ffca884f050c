"""Killed at any moment, a run can be resumed or made again, and ends with the same bytes."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attncem.base.progress import silent
from attncem.base.types import RunError
from attncem.records.runs import RunDirectory
from attncem.training.train import train
from forking import Forking, is_alive

KILLED_AT_EVERY_CALL = """
import os, signal, sys
from pathlib import Path

CALLS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "shutil.rmtree")

def kill_at(number):
    "Die by SIGKILL right before the call of this number that touches a file."
    done = 0
    def hook(event, arguments):
        nonlocal done
        if event in CALLS and not (event == "open" and not str(arguments[0]).startswith(ROOT)):
            done += 1
            if done > number:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)

def killed(number, work):
    child = os.fork()
    if child == 0:
        kill_at(number)
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL

ROOT = sys.argv[1]
"""

MAKING = (
    KILLED_AT_EVERY_CALL
    + """
from attncem.records.listing import list_runs
from attncem.records.runs import RunDirectory
from attncem.base.types import RunError

def make(folder):
    return RunDirectory.create(folder, config_yaml="name: mine", manifest={"name": "run"}, key=bytes(range(32)))

number, kinds = 0, set()
for existing in (False, True):
    number = 0
    while True:
        folder = Path(ROOT) / f"run-{existing}-{number}"
        if existing:
            folder.mkdir()
        if not killed(number, lambda: make(folder)):
            break
        try:
            run = RunDirectory.open(folder)
            kinds.add("whole")
        except RunError:
            assert not any(run.path == folder for run in list_runs(ROOT)), "half a run is listed"
            assert not killed(10**9, lambda: make(folder)), number
            run = RunDirectory.open(folder)
            kinds.add("again")
        run.clear_leftovers()
        assert (run.config_yaml, run.manifest["status"], run.noise_key) == ("name: mine", "running", bytes(range(32)))
        assert {path.name for path in folder.iterdir()} == {
            "checkpoints", "audits", "noise.key", "config.yaml", "manifest.json"
        }, number
        number += 1
print(number, *sorted(kinds))
"""
)

SAVING = (
    KILLED_AT_EVERY_CALL
    + """
import torch
from attncem.records.runs import RunDirectory

def save(run, epoch):
    name = f"epoch-{epoch:05d}"
    facts = {"epoch": epoch, "step": epoch, "best": {"checkpoint": name}, "offsets": {}}
    run.save({"client": {"a": torch.full((3,), float(epoch))}}, {}, facts)

number, newest = 0, set()
while True:
    run = RunDirectory.create(Path(ROOT) / f"run-{number}", config_yaml="", manifest={})
    for epoch in (1, 2, 3):
        save(run, epoch)
    again = number % 2
    if not killed(number, lambda: save(run, 4 - again)):
        break
    if not again:
        assert run.load("best").name in run.checkpoints()
    run.clear_leftovers()
    found, problems = run.load_newest_intact()
    assert problems == [], problems
    assert float(found.weights["client"]["a"][0]) == found.facts["epoch"]
    assert not list(run.path.rglob(".partial-*"))
    newest.add(found.facts["epoch"])
    number += 1
print(number, *sorted(newest))
"""
)


def run_script(script: str, root: Path) -> list[str]:
    done = subprocess.run([sys.executable, "-c", script, str(root)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_making_of_a_run_may_be_killed_at_every_call(tmp_path: Path) -> None:
    number, *kinds = run_script(MAKING, tmp_path)
    assert int(number) > 15, "every call was tried"
    assert kinds == ["again", "whole"]


def test_the_saving_of_a_checkpoint_may_be_killed_at_every_call(tmp_path: Path) -> None:
    number, *newest = run_script(SAVING, tmp_path)
    assert int(number) > 15, "every call was tried"
    assert newest == ["2", "3", "4"]


# a whole training as a process


@pytest.fixture(scope="module")
def settings(tiny: dict[str, Any]) -> dict[str, Any]:
    return {**tiny, "device": "cpu", "training.epochs": 4, "training.log_every": 1}


def fingerprint(run: RunDirectory) -> dict[str, bytes]:
    last = run.path / "checkpoints" / run.checkpoint_name("last")
    weights = {file.name: file.read_bytes() for file in last.glob("*.safetensors")}
    assert len(weights) == 3
    facts = {"last": last.name.encode(), "best": run.checkpoint_name("best").encode()}
    return {"metrics": (run.path / "metrics.jsonl").read_bytes(), **facts, **weights}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, settings: dict[str, Any]) -> dict[str, bytes]:
    return fingerprint(train("demo-kmeans", settings, out=tmp_path_factory.mktemp("whole") / "run", progress=silent))


TRAINING = """
from pathlib import Path
from attncem.base.progress import silent
from attncem.training.train import train

def work(out, settings):
    if (Path(out) / "manifest.json").exists():
        train(resume=out, progress=silent)
    else:
        train("demo-kmeans", settings, out=out, progress=silent)
"""


@pytest.fixture(scope="module")
def trainings() -> Iterator[Forking]:
    with Forking(TRAINING) as forking:
        yield forking


def kill_after(trainings: Forking, out: Path, settings: dict[str, Any], seconds: float, lines: int = 0) -> bool:
    """Begin or resume in a process of its own; kill it so long after its folder has changed and its log has `lines`.

    Returns whether it was killed before its end.
    """
    before, deadline = changed(out), time.monotonic() + 120
    child = trainings.begin(str(out), settings)
    while (changed(out) == before or logged(out) < lines) and is_alive(child):
        assert time.monotonic() < deadline
        time.sleep(0.0005)
    time.sleep(seconds)
    return trainings.kill(child) == -signal.SIGKILL


def logged(out: Path) -> int:
    """The lines of its log."""
    log = out / "metrics.jsonl"
    return log.read_bytes().count(b"\n") if log.exists() else 0


def changed(out: Path) -> int:
    return out.stat().st_mtime_ns if out.exists() else 0


def go_on(out: Path, settings: dict[str, Any]) -> RunDirectory:
    """What a person can do: resume it, or, where it is no run yet, give the same command again."""
    try:
        run = RunDirectory.open(out)
    except RunError:
        return train("demo-kmeans", settings, out=out, progress=silent)
    return train(resume=run, progress=silent)


@pytest.mark.parametrize("seconds", [0.0, 0.02, 0.3])
def test_killed_in_the_first_moments_of_its_folder(
    tmp_path: Path, trainings: Forking, settings: dict[str, Any], reference: dict[str, bytes], seconds: float
) -> None:
    assert kill_after(trainings, tmp_path / "run", settings, seconds)
    run = go_on(tmp_path / "run", settings)
    assert run.manifest["status"] == "finished"
    assert fingerprint(run) == reference
    assert not list(run.path.rglob(".partial-*"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_killed_at_random_moments_again_and_again(
    tmp_path: Path, trainings: Forking, settings: dict[str, Any], reference: dict[str, bytes], seed: int
) -> None:
    chance = random.Random(seed)
    out = tmp_path / "run"
    steps = reference["metrics"].count(b"\n")
    kills = [kill_after(trainings, out, settings, chance.uniform(0, 0.005))]
    for start in (0.0, 0.2, 0.4, 0.6):  # by progress, not by time: a quick machine would be done
        lines = round(steps * chance.uniform(start, start + 0.2))
        kills.append(kill_after(trainings, out, settings, chance.uniform(0, 0.01), lines))
    assert sum(kills) >= 4, "nearly all were killed before their end"
    run = go_on(out, settings)
    assert fingerprint(run) == reference
    assert not list(run.path.rglob(".partial-*"))
