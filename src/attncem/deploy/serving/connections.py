"""Connections: uvicorn's HTTP/1.1 with a time for the head of a request, a largest number, and errors as JSON."""

from __future__ import annotations

import asyncio
import json
from typing import ClassVar, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class Connection(H11Protocol):
    """One connection. A subclass made by `limited` holds the limits."""

    seconds: ClassVar[float] = 30.0
    most: ClassVar[int] = 10_000
    _head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Close a connection too many; wait for the first request on any other."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.abort()
        else:
            self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Take bytes; those of a head that is not complete start its time."""
        super().data_received(data)
        if self._idle and self._head is None:
            self._expect_head()
        elif not self._idle:
            self._forget_head()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Still answer a client that closed its half after a whole request; TLS has no half."""
        waits = not self._idle and not self.cycle.more_body and self.scheme == "http"
        if waits:
            self.cycle.keep_alive = False
        return waits

    def connection_lost(self, exc: Exception | None) -> None:
        """End the timer with the connection."""
        self._forget_head()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """The answer to bytes that are no HTTP."""
        body = json.dumps({"error": msg}).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # an answer has begun: no second one
            self.transport.abort()
            return
        events = [h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()]
        self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        self.transport.close()

    @property
    def _idle(self) -> bool:
        """Whether no request is being answered."""
        return cast(object, self.cycle) is None or self.cycle.response_complete

    def _expect_head(self) -> None:
        self._head = self.loop.call_later(self.seconds, self._close_without_head)

    def _forget_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _close_without_head(self) -> None:
        self._head = None
        if self._idle and not self.transport.is_closing():
            self.transport.close()


def limited(seconds: float, most: int) -> type[Connection]:
    """The class of connections with these limits."""
    return type("Limited", (Connection,), {"seconds": seconds, "most": most})
