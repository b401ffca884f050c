"""The client of scripts/serve_load.py: it takes as little time as it can, and compares the answers afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from attncem.deploy.serving.libraries import optional

Numbers = NDArray[np.float32]
LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)
JSON_LENGTH = re.compile(rb"\r\ninference-header-content-length: (\d+)\r\n", re.IGNORECASE)


@dataclass
class Served:
    """A server process and its address."""

    process: subprocess.Popen[str]
    host: str
    port: int

    def memory(self) -> int:
        """Its resident memory in kB."""
        text = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return int(re.findall(r"VmRSS:\s+(\d+)", text)[0])

    def busy(self) -> float:
        """The seconds of processor time that it has taken."""
        text = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8")
        return sum(map(int, text.rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def binary_request(name: str, z: Numbers) -> bytes:
    """A whole HTTP request for one z in binary."""
    raw = z.astype("<f4").tobytes()
    tensor = {"name": "z", "datatype": "FP32", "shape": list(z.shape), "parameters": {"binary_data_size": len(raw)}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    lines = f"POST /v2/models/{name}/infer HTTP/1.1\r\nHost: load\r\nContent-Length: {len(head) + len(raw)}\r\n"
    return f"{lines}Inference-Header-Content-Length: {len(head)}\r\n\r\n".encode() + head + raw


def json_request(name: str, z: Numbers) -> bytes:
    """A whole HTTP request for one z in JSON."""
    tensor = {"name": "z", "datatype": "FP32", "shape": list(z.shape), "data": z.ravel().tolist()}
    body = json.dumps({"inputs": [tensor]}).encode()
    lines = f"POST /v2/models/{name}/infer HTTP/1.1\r\nHost: load\r\nContent-Length: {len(body)}\r\n"
    return f"{lines}Content-Type: application/json\r\n\r\n".encode() + body


@dataclass(frozen=True)
class Way:
    """How z and logits travel: the bytes of a request, and the logits of an answer from its body and JSON part."""

    request: Callable[[str, Numbers], bytes]
    logits: Callable[[bytes, int], Numbers]


BINARY = Way(binary_request, lambda body, size: np.frombuffer(body[size:], "<f4"))
JSON = Way(json_request, lambda body, size: np.array(json.loads(body)["outputs"][0]["data"], np.float32).ravel())


@dataclass
class Load:
    """What a number of connections asked, and what came back."""

    seconds: float = 0.0
    times: list[float] = field(default_factory=list)
    answers: list[tuple[int, bytes]] = field(default_factory=list)
    wrong: int = 0
    processor: float = 0.0
    share: float = 0.0

    @property
    def work(self) -> float:
        """Seconds of processor time of the server for one answer."""
        return self.processor / len(self.times)

    @property
    def per_second(self) -> float:
        """Answers in a second."""
        return len(self.times) / self.seconds

    @property
    def p99(self) -> float:
        """Seconds within which 99 % of the answers came."""
        return statistics.quantiles(self.times, n=100)[98]


class Connection(asyncio.Protocol):
    """One connection, one request at a time. Nothing is looked at but the length of an answer: that costs time."""

    def __init__(self, requests: Sequence[bytes], left: Iterator[int], result: Load) -> None:
        self.requests, self.left, self.result = requests, left, result
        self.read, self.size = b"", 0
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        self.send_next()

    def send_next(self) -> None:
        """Send the next request, if one is left."""
        number = next(self.left, None)
        if number is None:
            self.ended.set_result(None)
            self.transport.close()
            return
        self.place = number % len(self.requests)
        self.began = time.perf_counter()
        self.transport.write(self.requests[self.place])

    def data_received(self, data: bytes) -> None:
        """Keep a whole answer for later, and go on."""
        self.read = self.read + data if self.read else data
        if not self.size and (head := self.read.find(b"\r\n\r\n")) > 0:
            lengths = LENGTH.search(self.read, 0, head + 2)
            assert lengths is not None, self.read
            self.size = head + 4 + int(lengths[1])
        if self.size and len(self.read) >= self.size:
            self.result.times.append(time.perf_counter() - self.began)
            self.result.answers.append((self.place, self.read))
            self.read, self.size = b"", 0
            self.send_next()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail where an answer is missing."""
        if not self.ended.done():
            self.ended.set_exception(exc or ConnectionError("the server closed the connection"))


def is_right(answer: bytes, expected: Numbers, way: Way) -> bool:
    """Whether an answer has status 200 and the logits of onnxruntime."""
    head, _, body = answer.partition(b"\r\n\r\n")
    size = JSON_LENGTH.search(head + b"\r\n")
    if head.split(b" ", 2)[1] != b"200":
        return False
    return bool(np.allclose(way.logits(body, int(size[1]) if size else len(body)), expected, atol=1e-4))


async def ask(server: Served, requests: Sequence[bytes], count: int, connections: int) -> Load:
    """Ask `count` times over so many connections."""
    result, left, loop = Load(), iter(range(count)), asyncio.get_running_loop()
    busy, start, here = server.busy(), time.perf_counter(), time.process_time()
    opened = [
        (await loop.create_connection(lambda: Connection(requests, left, result), server.host, server.port))[1]
        for _ in range(connections)
    ]
    await asyncio.gather(*(one.ended for one in opened))
    result.seconds, here = time.perf_counter() - start, time.process_time() - here
    result.processor = server.busy() - busy
    result.share = here / (here + result.processor)
    return result


def load(
    server: Served,
    name: str,
    z: Numbers,
    expected: Numbers | None,
    count: int,
    connections: int,
    way: Way = BINARY,
) -> Load:
    """Ask `count` times over so many connections, each one request at a time; then compare the answers."""
    uvloop = optional("uvloop")
    with asyncio.Runner(loop_factory=uvloop and uvloop.new_event_loop) as runner:
        result = runner.run(ask(server, [way.request(name, one[None]) for one in z], count, connections))
    if expected is not None:
        result.wrong = sum(not is_right(answer, expected[place], way) for place, answer in result.answers)
    result.answers.clear()
    return result
