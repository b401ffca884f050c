"""A run that is killed or interrupted, as a real process, ends with the same bytes as one that is not."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from attncem.base.progress import silent
from attncem.base.types import RunError
from attncem.records.listing import describe_runs
from attncem.records.runs import RunDirectory
from attncem.training.train import train
from forking import Forking, is_alive

EPOCHS = 6
STEPS = 15
COMMAND = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); " + (
    "from attncem.cli.main import main; sys.exit(main(sys.argv[1:]))"
)
"""`attncem`, with Ctrl-C as in a terminal even where the tests run in the background."""


@pytest.fixture(scope="module")
def settings(tiny: dict[str, Any]) -> dict[str, Any]:
    return {**tiny, "training.epochs": EPOCHS, "training.log_every": 1}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, settings: dict[str, Any]) -> Callable[[str], dict[str, bytes]]:
    """Fingerprint of the uninterrupted run of a configuration, trained once."""
    made: dict[str, dict[str, bytes]] = {}

    def fingerprint_of(config: str) -> dict[str, bytes]:
        if config not in made:
            out = tmp_path_factory.mktemp("reference") / config
            made[config] = fingerprint(train(config, settings, out=out, progress=silent))
        return made[config]

    return fingerprint_of


def fingerprint(run: RunDirectory) -> dict[str, bytes]:
    last = run.path / "checkpoints" / run.checkpoint_name("last")
    weights = {file.name: file.read_bytes() for file in last.glob("*.safetensors")}
    assert set(weights) == {"client.safetensors", "server.safetensors", "surrogate.safetensors"}
    facts = {"last": last.name.encode(), "best": run.checkpoint_name("best").encode()}
    return {"metrics": (run.path / "metrics.jsonl").read_bytes(), **facts, **weights}


@pytest.fixture(scope="module")
def commands() -> Iterator[Forking]:
    """The command, begun in milliseconds."""
    with Forking(
        "import attncem.training.train\nfrom attncem.cli.main import main\ndef work(*words): main(words)"
    ) as made:
        yield made


@contextmanager
def attncem(*words: str) -> Iterator[subprocess.Popen[str]]:
    """The command as a process that does not outlive the test."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def begin(config: str, out: Path, settings: dict[str, Any]) -> tuple[str, ...]:
    return ("train", "--config", config, "--out", str(out), *(f"{key}={value}" for key, value in settings.items()))


def until_lines(out: Path, lines: int, works: Callable[[], bool]) -> None:
    """Until metrics.jsonl has so many lines; the process must still be at work then."""
    metrics, deadline = out / "metrics.jsonl", time.monotonic() + 120
    while not (metrics.exists() and metrics.read_bytes().count(b"\n") >= lines):
        assert works(), "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_killed_twice(
    tmp_path: Path, commands: Forking, settings: dict[str, Any], reference: Callable[[str], dict[str, bytes]]
) -> None:
    out = tmp_path / "run"
    first = commands.begin(*begin("demo-kmeans", out, settings))
    until_lines(out, STEPS // 2, lambda: is_alive(first))
    os.kill(first, signal.SIGSTOP)  # it must not come to its first checkpoint meanwhile
    with pytest.raises(RunError, match="being trained by another process"):
        train(resume=out, progress=silent)
    assert describe_runs(tmp_path)[0][1] == "running"
    assert commands.kill(first) == -signal.SIGKILL
    run = RunDirectory.open(out)
    assert run.checkpoints() == []
    assert run.manifest["status"] == "running"
    assert describe_runs(tmp_path)[0][1] == "interrupted"
    second = commands.begin("train", "--resume", str(out))
    until_lines(out, 3 * STEPS, lambda: is_alive(second))
    assert commands.kill(second) == -signal.SIGKILL
    assert 1 <= len(run.checkpoints()) < EPOCHS
    assert run.manifest["status"] == "running"
    train(resume=run, progress=silent)
    assert run.manifest["status"] == "finished"
    assert fingerprint(run) == reference("demo-kmeans")


def test_interrupted_by_the_keyboard(
    tmp_path: Path, settings: dict[str, Any], reference: Callable[[str], dict[str, bytes]]
) -> None:
    out = tmp_path / "run"
    with attncem(*begin("demo", out, settings)) as process:
        until_lines(out, 2 * STEPS, lambda: process.poll() is None)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"attncem: interrupted; resume with: attncem train --resume {out}" in errors
    assert "Traceback" not in errors
    assert RunDirectory.open(out).manifest["status"] == "stopped"
    assert fingerprint(train(resume=out, progress=silent)) == reference("demo")


@pytest.mark.slow
@pytest.mark.parametrize("config", ["demo-none", "demo-kmeans", "demo"])
def test_killed_again_and_again(
    tmp_path: Path,
    commands: Forking,
    settings: dict[str, Any],
    reference: Callable[[str], dict[str, bytes]],
    config: str,
) -> None:
    out = tmp_path / "run"
    chance = random.Random(config)
    words = begin(config, out, settings)
    for lines in (3, 2 * (STEPS + 1) + 7, chance.randrange(3 * STEPS, 5 * STEPS)):
        child = commands.begin(*words)
        until_lines(out, lines, lambda child=child: is_alive(child))
        time.sleep(0.05 * chance.random())
        assert commands.kill(child) == -signal.SIGKILL, "it was over before it could be killed"
        words = ("train", "--resume", str(out))
    assert fingerprint(train(resume=out, progress=silent)) == reference(config)
