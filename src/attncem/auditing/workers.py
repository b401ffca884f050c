"""Attacks of an audit in several processes at once: each opens the run by itself, and hands every row back.

Only the process that audits writes. A row depends on its own seed alone, so the numbers are those of one process.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from attncem.auditing.case import Case
from attncem.auditing.measuring import Measured, measure
from attncem.config.base import Options
from attncem.engine import limited_threads, memory_kept
from attncem.opening import open_run
from attncem.processes import END_SECONDS, interrupts_held
from attncem.progress import Progress
from attncem.results.threats import ThreatModel
from attncem.types import AttncemError, RunError

_ADVICE = "the rows that were finished are kept: give the same command again, with fewer workers if memory was short"


@dataclass(frozen=True)
class Brief:
    """What a worker needs to judge the same model on the same images under the same threat model."""

    run: Path
    weights: str
    fingerprint: str
    threat: ThreatModel
    on: str
    seed: int
    threads: int

    def case(self) -> Case:
        """The case, made anew; RunError where the run is no longer what it was."""
        opened = open_run(self.run, weights=self.weights, device="cpu")
        if opened.fingerprint != self.fingerprint:
            raise RunError(f"{self.run} has changed since the audit began")
        return Case(opened, self.threat, on=self.on, seed=self.seed)


@dataclass(frozen=True)
class _Told:
    """How far a worker is: what `progress` is called with."""

    stage: str
    done: float
    total: float
    numbers: Mapping[str, float]


def measured_beside(brief: Brief, rows: Mapping[str, Options], workers: int, progress: Progress) -> Iterator[Measured]:
    """The rows as they are finished, each measured by one of so many processes, begun in their order."""
    waiting, at_work = list(rows.items()), dict[Connection, str]()
    with _crew(brief, min(workers, len(rows))) as crew:
        idle = list(crew)
        while waiting or at_work:
            while waiting and idle:
                line, row = idle.pop(), waiting.pop(0)
                at_work[line] = row[0]
                _send(line, row)
            for line in (line for line in wait(list(at_work)) if isinstance(line, Connection)):
                said = _heard(line, crew[line], at_work[line])
                if isinstance(said, _Told):
                    progress(said.stage, said.done, said.total, said.numbers)
                    continue
                del at_work[line]
                idle.append(line)
                yield said


def _send(line: Connection, row: tuple[str, Options]) -> None:
    try:
        line.send(row)
    except OSError:  # it has ended: what it said, or that it said nothing, is heard next
        return


def _heard(line: Connection, process: SpawnProcess, row: str) -> Measured | _Told:
    """What a worker says; RunError where it failed before it could measure, or ended."""
    try:
        said = line.recv()
    except (EOFError, OSError) as error:
        process.join(END_SECONDS)
        code = process.exitcode
        how = signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
        raise RunError(f"the process that worked on {row} ended ({how}); {_ADVICE}") from error
    if isinstance(said, Measured | _Told):
        return said
    raise RunError(f"a process that should have worked on {row} could not begin: {said}")


@contextmanager
def _crew(brief: Brief, count: int) -> Iterator[dict[Connection, SpawnProcess]]:
    """So many processes, each with the line to it; none outlives this one."""
    context, crew = multiprocessing.get_context("spawn"), dict[Connection, SpawnProcess]()
    try:
        with interrupts_held():
            for _ in range(count):
                own, other = context.Pipe()
                process = context.Process(target=_work, args=(other, brief), daemon=True)
                process.start()
                other.close()
                crew[own] = process
        yield crew
    finally:
        for process in crew.values():
            process.terminate()
        for line, process in crew.items():
            process.join(END_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()
            line.close()


def _work(line: Connection, brief: Brief) -> None:
    """A worker's life: it makes the case, and measures what it is given until it is ended."""
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def told(stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
        line.send(_Told(stage, done, total, dict(numbers)))

    try:
        case = brief.case()
    except AttncemError as error:
        line.send(str(error))
        return
    with limited_threads(brief.threads), memory_kept(case.subject.device):
        while True:
            name, options = line.recv()
            line.send(measure(case, name, options, seed=case.seed_of(name), progress=told))


def _end_with_parent() -> None:
    """However the process that audits ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
