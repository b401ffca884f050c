"""The demo: its runs side by side, their audits in order, the client alone, one report."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from attncem.base.progress import Progress, tell
from attncem.base.types import ConfigError, DataError, RunError
from attncem.base.working import Workers
from attncem.campaigns import demonstration
from attncem.campaigns.demonstration import run_demo, train_alone
from attncem.config.loading.load import load_config
from attncem.config.options.attacks import GreyOptions, MeanImageOptions
from attncem.config.options.suites import Suite
from attncem.records.runs import RunDirectory
from attncem.training.on_device import Budget

NAMES = ["demo-none", "demo-kmeans", "demo-front-end", "demo-gated", "demo-lean"]
SUITE = Suite(
    name="tiny", version=1, meaning="two floors", rows={"grey": GreyOptions(), "mean image": MeanImageOptions()}
)


class Events:
    """Collects what a run reports."""

    def __init__(self) -> None:
        self.all: list[tuple[str, float, float, Mapping[str, float]]] = []
        self.lines: list[str] = []

    def __call__(self, stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
        self.all.append((stage, done, total, numbers))

    def line(self, text: str) -> None:
        self.lines.append(text)

    def of(self, stage: str) -> list[tuple[str, float, float, Mapping[str, float]]]:
        return [event for event in self.all if event[0] == stage]


def words_of(settings: dict[str, Any]) -> list[str]:
    """Overrides that all five models take: the lean one chooses its width itself."""
    return [f"{key}={value}" for key, value in settings.items() if key != "model.width"]


@pytest.mark.slow
def test_the_runs_are_trained_audited_and_reported(tmp_path: Path, tiny: dict[str, Any]) -> None:
    events = Events()
    demo = run_demo(tmp_path / "demo", words_of(tiny), suites=[SUITE], workers=2, progress=events)
    assert demo.runs == [tmp_path / "demo" / name for name in NAMES]
    assert [audit.subject.run for audit in demo.audits] == NAMES
    assert [audit.subject.surrogate for audit in demo.audits] == [
        "none",
        "kmeans",
        "none + local contrast",
        "gated + local contrast",
        "capacity",
    ]
    assert [row.name for row in demo.audits[3].attacks] == ["grey", "mean image"]
    for path in demo.runs:
        run = RunDirectory.open(path)
        assert run.manifest["status"] == "finished"
        (folder,) = (path / "audits").iterdir()
        assert folder.name.startswith("tiny-train-test-")
    page = demo.report.read_text(encoding="utf-8")
    assert demo.report == tmp_path / "demo" / "report.html"
    assert demo.alone is not None and demo.alone.parent == tmp_path / "demo"
    assert RunDirectory.open(demo.alone).config.on_device
    assert all(name in page for name in [*NAMES, demo.alone.name])
    assert page.count("the client alone (") >= len(NAMES) and "the client alone: not known" not in page
    start = (
        f"demo: {', '.join(NAMES)}, and the client alone\n"
        f"  fashion_mnist_mini; audited by tiny; processes 2; into {tmp_path / 'demo'}"
    )
    assert events.lines[0] == start
    assert [line for line in events.lines if "report.html" in line] == [
        f"first results: {demo.report.resolve()} (renewed as results come)"
    ]
    assert events.of("demo")[0][1:3] == (0, 5)
    for name in NAMES:
        steps = events.of(f"train {name}")
        assert steps[-1][1:3] == (30, 30)
        assert steps[-1][3]["ce"] > 0
        assert events.of(f"audit {name}")[-1][1:3] == (2, 2)


class Pool:
    """Workers that work in this process and at once."""

    def __init__(self, *options: Any) -> None:
        pass

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, work: Callable[..., Any], *arguments: Any, tells: bool) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(work(*arguments))
        return future


@pytest.mark.parametrize("alone", [["demo-none-on-device-trunk"], []])
def test_the_report_is_written_after_the_first_audit_and_renewed(
    alone: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every model is audited by both suites; the page has the client alone where a network fits its budget."""
    pages, events = [], Events()

    def report(runs: list[Path], out: Path) -> Path:
        pages.append([run.name for run in runs])
        return out

    one_by_one = lambda pending, **options: ({next(iter(pending))}, set())  # noqa: E731
    monkeypatch.setattr(demonstration, "Workers", Pool)
    monkeypatch.setattr(demonstration, "wait", one_by_one)
    monkeypatch.setattr(demonstration, "train_run", lambda config, run: run)
    monkeypatch.setattr(demonstration, "train_alone", lambda config, folder: [folder / name for name in alone])
    monkeypatch.setattr(demonstration, "audit_by", lambda run, asked: [f"{run.name}: {it.suite}" for it in asked])
    monkeypatch.setattr("attncem.reporting.report", report)
    demo = run_demo(tmp_path / "demo", progress=events)
    assert pages == [NAMES[:count] + alone for count in range(1, len(NAMES) + 1)]
    assert demo.report == tmp_path / "demo" / "report.html"
    assert demo.audits == [f"{name}: {suite}" for name in NAMES for suite in ("quick", "certificates")]
    assert demo.alone == (tmp_path / "demo" / alone[0] if alone else None)
    assert len([line for line in events.lines if "report.html" in line]) == 1
    assert [done for _, done, _, _ in events.of("demo")] == [*[0] * (len(NAMES) + 2), *range(1, len(NAMES))]


def test_a_budget_that_no_network_fits_is_a_note_and_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events, config = Events(), load_config("demo-none").config
    monkeypatch.setattr("attncem.training.train.budget_of", lambda source, overrides, out: Budget(source, 1000, out))
    assert train_alone(config, tmp_path / "demo", events) == []
    assert [line for line in events.lines if "no network of at most" in line] and not (tmp_path / "demo").exists()


@pytest.mark.slow
def test_a_failed_run_fails_the_demo(tmp_path: Path, tiny: dict[str, Any]) -> None:
    settings = {**tiny, "data.root": str(tmp_path / "nowhere")}
    with pytest.raises(DataError, match="nowhere"):
        run_demo(tmp_path / "demo", words_of(settings), suites=[SUITE], workers=1, progress=Events())
    assert not (tmp_path / "demo" / "report.html").exists()


def test_an_existing_folder_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "mine.txt").write_text("mine")
    with pytest.raises(RunError, match="already exists and was not changed"):
        run_demo(tmp_path / "demo", progress=Events())
    assert [p.name for p in (tmp_path / "demo").iterdir()] == ["mine.txt"]
    with pytest.raises(RunError, match="already exists and was not changed"):
        run_demo(tmp_path / "demo" / "mine.txt", progress=Events())


@pytest.mark.parametrize(
    ("overrides", "options", "message"),
    [
        (["name=same"], {}, "name cannot be set"),
        ([], {"workers": 0}, "workers=0"),
        (["training.epoch=1"], {}, "did you mean training.epochs"),
        (["training.epochs=1"], {}, "leaves no epoch"),
    ],
)
def test_mistakes_are_found_before_anything_is_trained(
    tmp_path: Path, overrides: list[str], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        run_demo(tmp_path / "demo", overrides, progress=Events(), **options)
    assert not (tmp_path / "demo").exists()


def speak(progress: Progress) -> str:
    """What a worker may say."""
    progress("train demo", 1, 2, {"ce": 1.0})
    tell(progress, "warning: demo")
    return "done"


def test_a_workers_warning_reaches_the_reporter() -> None:
    events = Events()
    with Workers(1, events, "the test") as pool:
        assert pool.submit(speak, tells=True).result() == "done"
    assert events.all == [("train demo", 1, 2, {"ce": 1.0})]
    assert events.lines == ["warning: demo"]


# ends before the end


def until(is_so: Callable[[], object], seconds: float) -> None:
    """Wait until something is so; fail when it is not in time."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("work", "error", "said"),
    [((divmod, 1, 0), ZeroDivisionError, "by zero"), ((os._exit, 3), RunError, "ended unexpectedly")],
)
def test_an_error_ends_all_workers_at_once(work: tuple[Any, ...], error: type[Exception], said: str) -> None:
    began = time.monotonic()
    with pytest.raises(error, match=said), Workers(2, Events(), "the test") as pool:
        pool.submit(time.sleep, 600)
        broken = pool.submit(*work)
        waiting = pool.submit(time.sleep, 600)
        broken.result()
    assert waiting.done()
    assert time.monotonic() - began < 60


SCRIPT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from attncem.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def marked(mark: str) -> list[int]:
    """The processes that have a mark in their environment, zombies left out."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            alive = b") Z " not in (folder / "stat").read_bytes()
            found += [int(folder.name)] if alive and mark.encode() in (folder / "environ").read_bytes() else []
        except OSError:  # ended meanwhile
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize(
    ("number", "whole_group"),
    [
        (signal.SIGINT, True),
        (signal.SIGKILL, False),
        pytest.param(signal.SIGINT, False, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, False, marks=pytest.mark.slow),
    ],
)
def test_no_worker_outlives_the_demo(
    tmp_path: Path, tiny: dict[str, Any], number: signal.Signals, whole_group: bool
) -> None:
    mark, out = f"mark-{uuid.uuid4()}", tmp_path / "demo"
    words = ["demo", "--out", str(out), "--workers", "2", *words_of({**tiny, "training.epochs": 5000})]
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *words],
        env={**os.environ, "TEST_MARK": mark, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        until(lambda: len(list(out.glob("*/metrics.jsonl"))) == 2, 120)
        assert len(marked(mark)) >= 3
        (os.killpg if whole_group else os.kill)(process.pid, number)
        _, errors = process.communicate(timeout=20)
        until(lambda: not marked(mark), 10)
    finally:
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)
        process.wait()
    assert sorted(path.name for path in out.iterdir()) == sorted(NAMES[:2]), "the third was not begun"
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    if number == signal.SIGINT:
        assert "Traceback" not in errors
        assert "attncem: interrupted" in errors
