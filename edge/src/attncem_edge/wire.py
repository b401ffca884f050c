"""Asks a server by the Open Inference Protocol v2 over HTTP: z as bytes there, logits back.

A request is made once. Every retry sends the same bytes, so it shows the server nothing new.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import secrets
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
from numpy.typing import NDArray

from attncem_edge.errors import ConfigError, ServerError
from attncem_edge.manifest import FEATURE, LOGITS

HEADER = "Inference-Header-Content-Length"
AGAIN = (502, 503, 504)
"""Statuses after which the same request is sent again; after 429 it is only where the server names a time to wait."""
LARGEST_ANSWER = 16 << 20
_LONGEST_PAUSE = 30.0
_FIRST_PAUSE = 0.2
_SHOWN = 300
"""Characters of a server's words that are shown."""


@dataclass(frozen=True)
class Request:
    """One request, as it is sent every time: its body, the length of its JSON part, and its identifier."""

    body: bytes
    head: int
    mark: str


def make_request(z: NDArray[np.float32], fingerprint: str) -> Request:
    """The request for one release z of the model of this fingerprint."""
    data, mark = z.astype("<f4").tobytes(), secrets.token_hex(8)
    part = {"name": FEATURE, "shape": [1, *z.shape], "datatype": "FP32", "parameters": {"binary_data_size": len(data)}}
    head = json.dumps(
        {
            "id": mark,
            "parameters": {"fingerprint": fingerprint},
            "inputs": [part],
            "outputs": [{"name": LOGITS, "parameters": {"binary_data": True}}],
        }
    ).encode()
    return Request(head + data, len(head), mark)


class Server:
    """A server at an address. ``timeout``: seconds of each attempt; ``retries``: further attempts after the first."""

    _connection: http.client.HTTPConnection | None = None

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = 10.0,
        retries: int = 3,
        ca: str | Path | None = None,
        plain_http: bool = False,
    ) -> None:
        self.url, self._parts = url, _address(url, plain_http=plain_http)
        if not (math.isfinite(timeout) and timeout > 0) or retries < 0:
            raise ConfigError(f"timeout={timeout}, retries={retries}: must be above 0, and at least 0")
        if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token and token):
            raise ConfigError("the token must be one line of printable ASCII characters")
        self._token, self._timeout, self._retries = token, timeout, retries
        self._context = _context(ca) if self._parts.scheme == "https" else None
        self._one = threading.Lock()

    def ask(self, model: str, request: Request, classes: int) -> NDArray[np.float32]:
        """The logits [classes] that the server answers; ServerError where it does not."""
        path = f"{self._parts.path.rstrip('/')}/v2/models/{quote(model)}/infer"
        pause, problem = _FIRST_PAUSE, ""
        for attempt in range(self._retries + 1):
            if attempt:
                time.sleep(pause * (1 + secrets.randbelow(1000) / 2000))  # clients do not all come back at once
            try:
                status, headers, body = self._exchange(path, request)
            except ssl.SSLCertVerificationError as error:
                raise ServerError(f"{self.url} is not the server: {_words(error)}; nothing was sent") from error
            except (OSError, http.client.HTTPException) as error:
                pause, problem = min(2 * pause, _LONGEST_PAUSE), _words(error)
                continue
            if status == http.HTTPStatus.OK:
                return _logits(self.url, headers, body, request, classes)
            problem = f"status {status}: {_complaint(body)}"
            if status not in AGAIN and not (status == http.HTTPStatus.TOO_MANY_REQUESTS and "Retry-After" in headers):
                raise ServerError(f"{self.url} refused: {problem}")
            pause = max(min(2 * pause, _LONGEST_PAUSE), _asked_pause(headers))
        raise ServerError(f"{self.url} did not answer after {self._retries + 1} attempts: {problem}")

    def _exchange(self, path: str, request: Request) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Send the request once; an error closes the connection."""
        headers = {"Content-Type": "application/octet-stream", HEADER: str(request.head)}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        with self._one:
            if self._connection is not None:
                with contextlib.suppress(ConnectionError):  # it may have been closed meanwhile
                    return self._post(self._connection, path, request, headers)
            self._connection = self._connect()
            return self._post(self._connection, path, request, headers)

    def _post(
        self, connection: http.client.HTTPConnection, path: str, request: Request, headers: dict[str, str]
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """One attempt on a connection, which an error closes; it ends in time, however slowly the server answers."""
        late = threading.Event()
        watch = threading.Timer(self._timeout, _interrupt, (connection, late))
        watch.daemon = True
        watch.start()
        try:
            connection.request("POST", path, request.body, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, _whole(answer)
        except BaseException as error:
            self._close()
            if late.is_set() and isinstance(error, OSError | http.client.HTTPException):
                raise TimeoutError from error
            raise
        finally:
            watch.cancel()

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._context is None:
            return http.client.HTTPConnection(host, port, timeout=self._timeout)
        return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=self._context)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def __del__(self) -> None:
        self._close()

    def close(self) -> None:
        """Close the connection; the next question opens another."""
        with self._one:
            self._close()


def _address(url: str, *, plain_http: bool) -> Any:
    """The parts of an address; ConfigError where it is none, or would send z unprotected through a network."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"url={url}: {error}") from error
    del port  # reading it checks it
    is_plain = url.isascii() and url.isprintable() and " " not in url
    if not is_plain or parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(f"url={url}: must look like https://HOST:PORT, or http://127.0.0.1:PORT on this machine")
    if parts.username or parts.password:
        raise ConfigError("url: must hold no password; a token comes from a file or the environment")
    if parts.scheme == "http" and not plain_http and not _is_here(parts.hostname):
        raise ConfigError(
            f"url={url}: everyone on the way could read what is sent; use https, or allow it with plain_http "
            "(--plain-http)"
        )
    return parts


def _is_here(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _context(ca: str | Path | None) -> ssl.SSLContext:
    """TLS that checks the server's name and certificate, against the system's authorities or those in a file."""
    try:
        return ssl.create_default_context(cafile=None if ca is None else str(ca))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"ca={ca}: cannot be read as certificates: {_words(error)}") from error


def _interrupt(connection: http.client.HTTPConnection, late: threading.Event) -> None:
    """End whatever a connection waits for."""
    late.set()
    if connection.sock is not None:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)


def _whole(answer: http.client.HTTPResponse) -> bytes:
    """All of an answer; an error where it is cut short or too long."""
    size = answer.length
    body = answer.read() if size is not None and size <= LARGEST_ANSWER else answer.read(LARGEST_ANSWER + 1)
    if len(body) > LARGEST_ANSWER:
        raise http.client.HTTPException(f"the answer has more than {LARGEST_ANSWER} bytes")
    return body


def _asked_pause(headers: http.client.HTTPMessage) -> float:
    """Seconds that the server asks to wait, within limits."""
    value = headers.get("Retry-After", "")
    return min(float(value), _LONGEST_PAUSE) if value.isdecimal() and len(value) < 10 else 0.0


def _logits(
    url: str, headers: http.client.HTTPMessage, body: bytes, request: Request, classes: int
) -> NDArray[np.float32]:
    """The logits in an answer, as bytes or as JSON; ServerError where they cannot be those of the request."""
    try:
        size = int(headers[HEADER]) if HEADER in headers else len(body)
        head = json.loads(body[:size])
        if head.get("id", request.mark) != request.mark:
            raise ValueError("it answers another request")
        (part,) = (it for it in head["outputs"] if it["name"] == LOGITS)
        if part["datatype"] != "FP32" or math.prod(part["shape"]) != classes:
            raise ValueError(f"logits are {part['datatype']} {part['shape']}, and the bundle has {classes} labels")
        values = _bytes_of(body[size:], head["outputs"]) if "data" not in part else part["data"]
        logits = np.asarray(values, np.float32).reshape(-1)
        if logits.shape != (classes,) or not np.isfinite(logits).all():
            raise ValueError("logits have the wrong number, or are not finite")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise ServerError(f"{url} gave an answer that cannot be read: {_words(error)}") from error
    return logits


def _bytes_of(data: bytes, outputs: list[Any]) -> NDArray[np.float32]:
    """The numbers of the logits behind the JSON, where outputs stand one after the other."""
    place = 0
    for part in outputs:
        size = int(part.get("parameters", {}).get("binary_data_size", 0))
        if part["name"] == LOGITS:
            return np.frombuffer(data[place : place + size], "<f4")
        place += size
    raise ValueError("it has no logits")


def _complaint(body: bytes) -> str:
    """The server's reason, in one line of limited length."""
    try:
        reason = json.loads(body)["error"]
    except (ValueError, TypeError, KeyError, RecursionError):
        reason = body[:_SHOWN].decode("utf-8", "replace")
    return _line(str(reason)) or "no reason"


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, socket.gaierror):
        return "the name of the host is unknown"
    return _line(str(error)) or type(error).__name__


def _line(text: str) -> str:
    return " ".join("".join(it if it.isprintable() else " " for it in text).split())[:_SHOWN]
