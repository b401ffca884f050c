"""Batches: requests that wait at the same moment are computed together, in a thread of their own."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attncem.deploy.serving.refusal import busy

Numbers = NDArray[np.float32]


@dataclass(frozen=True)
class Waiting:
    """One request in the queue."""

    z: Numbers
    answer: asyncio.Future[Numbers]


class Batcher:
    """Computes z of many requests, in the order of their arrival.

    A batch is what waits when the thread becomes free, up to ``rows`` rows: nobody waits for others to come, so one
    client alone loses nothing. ``rows`` 1 computes every request alone. At most ``queue`` requests wait.
    """

    def __init__(self, run: Callable[[Numbers], Numbers], *, rows: int, queue: int) -> None:
        self._run = run
        self._rows = rows
        self._queue = queue
        self._line: deque[Waiting] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="compute")
        self._work: asyncio.Task[None] | None = None
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
        try:
            results = await loop.run_in_executor(self._thread, self._run, z)
        except Exception as error:  # onnxruntime's errors have no common base class
            outcome: list[Numbers | Exception] = [error] * len(batch)
        else:
            outcome = _parted(results, batch)
        for one, result in zip(batch, outcome, strict=True):
            if one.answer.done():
                continue
            if isinstance(result, Exception):
                one.answer.set_exception(result)
            else:
                one.answer.set_result(result)

    def close(self) -> None:
        """End the thread after what it computes now."""
        self._thread.shutdown(wait=True)


def _parted(results: Numbers, batch: list[Waiting]) -> list[Numbers | Exception]:
    """The rows of every request: numpy's split takes longer than a small model."""
    parts: list[Numbers | Exception] = []
    end = 0
    for one in batch:
        start, end = end, end + len(one.z)
        parts.append(results[start:end])
    return parts
