"""Servers of bundles as processes, and requests to them by the standard library."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bundles import SHAPE

HEADER = "Inference-Header-Content-Length"
INFER = "/v2/models/demo/infer"


@dataclass
class Server:
    """A running `attncem serve`; its log is a file."""

    process: subprocess.Popen[str]
    host: str
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"{self.host}:{self.port}"

    def connect(self, context: ssl.SSLContext | None = None, seconds: float = 20) -> http.client.HTTPConnection:
        if context is not None:
            return http.client.HTTPSConnection(self.host, self.port, timeout=seconds, context=context)
        return http.client.HTTPConnection(self.host, self.port, timeout=seconds)

    def socket(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=20)

    def ask(
        self, path: str, body: Any = None, headers: Mapping[str, str] | None = None, verb: str | None = None
    ) -> tuple[int, Any]:
        """Status and JSON (or text) of one request on a connection of its own."""
        connection = self.connect()
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request(verb or ("GET" if body is None else "POST"), path, sent, dict(headers or {}))
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        is_json = (answer.headers["Content-Type"] or "").startswith("application/json")
        return answer.status, json.loads(text) if is_json else text.decode()

    def memory(self) -> int:
        """Resident kB of the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0])

    def end(self, number: int = signal.SIGTERM, seconds: float = 20) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(seconds)


def without(folder: Path, *libraries: str) -> dict[str, str]:
    """The environment of a server in which libraries cannot be imported."""
    for name in libraries:
        (folder / f"{name}.py").write_text(f"raise ImportError({name!r})\n")
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}


@contextmanager
def serving(log: Path, bundles: Sequence[Path], *options: str, port: int = 0, **environment: str) -> Iterator[Server]:
    """A server on a free port, until the end of the block."""
    command = [sys.executable, "-m", "attncem", "serve", *map(str, bundles), "--port", str(port), *options]
    with log.open("a") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env={**os.environ, **environment}
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    try:
        place = re.match(r"https?://(\S+):(\d+)/v2/models/", line)
        assert place is not None, (line, log.read_text())
        yield Server(process, place[1], int(place[2]), log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()


def numbers(rows: int = 1, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A z that the channel of the tests' bundle can send."""
    return np.random.default_rng(seed).uniform(-1, 1, (rows, *SHAPE)).astype(np.float32)


def request(z: np.ndarray[Any, Any], **changes: Any) -> dict[str, Any]:
    """A right request in JSON."""
    tensor = {"name": "z", "datatype": "FP32", "shape": list(z.shape), "data": z.ravel().tolist()}
    return {"inputs": [tensor], **changes}


def binary(z: np.ndarray[Any, Any], **changes: Any) -> tuple[bytes, dict[str, str]]:
    """A right request with binary numbers, and its headers."""
    raw = z.astype("<f4").tobytes()
    tensor = {"name": "z", "datatype": "FP32", "shape": list(z.shape), "parameters": {"binary_data_size": len(raw)}}
    head = json.dumps({"inputs": [tensor], **changes}).encode()
    return head + raw, {HEADER: str(len(head))}
