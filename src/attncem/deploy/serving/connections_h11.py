"""Connections whose requests h11 reads: pure Python, on every platform."""

from __future__ import annotations

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from attncem.deploy.serving.connections import Limited, error_body


class Connection(Limited, H11Protocol):  # type: ignore[misc]
    """One connection."""

    def send_400_response(self, msg: str) -> None:
        """The answer to bytes that are no HTTP."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # an answer has begun: no second one
            self.transport.abort()
            return
        body = error_body(msg)
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        events = [h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()]
        self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        self.transport.close()
