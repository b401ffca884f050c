"""Worker processes that report their progress and end with the process that started them, however that ends.

Used by audits, campaigns, the demo and trainings with several processes. This module does not import torch.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NoReturn, Self

from attncem.base.plugins import Plugin, load_same, named_plugins
from attncem.base.progress import Progress, tell
from attncem.base.types import ConfigError, RunError

_END_SECONDS = 5.0
"""Time in seconds that a process has to end."""


class WorkerEnded(RunError):
    """A process ended in the middle of its work; ``how`` is a signal's name or an exit code."""

    def __init__(self, whose: str, how: str) -> None:
        super().__init__(f"a process of {whose} ended unexpectedly ({how}): killed, or out of memory?")
        self.how = how


class Workers:
    """Processes that run functions and report to `progress`. A context manager: an error inside ends them at once.

    A thread of this process serves each worker process. It starts the worker when there is work, and restarts it when
    it died or its work failed. A worker holds the reading end of a pipe whose writing end only this process has: when
    that end is closed, here or by the death of this process, the worker removes the `scratch` folder and ends.
    """

    def __init__(self, count: int, progress: Progress, whose: str, scratch: Path | None = None) -> None:
        if count < 1:
            raise ConfigError(f"workers={count}: at least 1 process is needed")
        self._context = multiprocessing.get_context("spawn")
        self._watched, self._lifeline = self._context.Pipe(duplex=False)
        self._threads = ThreadPoolExecutor(count, "worker")
        self._local, self._started = threading.local(), list[tuple[BaseProcess, Connection]]()
        self._progress, self._reporting, self._whose, self._scratch = progress, threading.Lock(), whose, scratch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.finish() if error is None else self.end()

    def finish(self) -> None:
        """Wait for all work, then end the processes."""
        self._threads.shutdown()
        self._dismiss()
        self.end()

    def _dismiss(self) -> None:
        """Let idle processes end by themselves, so that libraries in them can remove what they share.

        With a `scratch` folder they wait for the end of their parent, who closes the lifeline.
        """
        if self._scratch is not None:
            return
        for _, connection in self._started:
            connection.close()
        for process, _ in self._started:
            wait([process.sentinel], _END_SECONDS)

    def submit(self, work: Callable[..., Any], *arguments: Any, tells: bool = False) -> Future[Any]:
        """Call a function in a worker; with `tells` its `progress` reports to ours."""
        return self._threads.submit(self._call, work, arguments, tells)

    def end(self) -> None:
        """End all processes, even in the middle of their work; may be called twice."""
        self._lifeline.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process, _ in self._started:
            if not wait([process.sentinel], _END_SECONDS):
                process.kill()
        self._threads.shutdown()
        for process, _ in self._started:
            process.join()
        self._watched.close()

    def _call(self, *task: Any) -> Any:
        """Run the task in the worker of this thread."""
        try:
            connection = self._process()[1]
            connection.send(task)
            while not isinstance(message := connection.recv(), _Outcome):
                with self._reporting:
                    tell(self._progress, message) if isinstance(message, str) else self._progress(*message)
        except (EOFError, OSError) as error:
            ended, self._local.process = getattr(self._local, "process", None), None
            raise WorkerEnded(self._whose, _how_ended(ended[0]) if ended else str(error)) from error
        if message.error is not None:  # the worker ends
            connection.close()
            self._local.process = None
        return message.result()

    def _process(self) -> tuple[BaseProcess, Connection]:
        """The worker of this thread, started if there is none, and the connection to it."""
        if getattr(self._local, "process", None) is None:
            here, there = self._context.Pipe()
            arguments = there, self._watched, self._scratch, named_plugins()
            process = self._context.Process(target=_serve, args=arguments, name=self._whose)
            with _interrupts_held():
                process.start()
            there.close()  # once the worker has ended, nobody holds that end
            self._started.append((process, here))
            self._local.process = process, here
        served: tuple[BaseProcess, Connection] = self._local.process
        return served


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Processes started here, by this thread, never get Ctrl-C: their parent ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # its start would let interrupts through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _how_ended(process: BaseProcess) -> str:
    """A signal's name or an exit code."""
    process.join(_END_SECONDS)
    code = process.exitcode
    return signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"


@dataclass(frozen=True)
class _Outcome:
    value: Any = None
    error: BaseException | None = None
    trace: str = ""

    def result(self) -> Any:
        """The value; an error is raised, with its origin as a note."""
        if self.error is None:
            return self.value
        self.error.add_note(self.trace)
        raise self.error


# in a process


def _serve(tasks: Connection, watched: Connection, scratch: Path | None, plugins: Sequence[Plugin]) -> None:
    """Load the parent's plugins, then run tasks one after the other, until the parent has no more, or one fails.

    After a GPU error nothing works in a process any more, so a failed task ends the process and spares the next task.
    """
    watcher = threading.Thread(target=_end_with_parent, args=(watched, scratch), daemon=True)
    watcher.start()
    with suppress(EOFError, OSError):  # the parent has ended, perhaps in the middle of a message
        outcome = _do((load_same, (plugins,), False), _Reporter(tasks, scratch))  # tasks hold objects of their classes
        if outcome.error is not None:
            tasks.recv_bytes()
            tasks.send(outcome)
        while outcome.error is None:
            outcome = _do(tasks.recv(), _Reporter(tasks, scratch))
            tasks.send(outcome)
    if scratch is not None:  # the work may have failed because the parent was killed, and the folder still exists
        watcher.join(_END_SECONDS)


def _do(task: tuple[Callable[..., Any], tuple[Any, ...], bool], reporter: _Reporter) -> _Outcome:
    work, arguments, tells = task
    try:
        return _Outcome(work(*arguments, **({"progress": reporter} if tells else {})))
    except Exception as error:  # raised again in the process that submitted the task
        trace = traceback.format_exc()
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
        except Exception:  # some error classes cannot be pickled
            error = RunError(f"{type(error).__name__}: {error}")
        return _Outcome(error=error, trace=trace)


def _end_with_parent(watched: Connection, scratch: Path | None) -> None:
    """End this process, in the middle of its work, once the pipe is closed."""
    with suppress(OSError, EOFError):
        watched.recv_bytes()
    _leave(scratch)


def _leave(scratch: Path | None) -> NoReturn:
    """End this process at once, and remove the folder that it shares with its parent."""
    if scratch is not None:
        shutil.rmtree(scratch, ignore_errors=True)
    os._exit(1)


class _Reporter:
    """The progress of a worker: sends a line, or the four values of a progress, to the parent."""

    def __init__(self, tasks: Connection, scratch: Path | None) -> None:
        self._tasks, self._scratch = tasks, scratch

    def __call__(self, stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
        self._send((stage, done, total, dict(numbers)))

    def line(self, text: str) -> None:
        self._send(text)

    def _send(self, message: str | tuple[str, float, float, Mapping[str, float]]) -> None:
        try:
            self._tasks.send(message)
        except OSError:  # the parent has ended, which is not a failure of the work
            _leave(self._scratch)
