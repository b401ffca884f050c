"""Batches: requests that wait at the same moment are computed together."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from math import inf

import numpy as np
from numpy.typing import NDArray

from attncem.deploy.serving.refusal import busy

Numbers = NDArray[np.float32]
_SHORT = 5e-4
"""Seconds of a batch that is computed in the event loop: it costs less than a change of threads, and all can wait."""
_GROWTH = 1.1
"""How fast the expected time of a row grows; it falls at once, because other programs only make a batch slower."""


@dataclass(frozen=True)
class Waiting:
    """One request in the queue."""

    z: Numbers
    answer: asyncio.Future[Numbers]


class Batcher:
    """Computes z of many requests, in the order of their arrival.

    A batch is what waits when the thread becomes free, up to ``rows`` rows: nobody waits for others to come, so one
    client alone loses nothing. ``rows`` 1 computes every request alone. At most ``queue`` requests wait. A short
    batch is computed in the event loop, any other in a thread.
    """

    def __init__(self, run: Callable[[Numbers], Numbers], *, rows: int, queue: int) -> None:
        self._run = run
        self._rows = rows
        self._queue = queue
        self._line: deque[Waiting] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="compute")
        self._work: asyncio.Task[None] | None = None
        self._row_seconds = inf
        self.batches = 0

    @property
    def waiting(self) -> int:
        """Requests that wait for the thread."""
        return len(self._line)

    def require_room(self) -> None:
        """Refusal 503 where the queue is full."""
        if len(self._line) >= self._queue:
            raise busy(f"{self._queue} requests wait already")

    async def answer(self, z: Numbers) -> Numbers:
        """The result for z."""
        loop = asyncio.get_running_loop()
        one = Waiting(z, loop.create_future())
        self._line.append(one)
        if self._work is None:
            self._work = loop.create_task(self._empty_the_line(loop))
        return await one.answer

    async def _empty_the_line(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while batch := self._next_batch():
                await self._compute(batch, loop)
        finally:
            self._work = None

    def _next_batch(self) -> list[Waiting]:
        batch: list[Waiting] = []
        rows = 0
        while self._line and (not batch or rows + len(self._line[0].z) <= self._rows):
            one = self._line.popleft()
            if not one.answer.done():  # its client has not given up
                batch.append(one)
                rows += len(one.z)
        return batch

    async def _compute(self, batch: list[Waiting], loop: asyncio.AbstractEventLoop) -> None:
        z = batch[0].z if len(batch) == 1 else np.concatenate([one.z for one in batch])
        self.batches += 1
        short = self._row_seconds * len(z) < _SHORT
        try:
            results = self._timed(z) if short else await loop.run_in_executor(self._thread, self._timed, z)
        except Exception as error:  # onnxruntime's errors have no common base class
            _deliver(batch, [error] * len(batch))
        else:
            _deliver(batch, _parted(results, batch))
        if short:
            await asyncio.sleep(0)  # the turn of connections, time limits and a stop

    def _timed(self, z: Numbers) -> Numbers:
        start = time.perf_counter()
        results = self._run(z)
        seconds = (time.perf_counter() - start) / len(z)
        self._row_seconds = min(seconds, _GROWTH * self._row_seconds)
        return results

    def close(self) -> None:
        """End the thread after what it computes now."""
        self._thread.shutdown(wait=True)


def _deliver(batch: Sequence[Waiting], outcome: Sequence[Numbers | Exception]) -> None:
    for one, result in zip(batch, outcome, strict=True):
        if one.answer.done():
            continue
        if isinstance(result, Exception):
            one.answer.set_exception(result)
        else:
            one.answer.set_result(result)


def _parted(results: Numbers, batch: Sequence[Waiting]) -> list[Numbers]:
    """The rows of every request: numpy's split takes longer than a small model."""
    ends = list(accumulate(len(one.z) for one in batch))
    return [results[start:end] for start, end in zip([0, *ends], ends, strict=False)]
