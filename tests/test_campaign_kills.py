"""Campaigns in processes of their own: killed at any moment, stopped, run twice; no worker outlives them."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from attncem.base.progress import silent
from attncem.campaigns import run_campaign
from attncem.campaigns.engines import ENGINES, EngineOptions
from attncem.cli.main import main
from attncem.records.campaign_folder import CampaignFolder
from campaigns import InProcess, campaign, numbers, stamps
from test_demonstration import marked, until

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
SCRIPT = "import sys; from attncem.cli.main import main; sys.exit(main(sys.argv[1:]))"


def started(words: list[str], mark: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, "campaign", *words],
        env={**os.environ, "TEST_MARK": mark, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def written(path: Path, given: dict[str, Any]) -> str:
    path.write_text(json.dumps(given))  # JSON is YAML
    return str(path)


def done_cells(out: Path) -> list[str]:
    views = CampaignFolder.open(out).views() if (out / "campaign.json").exists() else []
    return [view.cell.id for view in views if view.state == "done"]


def until_done(process: subprocess.Popen[str], out: Path, goal: int) -> None:
    """Wait until so many cells are done, or the process has ended."""
    deadline = time.monotonic() + 120
    while len(done_cells(out)) < goal and process.poll() is None:
        assert time.monotonic() < deadline, "no cell was done in time"
        time.sleep(0.2)


@pytest.mark.slow
def test_twelve_runs_killed_three_times_end_as_undisturbed_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = campaign(seeds=6)
    file, out, calm = written(tmp_path / "c.yaml", given), tmp_path / "out", tmp_path / "calm"
    dice, mark = random.Random(time.time_ns()), f"mark-{uuid.uuid4()}"
    finished: dict[str, int] = {}
    for kill in range(4):
        process = started(["run", file, "--out", str(out), "--workers", "2"], mark)
        try:
            if kill < 3:
                goal = len(done_cells(out)) + 1
                until_done(process, out, goal)
                time.sleep(dice.random())
                process.kill()
            said, _ = process.communicate(timeout=240)
            until(lambda: not marked(mark), 10)
        finally:
            process.kill()
            process.wait()
        now = stamps(out)
        assert finished.items() <= now.items(), "what was done is never touched again"
        finished = {name: now[name] for name in now if name.split("/")[1] in done_cells(out)}
        assert kill == 3 or process.returncode in (-signal.SIGKILL, 0)
    assert process.returncode == 0, said
    assert len(done_cells(out)) == 12
    events = Counter((line["event"], line.get("cell")) for line in CampaignFolder.open(out).events())
    assert max(times for (event, _), times in events.items() if event == "done") == 1
    assert not list((out / "failures").iterdir())
    monkeypatch.setitem(ENGINES, "local", InProcess)
    InProcess.worked = []
    assert run_campaign(given, out=calm, options=EngineOptions(workers=1), progress=silent).done
    assert numbers(out) == numbers(calm)


@pytest.mark.slow
def test_a_running_campaign_refuses_a_second_and_stops_with_its_workers(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = campaign(set={**campaign()["set"], "training.epochs": 5000})
    file, out, mark = written(tmp_path / "c.yaml", given), tmp_path / "out", f"mark-{uuid.uuid4()}"
    process = started(["run", file, "--out", str(out), "--workers", "2"], mark)
    try:
        until(lambda: len(list(out.glob("runs/*/metrics.jsonl"))) == 2, 120)
        assert len(marked(mark)) >= 3
        assert main(["campaign", "run", str(out)]) == 2
        assert "is being run by another process" in capfd.readouterr().err
        assert main(["campaign", "export", str(out), str(tmp_path / "a.zip")]) == 2
        assert {view.state for view in CampaignFolder.open(out).views()} == {"running"}
        assert main(["campaign", "stop", str(out)]) == 0
        said, _ = process.communicate(timeout=20)
        until(lambda: not marked(mark), 10)
    finally:
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 0
    assert "stopped as requested" in said
    assert {view.state for view in CampaignFolder.open(out).views()} == {"interrupted"}


@pytest.mark.slow
def test_a_killed_worker_fails_its_cell_and_the_others_go_on(tmp_path: Path) -> None:
    arms = {"long": {"set": {"training.epochs": 5000}}, "short": {}, "next": {"set": {"model.width": 5}}}
    file, out = written(tmp_path / "c.yaml", campaign(arms=arms)), tmp_path / "out"
    mark = f"mark-{uuid.uuid4()}"
    process = started(["run", file, "--out", str(out), "--workers", "2"], mark)
    try:
        until(lambda: set(done_cells(out)) == {"short-s0", "next-s0"}, 120)
        os.kill(_holder(out / "runs/long-s0/.lock", marked(mark)), signal.SIGKILL)
        said, _ = process.communicate(timeout=60)
    finally:
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 3, said
    assert "long-s0 failed (process)" in said
    assert "ended unexpectedly" in said


def _holder(file: Path, pids: list[int]) -> int:
    """The process that has a file open."""
    for pid in pids:
        links = [link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()]
        if file in links:
            return pid
    raise AssertionError(f"nobody holds {file}")
