"""run_demo(): three split models, trained and attacked side by side on the embedded data, and one report."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attncem.config.load import load_config
from attncem.config.run import RunConfig
from attncem.config.suites import Suite
from attncem.progress import Progress, shown, tell
from attncem.results.audit import AuditResult
from attncem.runs import free_path
from attncem.types import ConfigError, RunError

DEMO_CONFIGS = ("demo-none", "demo-kmeans", "demo")
"""Undefended, the baseline, and the attention surrogate that did best on validation."""

_events: Any = None
"""In a worker: the queue to the parent, set once when the worker starts."""


@dataclass(frozen=True)
class Demo:
    """What the demo made: run folders, their audits, the report."""

    runs: list[Path]
    audits: list[AuditResult]
    report: Path


def run_demo(
    out: str | Path | None = None,
    overrides: Sequence[str] = (),
    *,
    suite: str | Suite = "quick",
    workers: int | None = None,
    progress: Progress | None = None,
) -> Demo:
    """Train and audit the demo's models in parallel processes, one thread each, then write the report."""
    from attncem.reporting import report as write_report

    folder = Path(out) if out is not None else free_path("runs", "demo")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder} exists already and is left as it is; choose another --out")
    if workers is not None and workers < 1:
        raise ConfigError(f"workers={workers}: at least 1 process is needed")
    configs = [load_config(name, overrides).config for name in DEMO_CONFIGS]
    if len({config.name for config in configs}) < len(configs):
        raise ConfigError("name cannot be set for the demo: its three runs need names of their own")
    count = workers or min(len(configs), os.cpu_count() or 1)
    with shown(progress) as told:
        audits = _work(configs, folder, suite, count, told)
    runs = [folder / config.name for config in configs]
    return Demo(runs, audits, write_report(runs, folder / "report.html"))


def _work(
    configs: Sequence[RunConfig], folder: Path, suite: str | Suite, workers: int, progress: Progress
) -> list[AuditResult]:
    """Train every model; audit each as soon as it is trained and a worker is free."""
    context = multiprocessing.get_context("spawn")
    events: Any = context.Queue()
    listener = threading.Thread(target=_listen, args=(events, progress), daemon=True)
    listener.start()
    for config in configs:
        progress(f"train {config.name}", 0, 1, {})
    audits: dict[str, AuditResult] = {}
    try:
        with ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(events,)) as pool:
            pending: dict[Future[Any], tuple[str, str]] = {}
            for config in configs:
                pending[pool.submit(_train, config, folder / config.name)] = ("train", config.name)
            while pending:
                done, _ = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    stage, name = pending.pop(future)
                    result = future.result()
                    if stage == "train":
                        pending[pool.submit(_audit, result, suite)] = ("audit", name)
                    else:
                        audits[name] = result
    finally:
        events.put(None)
        listener.join()
    return [audits[config.name] for config in configs]


def _listen(events: Any, progress: Progress) -> None:
    while (event := events.get()) is not None:
        if isinstance(event, str):
            tell(progress, event)
        else:
            progress(*event)


def _start_worker(events: Any) -> None:
    global _events  # noqa: PLW0603 - one queue per worker process, set before its first task
    _events = events


class _Teller:
    """A reporter in a worker: everything goes to the parent."""

    def __call__(self, stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
        _events.put((stage, done, total, dict(numbers)))

    def line(self, text: str) -> None:
        _events.put(text)


def _train(config: RunConfig, out: Path) -> Path:
    from attncem.training import train

    return train(config, out=out, progress=_Teller()).path


def _audit(run: Path, suite: str | Suite) -> AuditResult:
    from attncem.auditing import audit

    return audit(run, suite, progress=_Teller())
