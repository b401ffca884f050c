"""Attacks of an audit in several processes: the same numbers, every row at once, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncem.base.progress import silent
from attncem.base.types import ConfigError, RunError
from attncem.config.options.attacks import DecoderOptions, GreyOptions, MeanImageOptions, RidgeOptions
from attncem.config.options.probes import ByPictureOptions
from attncem.config.options.suites import Suite
from attncem.config.threats import THREATS
from attncem.judging.attacks.forecast import Seconds
from attncem.judging.auditing import audit
from attncem.judging.auditing.asked import Adversary, Compute
from attncem.judging.auditing.forecasting import _beside
from attncem.judging.auditing.workers import Brief, measured_beside
from attncem.judging.opening import open_run
from attncem.records.audit import AuditResult
from attncem.records.ledger import Ledger

ROWS = {
    "mean": MeanImageOptions(),
    "ridge": RidgeOptions(),
    "decoder": DecoderOptions(epochs=1, max_epochs=2),
    "pictures": ByPictureOptions(candidates=50),
    "again": RidgeOptions(num_releases=1),
    "grey": GreyOptions(),
}

needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads /proc")


def suite(rows: Mapping[str, Any]) -> Suite:
    return Suite(name="tried", version=1, meaning="for a test", rows=dict(rows))


def numbers(result: AuditResult) -> list[Any]:
    """All that is told but how long it took."""
    return [replace(row, seconds=0.0) for row in result.rows]


@pytest.mark.slow
def test_the_numbers_are_those_of_one_process(small_run: Callable[..., Path], tmp_path: Path) -> None:
    told: list[str] = []
    run = small_run("demo")
    alone = audit(run, suite(ROWS), out=tmp_path / "alone", progress=silent)
    beside = audit(run, suite(ROWS), out=tmp_path / "beside", workers=2, progress=lambda stage, *_: told.append(stage))
    assert numbers(beside) == numbers(alone)
    assert beside.row("pictures").by == alone.row("pictures").by, "probes see what all attacks before them left"
    assert any("decoder" in stage for stage in told), "workers tell how far they are"
    for name in ROWS:
        one, other = (Ledger.open(Path(result.folder)).scores(name).values for result in (alone, beside))
        assert all(np.array_equal(one[measure], other[measure]) for measure in one)
    names = [sorted(file.name for file in Path(result.folder).rglob("*")) for result in (alone, beside)]
    assert names[0] == names[1]


def brief_of(run: Path, **other: Any) -> Brief:
    subject = open_run(run).subject()
    adversary, compute = Adversary(THREATS["train"], seed=0), Compute("cpu", threads=1, workers=2)
    again = partial(open_run, run, weights=subject.weights)
    return replace(Brief(again, subject.fingerprint, adversary, compute), **other)


@pytest.mark.slow
def test_a_worker_that_cannot_begin_says_why(small_run: Callable[..., Path]) -> None:
    brief = brief_of(small_run("demo"), fingerprint="another")
    with pytest.raises(RunError, match=r"could not start: .* has changed since the audit began"):
        list(measured_beside(brief, {"grey": GreyOptions()}, silent))


@pytest.mark.slow
@needs_proc
def test_a_worker_that_is_killed_costs_its_row_alone(small_run: Callable[..., Path]) -> None:
    rows = {"grey": GreyOptions(), "long": DecoderOptions(epochs=1000, max_epochs=1000)}
    brief = brief_of(small_run("demo"), compute=Compute("cpu", threads=1, workers=1))
    found = measured_beside(brief, rows, silent)
    assert next(found).row.name == "grey"
    (worker,) = children(os.getpid())
    os.kill(worker, signal.SIGKILL)
    with pytest.raises(RunError, match=r"worked on long ended \(SIGKILL\); finished rows are kept"):
        next(found)
    assert children(os.getpid()) == []


def children(process: int) -> list[int]:
    """Processes that this one has started to work for it."""
    threads = Path(f"/proc/{process}/task").glob("*/children")
    started = [int(child) for thread in threads for child in thread.read_text().split()]
    return [child for child in started if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def is_there(process: int) -> bool:
    return Path(f"/proc/{process}").exists() and " Z " not in Path(f"/proc/{process}/stat").read_text()


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_the_audit_and_what_was_finished_stays(
    small_run: Callable[..., Path], tmp_path: Path, how: signal.Signals
) -> None:
    command = [sys.executable, "-m", "attncem", "audit", str(small_run("demo")), "--suite", "quick", "--workers", "2"]
    options = ["--out", str(tmp_path), "decoder.epochs=2000", "decoder.max_epochs=2000"]
    process = subprocess.Popen([*command, *options], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        quick = {"grey", "mean image", "ridge"}  # in whatever order the workers come to them
        until(
            lambda: (
                quick <= {row.name for plan in tmp_path.glob("*/audit.json") for row in Ledger.open(plan.parent).rows()}
            )
        )
        workers = children(process.pid)
        assert len(workers) == 2
        process.send_signal(how)
        process.wait(60)
        until(lambda: not any(is_there(worker) for worker in workers))
    finally:
        process.kill()
    (folder,) = tmp_path.iterdir()
    assert {row.name for row in Ledger.open(folder).rows()} >= quick
    assert "decoder small" not in {row.name for row in Ledger.open(folder).rows()}


def until(condition: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.1)


def test_workers_that_cannot_be(small_run: Callable[..., Path]) -> None:
    run = small_run("demo")
    with pytest.raises(ConfigError, match="workers=0: at least 1 is needed"):
        audit(run, suite(ROWS), workers=0)
    with pytest.raises(ConfigError, match="workers=2 needs a run folder that every process can open"):
        audit(open_run(run), suite(ROWS), workers=2)


def test_the_time_of_rows_beside_each_other() -> None:
    rows = [Seconds(6, 8), Seconds(2, 4), Seconds(2, 4)]
    assert _beside(rows, 1) == Seconds(10, 16)
    assert _beside(rows, 2) == Seconds(6, 12), "no sooner than the longest, no later than with it begun last"
    assert _beside(rows[1:] * 3, 2) == Seconds(6, 14)
    assert _beside([], 2) == Seconds()
