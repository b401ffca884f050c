"""Processes that take work, tell how far they are, and end with the process that started them, however that ends.

Campaigns, the demo and audits have them. Never imports torch by itself.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Self

from attncem.base.children import how_ended, interrupts_held
from attncem.base.progress import Progress, tell
from attncem.base.types import ConfigError, RunError

_END_SECONDS = 5.0
"""How long it is waited for how a process has ended."""


class WorkerEnded(RunError):
    """A process ended in the middle of its work; ``how`` is a signal's name or an exit code."""

    def __init__(self, whose: str, how: str) -> None:
        super().__init__(f"a process of {whose} ended unexpectedly ({how}): killed, or out of memory?")
        self.how = how


class Workers:
    """Processes that take work and tell `progress`. A context manager: an error inside ends them at once.

    Each process is served by a thread of this one, which starts it when there is work, and again when it died or its
    work failed. It holds the reading end of a pipe whose writing end this process alone has: when that is closed, here
    or by the death of this process in any way, it ends by itself.
    """

    def __init__(self, count: int, progress: Progress, whose: str) -> None:
        if count < 1:
            raise ConfigError(f"workers={count}: at least 1 process is needed")
        self._context = multiprocessing.get_context("spawn")
        self._watched, self._lifeline = self._context.Pipe(duplex=False)
        self._threads = ThreadPoolExecutor(count, "worker")
        self._own, self._started = threading.local(), list[BaseProcess]()
        self._progress, self._speaking, self._whose = progress, threading.Lock(), whose

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._threads.shutdown()
        self.end()

    def submit(self, work: Callable[..., Any], *arguments: Any, tells: bool = False) -> Future[Any]:
        """Have a function called in a process; with `tells` its `progress` is told to ours."""
        return self._threads.submit(self._call, _Task(work, arguments, tells))

    def end(self) -> None:
        """End all processes, whatever they are doing; may be called twice."""
        self._lifeline.close()
        self._threads.shutdown(cancel_futures=True)
        for process in self._started:
            process.join()
        self._watched.close()

    def _call(self, task: _Task) -> Any:
        """In a thread: have its process do the task."""
        try:
            connection = self._process()[1]
            connection.send(task)
            while isinstance(said := connection.recv(), _Told):
                with self._speaking:
                    said.to(self._progress)
        except (EOFError, OSError) as error:
            ended, self._own.process = getattr(self._own, "process", None), None
            raise WorkerEnded(self._whose, how_ended(ended[0], _END_SECONDS) if ended else str(error)) from error
        if said.error is not None:  # its process ends
            connection.close()
            self._own.process = None
        return said.result()

    def _process(self) -> tuple[BaseProcess, Connection]:
        """The process of this thread, which is started where there is none, and the connection to it."""
        if getattr(self._own, "process", None) is None:
            here, there = self._context.Pipe()
            process = self._context.Process(target=_serve, args=(there, self._watched))
            with interrupts_held():
                process.start()
            there.close()  # when the process has ended, nobody holds that end any more
            self._started.append(process)
            self._own.process = process, here
        own: tuple[BaseProcess, Connection] = self._own.process
        return own


@dataclass(frozen=True)
class _Task:
    work: Callable[..., Any]
    arguments: tuple[Any, ...]
    tells: bool


@dataclass(frozen=True)
class _Told:
    """A line, or the arguments of a progress."""

    said: str | tuple[str, float, float, Mapping[str, float]]

    def to(self, progress: Progress) -> None:
        """Pass it on."""
        if isinstance(self.said, str):
            tell(progress, self.said)
        else:
            progress(*self.said)


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


def _serve(tasks: Connection, watched: Connection) -> None:
    """Do one task after the other, until nobody has any more, or one fails.

    After an error of a GPU nothing works in a process any more: what failed takes no other task with it.
    """
    threading.Thread(target=_end_with_parent, args=(watched,), daemon=True).start()
    with suppress(EOFError, OSError):  # whoever asked has gone, in the middle of a word perhaps
        outcome = _Outcome()
        while outcome.error is None:
            outcome = _do(tasks.recv(), _Teller(tasks))
            tasks.send(outcome)


def _do(task: _Task, teller: _Teller) -> _Outcome:
    try:
        return _Outcome(task.work(*task.arguments, **({"progress": teller} if task.tells else {})))
    except Exception as error:  # it is raised again by who asked for the task
        trace = traceback.format_exc()
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
        except Exception:  # whatever an error's class cannot do
            error = RunError(f"{type(error).__name__}: {error}")
        return _Outcome(error=error, trace=trace)


def _end_with_parent(watched: Connection) -> None:
    """End this process, in the middle of its work, once the pipe is closed."""
    with suppress(OSError, EOFError):
        watched.recv_bytes()
    os._exit(1)


class _Teller:
    """A reporter in a process: everything goes to the parent."""

    def __init__(self, tasks: Connection) -> None:
        self._tasks = tasks

    def __call__(self, stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
        self._send(_Told((stage, done, total, dict(numbers))))

    def line(self, text: str) -> None:
        self._send(_Told(text))

    def _send(self, told: _Told) -> None:
        try:
            self._tasks.send(told)
        except OSError:  # the parent has gone: that must not be taken for a failure of the work
            os._exit(1)
