"""Connections whose requests httptools reads: llhttp, the parser of Node, in C."""

from __future__ import annotations

import re

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from attncem.deploy.serving.connections import Limited, error_body

_LARGEST_HEAD = 1 << 16
"""Bytes that may come without a part of a body: the parser itself keeps headers of any length."""
_HEAD = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
_OFFER = re.compile(rb"\r\nupgrade:", re.IGNORECASE)


class Connection(Limited, HttpToolsProtocol):  # type: ignore[misc]
    """One connection, which takes the next request when it has answered the last.

    A client that sends the next one earlier gets the last answer with ``Connection: close`` and repeats the next. The
    parser would read, and keep in memory, all requests that are in the bytes of one read.
    """

    _ended = False
    _kept = 0

    def data_received(self, data: bytes) -> None:
        """Take bytes until the last request of this connection."""
        if self._ended:
            return
        self._kept += len(data)
        super().data_received(data if self._answering else _without_offer(data))
        if self._kept > _LARGEST_HEAD and not self._ended:
            self.send_400_response(f"the head of a request has at most {_LARGEST_HEAD} bytes")

    def on_message_begin(self) -> None:
        """A request; an error, which ends the reading, while another is being answered."""
        if self._answering:
            raise BufferError("the last request is not answered yet")
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is read, and an error without its one Host. Trailers that follow the body reach no request."""
        if sum(name == b"host" for name, _ in self.headers) != 1 and self.parser.get_http_version() != "1.0":
            raise ValueError("a request of HTTP/1.1 has one Host")
        if self.parser.should_upgrade():
            raise ValueError("the parser would take the body for another protocol")
        super().on_headers_complete()
        self._kept = 0
        self.headers = []

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        super().on_body(body)
        self._kept = 0

    def on_message_complete(self) -> None:
        """The request is read."""
        super().on_message_complete()
        self._kept = 0

    def send_400_response(self, msg: str) -> None:
        """Read no more; the answer to bytes that are no HTTP, unless a whole request before them gets its answer."""
        self._ended = True
        if self._answering and not self.cycle.more_body:
            self.cycle.keep_alive = False
        elif self._answering and self.cycle.response_started:
            self.transport.abort()
        else:
            body = error_body(msg)
            self.transport.write(_HEAD % len(body) + body)
            self.transport.close()


def _without_offer(data: bytes) -> bytes:
    """Bytes of a head without the header that offers another protocol: the parser would not read the body after it."""
    end = data.find(b"\r\n\r\n")
    head = len(data) if end < 0 else end
    if _OFFER.search(data, 0, head) is None:
        return data
    return _OFFER.sub(b"\r\nX-Upgrade:", data[:head]) + data[head:]
