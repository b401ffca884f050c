"""The server under load: fuzzed requests, many connections, slow and idle clients, kills. Loopback only."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import signal
import socket
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bundles import SHAPE, make_bundle, weights
from fuzzing import amount, start
from scripts import serve_load
from serving import HEADER, INFER, Server, binary, numbers, request, serving, without

pytestmark = pytest.mark.slow
Z = numbers(3)
JUNK: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 7, 2**31, 2**63, 10**400, 0.5, 1e39, float("nan"), float("inf"), "", "z", "FP32"),
    *("\ud800", "\x00", [], {}, [[]], [1], [None], {"a": 1}, [[[[1.0]]]], [0] * 500, "x" * 5000),
)
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
VERBS = ("GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS", "get", "X" * 50)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("bundles") / "demo")


# fuzzed requests


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container of a request with each of its keys."""
    keys = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(keys):
        yield value, key
        yield from places(inner)


def fuzzed_value(body: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    for _ in range(chance.choice((1, 1, 2, 5))):
        all_places = list(places(body))
        if not all_places:
            return body
        few = [place for place in all_places if not isinstance(place[0], list) or len(place[0]) < 10]
        holder, key = chance.choice(few if few and chance.random() < 0.7 else all_places)
        if chance.random() < 0.2:
            del holder[key]
        else:
            holder[key] = deepcopy(chance.choice(JUNK))
    return body


def fuzzed_bytes(text: bytes, chance: random.Random) -> bytes:
    changed = bytearray(text)
    for _ in range(chance.choice((1, 1, 3, 20))):
        place = chance.randrange(len(changed) + 1)
        changed[place : place + chance.choice((0, 1, 1, 8))] = chance.randbytes(chance.choice((0, 1, 1, 4)))
    return bytes(changed)


def as_http(body: bytes, headers: dict[str, str], verb: str = "POST", path: str = INFER) -> bytes:
    lines = {"Host": "a", "Content-Length": str(len(body)), **headers}
    head = f"{verb} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return head.encode("utf-8", "surrogatepass") + b"\r\n" + body


def json_values(chance: random.Random) -> bytes:
    return as_http(json.dumps(fuzzed_value(request(Z, id="a", parameters={}), chance)).encode(), {})


def heads_of_binary(chance: random.Random) -> bytes:
    body, headers = binary(Z, parameters={"binary_data_output": True})
    size = int(headers[HEADER])
    head = json.dumps(fuzzed_value(json.loads(body[:size]), chance)).encode()
    return as_http(head + body[size:], {HEADER: str(len(head))})


def bytes_of_bodies(chance: random.Random) -> bytes:
    body, headers = binary(Z) if chance.random() < 0.5 else (json.dumps(request(Z)).encode(), {})
    return as_http(fuzzed_bytes(body, chance), headers)


def headers_of_requests(chance: random.Random) -> bytes:
    body, headers = binary(Z)
    names = (HEADER, "Content-Length", "Transfer-Encoding", "Content-Encoding", "Expect", "Connection", "Upgrade")
    words = (
        "-1",
        "0",
        "5",
        "1e3",
        "x",
        "",
        "9" * 9,
        "9" * 30,
        "chunked",
        "gzip",
        "identity",
        "100-continue",
        "close",
        "ü",
    )
    return as_http(body, {**headers, chance.choice(names): chance.choice((*words, "a" * 70_000))})


def places_and_verbs(chance: random.Random) -> bytes:
    parts = (
        "v2",
        "models",
        "demo",
        "infer",
        "versions",
        "1",
        "2",
        "ready",
        "metrics",
        "..",
        "%00",
        "%ff",
        "",
        "a" * 999,
    )
    path = "/" + "/".join(chance.choice(parts) for _ in range(chance.randrange(7)))
    return as_http(b"{}", {}, chance.choice(VERBS), path)


def whole_requests(chance: random.Random) -> bytes:
    return fuzzed_bytes(as_http(json.dumps(request(Z)).encode(), {}), chance)


FUZZERS: tuple[Callable[[random.Random], bytes], ...] = (
    *(json_values, json_values, heads_of_binary, heads_of_binary, bytes_of_bodies),
    *(headers_of_requests, places_and_verbs, whole_requests),
)


def exchanged(server: Server, sent: bytes) -> bytes:
    """What the server answers to bytes after which the client closes its half."""
    answer = b""
    with server.socket() as connection, contextlib.suppress(ConnectionError):
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        while part := connection.recv(1 << 16):
            answer += part
    return answer


def outcome(answer: bytes) -> str:
    """The status of an answer in words; an error of the server fails."""
    if not answer:
        return "closed"
    head, _, body = answer.removeprefix(CONTINUE).partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    assert 200 <= status < 500, answer
    if status >= 400 and body:
        first = json.JSONDecoder().raw_decode(body.decode())[0]  # a second answer may follow
        assert list(first) == ["error"] and isinstance(first["error"], str), answer
    return str(status)


@pytest.mark.parametrize("missing", [(), ("httptools", "uvloop")], ids=["httptools", "h11"])
def test_fuzzed_requests_get_the_right_answer(bundle: Path, tmp_path: Path, missing: tuple[str, ...]) -> None:
    count, chance, ended = amount(10_000), random.Random(start(0)), Counter[str]()
    options = ["--seconds", "5", "--log-requests"]
    with serving(tmp_path / "log", [bundle], *options, **without(tmp_path, *missing)) as server:
        for number in range(count):
            if number == count // 5:
                before = server.memory()
            sent = chance.choice(FUZZERS)(chance)
            try:
                ended[outcome(exchanged(server, sent))] += 1
            except AssertionError as error:
                raise AssertionError(f"request {number}: {sent[:2000]!r}") from error
        assert server.memory() < 1.05 * before
        assert server.ask(INFER, request(Z))[0] == 200
        metrics = server.ask("/metrics")[1]
        assert server.end() == 0
    sys.stdout.write(f"{dict(ended)}\n")
    assert 'code="5' not in metrics
    assert ended["400"] > 0.5 * count and set(ended) == {"200", "400", "404", "405", "413", "415", "closed"}
    log = (tmp_path / "log").read_text(errors="replace")
    assert "Traceback" not in log and "failed" not in log and "Error" not in log


# many connections


def test_7500_requests_over_32_connections(tmp_path: Path) -> None:
    bundle = serve_load.write_bundle(tmp_path / "small", serve_load.graph_of(serve_load.WIDTHS["small"]))
    model = serve_load.ServedModel(bundle)
    z = np.random.default_rng(0).uniform(-1, 1, (64, *serve_load.SHAPE)).astype(np.float32)
    with serve_load.served(bundle) as server:
        warm = serve_load.load(server, "small", z, model.run(z), 5000, 32)
        before = server.memory()
        more = serve_load.load(server, "small", z, model.run(z), 2500, 32)
        assert server.memory() < 1.05 * before
    assert (len(warm.times), len(more.times), warm.wrong, more.wrong) == (5000, 2500, 0, 0)


def test_slow_and_idle_clients_do_not_hold_up_others(bundle: Path, tmp_path: Path) -> None:
    import resource

    kept = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(kept[1], 4096), kept[1]))
    body = as_http(json.dumps(request(Z)).encode(), {})
    with contextlib.ExitStack() as opened, serving(tmp_path / "log", [bundle], "--seconds", "60") as server:
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, kept)
        before = server.memory()
        idle = [opened.enter_context(server.socket()) for _ in range(2000)]
        slow = [opened.enter_context(server.socket()) for _ in range(100)]
        for position in range(100):
            for connection in slow:
                connection.sendall(body[position : position + 1])
        times = []
        for _ in range(200):
            began = time.perf_counter()
            assert server.ask(INFER, request(Z))[0] == 200
            times.append(time.perf_counter() - began)
        assert statistics.median(times) < 0.1
        assert server.memory() - before < 60 * 1024, "30 kB for each connection"
        for connection in slow:
            connection.sendall(body[100:])
        assert all(connection.recv(1 << 16).startswith(b"HTTP/1.1 200") for connection in slow)
        assert len(idle) == 2000
    assert "Traceback" not in (tmp_path / "log").read_text()


# kills


class Asking(threading.Thread):
    """A client that asks until it is stopped, and again after every lost connection."""

    def __init__(self, port: int, seed: int) -> None:
        super().__init__()
        self.port, self.z = port, numbers(1 + seed % 3, seed)
        self.over = threading.Event()
        self.right = self.wrong = self.lost = 0

    def run(self) -> None:
        body, headers = binary(self.z, parameters={"binary_data_output": True})
        expected = self.z.reshape(len(self.z), -1) @ weights()
        while not self.over.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            try:
                while not self.over.is_set():
                    connection.request("POST", INFER, body, headers)
                    answer = connection.getresponse()
                    got = answer.read()[int(answer.headers[HEADER]) :]
                    same = answer.status == 200 and np.allclose(np.frombuffer(got, "<f4"), expected.ravel(), atol=1e-4)
                    self.right, self.wrong = self.right + same, self.wrong + (not same)
            except (OSError, http.client.HTTPException):
                self.lost += 1
                time.sleep(0.02)
            finally:
                connection.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_every_answer_is_right_while_the_server_is_killed_and_restarted(
    bundle: Path, tmp_path: Path, number: int
) -> None:
    with serving(tmp_path / "log", [bundle]) as server:
        port = server.port
        clients = [Asking(port, seed) for seed in range(8)]
        for client in clients:
            client.start()
        time.sleep(1)
        server.end(number)
    counts = []
    for _ in range(4):
        with serving(tmp_path / "log", [bundle], port=port) as server:
            counts.append([client.right for client in clients])
            time.sleep(1)
            server.end(number)
        counts.append([client.right for client in clients])
    for client in clients:
        client.over.set()
    for client in clients:
        client.join(20)
    assert not any(client.wrong for client in clients)
    assert all(client.lost >= 5 for client in clients)
    for before, after in zip(counts[::2], counts[1::2], strict=True):
        assert all(later > earlier for earlier, later in zip(before, after, strict=True)), "every client recovers"
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_the_tests_send_what_the_bundle_takes() -> None:
    assert numbers(2).shape == (2, *SHAPE) and abs(numbers(100)).max() <= 1
