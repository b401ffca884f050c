"""A server on this machine that answers by the protocol, or misbehaves as a test asks it to."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

HEADER = "Inference-Header-Content-Length"
Reply = Callable[["Handler", dict[str, Any]], None]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Answering

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        head = json.loads(body[: int(self.headers[HEADER])])
        self.server.bodies.append(body)
        self.server.headers.append(dict(self.headers))
        place = len(self.server.bodies) - 1
        replies = self.server.replies
        (replies[place] if place < len(replies) else answer)(self, head)

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class Answering(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, replies: tuple[Reply, ...]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.replies = replies

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def z(self, place: int = -1) -> Any:
        """The numbers of a request."""
        body, size = self.bodies[place], int(self.headers[place][HEADER])
        return np.frombuffer(body[size:], "<f4")

    def handle_error(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def answering(*replies: Reply, tls: ssl.SSLContext | None = None) -> Iterator[Answering]:
    """A server; the first requests get these replies, later ones a right answer."""
    server = Answering(replies)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=lambda: server.serve_forever(0.01), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


LOGITS = np.array([0.5, 2.0, -1.0], np.float32)


def outputs(**others: Any) -> dict[str, Any]:
    return {"name": "logits", "shape": [1, 3], "datatype": "FP32", **others}


def answer(handler: Handler, head: dict[str, Any]) -> None:
    """The right answer, with its numbers as bytes."""
    part = outputs(parameters={"binary_data_size": 12})
    data = json.dumps({"id": head["id"], "model_name": "small", "outputs": [part]}).encode()
    handler.reply(200, data + LOGITS.tobytes(), **{HEADER: str(len(data))})


def answer_in_json(handler: Handler, head: dict[str, Any]) -> None:
    handler.reply(200, json.dumps({"id": head["id"], "outputs": [outputs(data=LOGITS.tolist())]}).encode())


def of_status(status: int, reason: str = "busy", **headers: str) -> Reply:
    return lambda handler, head: handler.reply(status, json.dumps({"error": reason}).encode(), **headers)


def of_body(body: Any) -> Reply:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return lambda handler, head: handler.reply(200, data)


def drop(handler: Handler, head: dict[str, Any]) -> None:
    """Close the connection without a word."""
    handler.close_connection = True
    handler.connection.close()


def half(handler: Handler, head: dict[str, Any]) -> None:
    """Promise more than is sent, then close."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b"{")
    drop(handler, head)


def drip(handler: Handler, head: dict[str, Any]) -> None:
    """Answer one byte at a time, without an end."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    with contextlib.suppress(OSError):
        for _ in range(100):
            handler.wfile.write(b" ")
            time.sleep(0.05)


def once(handler: Handler, head: dict[str, Any]) -> None:
    """Answer rightly, then close the connection without having said so."""
    answer(handler, head)
    handler.close_connection = True


def late(seconds: float) -> Reply:
    def reply(handler: Handler, head: dict[str, Any]) -> None:
        time.sleep(seconds)
        answer(handler, head)

    return reply
