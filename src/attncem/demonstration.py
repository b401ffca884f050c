"""run_demo(): four split models, trained and attacked side by side on the embedded data, and one report."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from attncem.config.load import load_config
from attncem.config.run import RunConfig
from attncem.config.suites import Suite
from attncem.progress import Progress, shown, tell
from attncem.results.audit import AuditResult
from attncem.runs import free_path
from attncem.types import ConfigError, RunError

DEMO_CONFIGS = ("demo-none", "demo-kmeans", "demo-front-end", "demo")
"""Undefended, the baseline, a front end alone, and attention behind it as it did best on validation."""

_LAST_WORDS = 1.0
"""Seconds for what workers that were ended had still said."""
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
        raise ConfigError("name cannot be set for the demo: its runs need names of their own")
    count = workers or min(len(configs), os.cpu_count() or 1)
    with shown(progress) as told:
        audits = _work(configs, folder, suite, count, told)
    runs = [folder / config.name for config in configs]
    return Demo(runs, audits, write_report(runs, folder / "report.html"))


def _work(
    configs: Sequence[RunConfig], folder: Path, suite: str | Suite, workers: int, progress: Progress
) -> list[AuditResult]:
    """Train every model; audit each as soon as it is trained and a worker is free."""
    for config in configs:
        progress(f"train {config.name}", 0, 1, {})
    audits: dict[str, AuditResult] = {}
    with _workers(workers, progress) as submit:
        pending = {submit(_train, config, folder / config.name): ("train", config.name) for config in configs}
        while pending:
            done, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                stage, name = pending.pop(future)
                result = future.result()
                if stage == "train":
                    pending[submit(_audit, result, suite)] = ("audit", name)
                else:
                    audits[name] = result
    return [audits[config.name] for config in configs]


Submit = Callable[..., "Future[Any]"]


@contextmanager
def _workers(count: int, progress: Progress) -> Iterator[Submit]:
    """Processes that take work and tell `progress`; by an error or Ctrl-C they end at once, whatever they are doing.

    Each holds the reading end of a pipe whose writing end this process alone has: when that is closed, here or by the
    death of this process in any way, they end by themselves.
    """
    context = multiprocessing.get_context("spawn")
    events: Any = context.Queue()
    watched, lifeline = context.Pipe(duplex=False)
    listener = threading.Thread(target=_listen, args=(events, progress), daemon=True)
    listener.start()
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_start_worker, initargs=(events, watched))
    try:
        yield partial(_submit, pool)
        pool.shutdown()
        events.put(None)
        listener.join()
    except BaseException as error:
        lifeline.close()
        pool.shutdown(cancel_futures=True)
        events.cancel_join_thread()  # a worker that was ended in the middle of a word may have left the queue locked
        events.put(None)
        listener.join(_LAST_WORDS)
        if isinstance(error, BrokenProcessPool):
            raise RunError("a process of the demo ended without a word: killed, or out of memory?") from error
        raise
    finally:
        lifeline.close()
        watched.close()


def _submit(pool: ProcessPoolExecutor, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Hand over work; processes that start with it never get Ctrl-C, as it is this process that stops them."""
    if not hasattr(signal, "pthread_sigmask"):
        return pool.submit(work, *arguments)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.submit(work, *arguments)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _listen(events: Any, progress: Progress) -> None:
    while (event := events.get()) is not None:
        if isinstance(event, str):
            tell(progress, event)
        else:
            progress(*event)


def _start_worker(events: Any, watched: Connection) -> None:
    global _events  # noqa: PLW0603 - one queue per worker process, set before its first task
    _events = events
    threading.Thread(target=_end_with_parent, args=(watched,), daemon=True).start()


def _end_with_parent(watched: Connection) -> None:
    """End this process, in the middle of its work, once the pipe is closed."""
    with suppress(OSError, EOFError):
        watched.recv_bytes()
    os._exit(1)


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
