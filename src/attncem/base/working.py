"""Processes that take work, report their progress, and end with the process that started them, however that ends.

Audits, campaigns, the demo and trainings with several processes have them. Never imports torch by itself.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NoReturn, Self

from attncem.base.progress import Progress, tell
from attncem.base.types import ConfigError, RunError

_END_SECONDS = 5.0
"""How long a process may take to end."""


class WorkerEnded(RunError):
    """A process ended in the middle of its work; ``how`` is a signal's name or an exit code."""

    def __init__(self, whose: str, how: str) -> None:
        super().__init__(f"a process of {whose} ended unexpectedly ({how}): killed, or out of memory?")
        self.how = how


class Workers:
    """Processes that take work and report to `progress`. A context manager: an error inside ends them at once.

    Each process is served by a thread of this one, which starts it when there is work, and again when it died or its
    work failed. It holds the reading end of a pipe whose writing end this process alone has: when that is closed, here
    or by the death of this process in any way, it removes the `scratch` folder and ends by itself.
    """

    def __init__(self, count: int, progress: Progress, whose: str, scratch: Path | None = None) -> None:
        if count < 1:
            raise ConfigError(f"workers={count}: at least 1 process is needed")
        self._context = multiprocessing.get_context("spawn")
        self._watched, self._lifeline = self._context.Pipe(duplex=False)
        self._threads = ThreadPoolExecutor(count, "worker")
        self._local, self._started = threading.local(), list[BaseProcess]()
        self._progress, self._reporting, self._whose, self._scratch = progress, threading.Lock(), whose, scratch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            self._threads.shutdown()
        self.end()

    def submit(self, work: Callable[..., Any], *arguments: Any, tells: bool = False) -> Future[Any]:
        """Have a function called in a process; with `tells` its `progress` reports to ours."""
        return self._threads.submit(self._call, work, arguments, tells)

    def end(self) -> None:
        """End all processes, whatever they are doing; may be called twice."""
        self._lifeline.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in self._started:
            if not wait([process.sentinel], _END_SECONDS):
                process.kill()
        self._threads.shutdown()
        for process in self._started:
            process.join()
        self._watched.close()

    def _call(self, *task: Any) -> Any:
        """In a thread: have its process do the task."""
        try:
            connection = self._process()[1]
            connection.send(task)
            while not isinstance(message := connection.recv(), _Outcome):
                with self._reporting:
                    tell(self._progress, message) if isinstance(message, str) else self._progress(*message)
        except (EOFError, OSError) as error:
            ended, self._local.process = getattr(self._local, "process", None), None
            raise WorkerEnded(self._whose, _how_ended(ended[0]) if ended else str(error)) from error
        if message.error is not None:  # its process ends
            connection.close()
            self._local.process = None
        return message.result()

    def _process(self) -> tuple[BaseProcess, Connection]:
        """The process of this thread, which is started where there is none, and the connection to it."""
        if getattr(self._local, "process", None) is None:
            here, there = self._context.Pipe()
            arguments = there, self._watched, self._scratch
            process = self._context.Process(target=_serve, args=arguments, name=self._whose)
            with _interrupts_held():
                process.start()
            there.close()  # when the process has ended, nobody holds that end any more
            self._started.append(process)
            self._local.process = process, here
        served: tuple[BaseProcess, Connection] = self._local.process
        return served


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Processes started here, by this thread, never get Ctrl-C: the process that started them ends them."""
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
        """The value; or the error is raised, with where it came from as its note."""
        if self.error is None:
            return self.value
        self.error.add_note(self.trace)
        raise self.error


# in a process


def _serve(tasks: Connection, watched: Connection, scratch: Path | None) -> None:
    """Do one task after the other, until nobody has any more, or one fails.

    After an error of a GPU nothing works in a process any more: what failed takes no other task with it.
    """
    watcher = threading.Thread(target=_end_with_parent, args=(watched, scratch), daemon=True)
    watcher.start()
    with suppress(EOFError, OSError):  # the parent has gone, perhaps in the middle of a message
        outcome = _Outcome()
        while outcome.error is None:
            outcome = _do(tasks.recv(), _Reporter(tasks, scratch))
            tasks.send(outcome)
    if scratch is not None:  # the work may have failed because the parent was killed: the folder is still there
        watcher.join(_END_SECONDS)


def _do(task: tuple[Callable[..., Any], tuple[Any, ...], bool], reporter: _Reporter) -> _Outcome:
    work, arguments, tells = task
    try:
        return _Outcome(work(*arguments, **({"progress": reporter} if tells else {})))
    except Exception as error:  # it is raised again in the process that asked for the task
        trace = traceback.format_exc()
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
        except Exception:  # whatever an error's class cannot do
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
    """The progress of a process: a line, or the four values of a progress, goes to the parent."""

    def __init__(self, tasks: Connection, scratch: Path | None) -> None:
        self._tasks, self._scratch = tasks, scratch

    def __call__(self, stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
        self._send((stage, done, total, dict(numbers)))

    def line(self, text: str) -> None:
        self._send(text)

    def _send(self, message: str | tuple[str, float, float, Mapping[str, float]]) -> None:
        try:
            self._tasks.send(message)
        except OSError:  # the parent has gone: that must not be taken for a failure of the work
            _leave(self._scratch)
