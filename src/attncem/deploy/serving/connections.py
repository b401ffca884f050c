"""Connections: uvicorn's HTTP/1.1 with a time for the head of a request, a largest number, and errors as JSON.

httptools reads the requests where it is installed, else h11, which needs three times as long.
"""

from __future__ import annotations

import asyncio
import json
from importlib import import_module
from typing import Any, ClassVar

from attncem.deploy.serving.libraries import optional


class Limited(asyncio.Protocol):
    """What connections of both parsers do; stands before uvicorn's class. `limited` makes a subclass with limits."""

    seconds: ClassVar[float] = 30.0
    most: ClassVar[int] = 10_000
    connections: set[Any]
    cycle: Any
    loop: asyncio.AbstractEventLoop
    scheme: str | None
    transport: asyncio.Transport
    _head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close a connection too many; wait for the first request on any other."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            self.transport.abort()
        else:
            self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Take bytes; those of a head that is not complete start its time."""
        super().data_received(data)
        if self._answering:
            self._forget_head()
        elif self._head is None:
            self._expect_head()

    def eof_received(self) -> bool:
        """Still answer a client that closed its half after a whole request; TLS has no half."""
        waits = self._answering and not self.cycle.more_body and self.scheme == "http"
        if waits:
            self.cycle.keep_alive = False
        return waits

    def connection_lost(self, exc: Exception | None) -> None:
        """End the timer with the connection."""
        self._forget_head()
        super().connection_lost(exc)

    @property
    def _answering(self) -> bool:
        """Whether a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def _expect_head(self) -> None:
        self._head = self.loop.call_later(self.seconds, self._close_without_head)

    def _forget_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _close_without_head(self) -> None:
        self._head = None
        if not self._answering and not self.transport.is_closing():
            self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing: a client that offers another protocol is answered in this one, as HTTP allows."""


def error_body(reason: str) -> bytes:
    """The body of an answer to bytes that are no HTTP."""
    return json.dumps({"error": reason}).encode()


def limited(seconds: float, most: int) -> type[Limited]:
    """The class of connections with these limits."""
    parser = "h11" if optional("httptools") is None else "httptools"
    base: type[Limited] = import_module(f"attncem.deploy.serving.connections_{parser}").Connection
    return type("Connection", (base,), {"seconds": seconds, "most": most})
