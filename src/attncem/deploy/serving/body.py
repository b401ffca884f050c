"""Bodies of requests: read to a largest size and within a time, and counted in memory together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from attncem.deploy.serving.deadline import Deadline
from attncem.deploy.serving.refusal import Refusal, busy

_DRAINED = 16 << 20
"""Bytes that are read of a refused body, and dropped, so that its client has sent all and then sees the answer."""
_DRAIN_SECONDS = 5.0


@dataclass
class Store:
    """The bytes of all bodies in memory, and their largest sum."""

    limit: int
    held: int = 0


class Body:
    """The body of one request; ``release`` when the request ends."""

    def __init__(self, headers: Mapping[str, str], receive: Receive, store: Store) -> None:
        self._headers = headers
        self._receive = receive
        self._store = store
        self._held = 0
        self._late = False
        length = headers.get("content-length", "0")
        self._announced = int(length) if length.isascii() and length.isdigit() else 0
        self._ended = "transfer-encoding" not in headers and not self._announced

    async def read(self, largest: int, seconds: float) -> bytes:
        """All bytes; Refusal 413 for more than `largest`, 408 where they do not come in time."""
        if self._headers.get("content-encoding", "identity") != "identity":
            raise Refusal(415, "compressed bodies are not read")
        try:
            with Deadline(seconds):
                return await self._all(largest)
        except TimeoutError:
            self._late = True
            raise Refusal(408, f"the request was not complete within {seconds:g} s") from None

    async def _all(self, largest: int) -> bytes:
        too_large = Refusal(413, f"the body of a request has at most {largest} bytes here")
        if self._announced > largest:
            raise too_large
        chunks: list[bytes] = []
        async for chunk in self._parts():
            if self._held + len(chunk) > largest:
                raise too_large
            self._hold(len(chunk))
            chunks.append(chunk)
        return b"".join(chunks)

    def _hold(self, count: int) -> None:
        if self._store.held + count > self._store.limit:
            raise busy("too many requests are being received")
        self._store.held += count
        self._held += count

    async def _parts(self) -> AsyncIterator[bytes]:
        while not self._ended:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            self._ended = not message.get("more_body", False)
            yield message.get("body", b"")

    async def drained(self) -> bool:
        """Read and drop the rest of a refused body; False where it is too much: the connection must close."""
        if self._ended:
            return True
        if self._late or "expect" in self._headers or self._announced > _DRAINED:
            return False
        try:
            with Deadline(_DRAIN_SECONDS):
                return await self._drop()
        except (TimeoutError, ClientDisconnect):
            return False

    async def _drop(self) -> bool:
        size = 0
        async for chunk in self._parts():
            size += len(chunk)
            if size > _DRAINED:
                return False
        return True

    def release(self) -> None:
        """The request has ended: its bytes are in memory no more."""
        self._store.held -= self._held
        self._held = 0
