"""Connections of the server: bytes that are no HTTP, slow and half-closed clients, TLS, stop; read by either parser."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bundles import make_bundle
from serving import INFER, Server, numbers, request, serving, without

Z = numbers()
BODY = json.dumps(request(Z)).encode()
HEAD = f"POST {INFER} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(BODY)}\r\n".encode()
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n"
MISSING: dict[str, tuple[str, ...]] = {"httptools": (), "h11": ("httptools", "uvloop")}
"""Libraries that a server lacks, by the parser that it then takes."""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("bundles") / "demo")


@pytest.fixture(scope="module", params=MISSING)
def parser(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The parser of the servers of a test."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in without(tmp_path_factory.mktemp("missing"), *MISSING[request.param]).items():
            patch.setenv(name, value)
        yield request.param


@pytest.fixture(scope="module")
def server(parser: str, bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server") / "log.txt", [bundle], "--rows", "4") as running:
        yield running


def everything(connection: socket.socket) -> bytes:
    """What a connection gives until the server closes it."""
    with connection:
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def answers(server: Server, *parts: bytes) -> bytes:
    """What the server gives for bytes that are sent in parts, until it closes the connection."""
    connection = server.socket()
    for part in parts:
        connection.sendall(part)
        time.sleep(0.02)
    return everything(connection)


# requests and bytes that are none


def test_the_server_takes_the_parser_that_is_there(server: Server, parser: str) -> None:
    libraries = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert ("httptools" in libraries, "uvloop" in libraries) == (parser == "httptools",) * 2


def test_a_body_of_a_gigabyte_is_not_read(server: Server) -> None:
    before = server.memory()
    with server.socket() as connection:
        connection.sendall(f"POST {INFER} HTTP/1.1\r\nHost: a\r\nContent-Length: {10**9}\r\n\r\n".encode())
        answer = connection.recv(1 << 16)
    assert answer.startswith(b"HTTP/1.1 413") and b"connection: close" in answer.lower()
    assert server.memory() < before + 4096


@pytest.mark.parametrize(
    ("path", "status"), [(INFER, 413), ("/v2/models/none/infer", 404), ("/none", 404), ("/v2", 405)]
)
def test_a_body_without_end_is_not_read_to_its_end(server: Server, path: str, status: int) -> None:
    part = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    with server.socket() as connection:
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        sent = 0
        with pytest.raises(ConnectionError):
            while sent < 200:
                connection.sendall(part)
                sent += 1
    assert 16 <= sent < 40, "megabytes"
    assert server.ask(path, {})[0] == (400 if path == INFER else status)


NO_HTTP = {
    "no text": b"\x00\x01\x02\r\n\r\n",
    "an unknown version": b"GET v2 HTTP/9\r\n\r\n",
    "no host": b"GET /v2 HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /v2 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "a length that is no number": b"POST /v2 HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
    "two lengths": b"POST /v2 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "a chunk without length": HEAD.replace(b"Content-Length", b"Transfer-Encoding: chunked\r\nX") + b"\r\nx\r\n",
}


@pytest.mark.parametrize("text", NO_HTTP.values(), ids=NO_HTTP)
def test_bytes_that_are_no_http_get_400_in_json(server: Server, text: bytes) -> None:
    with server.socket() as connection:
        connection.sendall(text)
        answer = connection.recv(1 << 16)
    assert answer.startswith(b"HTTP/1.1 400") and answer.endswith(b'{"error": "Invalid HTTP request received."}')


def test_a_head_without_end_is_not_kept(server: Server) -> None:
    before = server.memory()
    with server.socket() as connection, contextlib.suppress(ConnectionError):
        connection.sendall(b"GET /v2 HTTP/1.1\r\nHost: a\r\nX: ")
        for _ in range(200):
            connection.sendall(b"x" * 0x100000)
    assert server.memory() < before + 8192
    answer = answers(server, b"GET /v2 HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 70_000)
    assert answer.startswith(b"HTTP/1.1 400") and list(json.loads(answer.partition(b"\r\n\r\n")[2])) == ["error"]


def test_trailers_without_end_are_not_kept(server: Server) -> None:
    before = server.memory()
    head = HEAD.replace(b"Content-Length", b"Transfer-Encoding: chunked\r\nX") + b"\r\n0\r\n"
    with server.socket() as connection, contextlib.suppress(ConnectionError):
        connection.sendall(head)
        for _ in range(200):
            connection.sendall(b"X: " + b"x" * 0x1000 + b"\r\n")
            connection.sendall(b"x: y\r\n" * 10_000)
    assert server.memory() < before + 8192
    assert answers(server, LIVE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")).startswith(b"HTTP/1.1 200")


def test_trailers_are_no_headers(server: Server) -> None:
    chunked = HEAD.replace(b"Content-Length", b"Connection: close\r\nTransfer-Encoding: chunked\r\nX")
    body = b"%x\r\n%s\r\n0\r\n" % (len(BODY), BODY)
    answer = answers(server, chunked + b"\r\n" + body, b"Content-Encoding: gzip\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")


def test_an_early_second_request_never_changes_the_first_answer(server: Server) -> None:
    """It is answered after the first, or the connection closes after the first answer, and the client repeats it."""
    for early in (LIVE, b"\x00\x01", LIVE * 1000):
        connection = server.socket()
        connection.sendall(HEAD + b"\r\n" + BODY + early)
        connection.shutdown(socket.SHUT_WR)
        answer = everything(connection)
        assert answer.startswith(b"HTTP/1.1 200") and b'"model_name": "demo"' in answer
    assert server.memory() < 200 * 1024


def test_a_client_that_offers_another_protocol_is_answered(server: Server) -> None:
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
    last = HEAD + b"Connection: close\r\n\r\n" + BODY
    answer = answers(server, HEAD + offer + BODY, last)
    assert answer.count(b"HTTP/1.1 200 OK") == answer.count(b'"model_name": "demo"') == 2
    assert "WebSocket" not in server.log.read_text()


# time, numbers


@pytest.mark.usefixtures("parser")
def test_slow_idle_and_half_closed_connections(bundle: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "log", [bundle], "--seconds", "1") as server:
        idle, slow_head, slow_body, half = (server.socket() for _ in range(4))
        slow_head.sendall(HEAD)
        slow_body.sendall(HEAD + b"\r\n" + BODY[:10])
        half.sendall(HEAD + b"\r\n" + BODY)
        half.shutdown(socket.SHUT_WR)
        assert everything(half).startswith(b"HTTP/1.1 200")
        assert everything(idle) == b"" and everything(slow_head) == b""
        late = everything(slow_body)
        assert late.startswith(b"HTTP/1.1 408") and b"not complete within 1 s" in late
        assert server.ask(INFER, request(Z))[0] == 200
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.usefixtures("parser")
def test_connections_have_a_largest_number(bundle: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "log", [bundle], "--connections", "2") as server, contextlib.ExitStack() as two:
        for _ in range(2):
            two.enter_context(server.socket())
        time.sleep(0.1)
        with server.socket() as third:
            third.settimeout(5)
            with contextlib.suppress(ConnectionResetError):  # or closed without one
                third.sendall(b"GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n")
                assert third.recv(100) == b""
        two.close()
        time.sleep(0.1)
        assert server.ask("/v2")[0] == 200


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate of this test")
    folder = tmp_path_factory.mktemp("tls")
    files = folder / "cert.pem", folder / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    place = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    subprocess.run([*made, *place, "-out", files[0], "-keyout", files[1]], check=True, capture_output=True)
    return str(files[0]), str(files[1])


def status_by_tls(server: Server, context: ssl.SSLContext) -> int:
    connection = server.connect(context)
    try:
        connection.request("POST", INFER, json.dumps(request(Z)))
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_server_without_open_files_left_recovers(
    parser: str, bundle: Path, tmp_path: Path, certificate: tuple[str, str]
) -> None:
    """Connections in a TLS handshake count nowhere, so they can take all open files."""
    import resource

    options = ["--tls-certificate", certificate[0], "--tls-key", certificate[1], "--seconds", "1"]
    with serving(tmp_path / "log", [bundle], *options) as server:
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (60, 60))
        many = [server.socket() for _ in range(100)]
        time.sleep(0.2)
        for connection in many:
            connection.close()
        time.sleep(0.7)  # until it has seen that they are closed
        assert status_by_tls(server, ssl.create_default_context(cafile=certificate[0])) == 200
    log = (tmp_path / "log").read_text()
    named = "socket.accept() out of system resource (OSError)" in log
    assert named == (parser == "h11"), "uvloop closes the connections without a word"
    assert "Traceback" not in log


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_finishes_what_was_accepted(bundle: Path, tmp_path: Path, number: int) -> None:
    with serving(tmp_path / "log", [bundle]) as server:
        idle, busy = server.socket(), server.socket()
        busy.sendall(HEAD + b"\r\n" + BODY[:10])
        time.sleep(0.1)
        server.process.send_signal(number)
        assert everything(idle) == b""
        with pytest.raises(OSError):
            server.socket()
        busy.sendall(BODY[10:])
        assert everything(busy).startswith(b"HTTP/1.1 200")
        assert server.process.wait(10) == 0
    assert (tmp_path / "log").read_text() == ""


@pytest.mark.usefixtures("parser")
def test_a_second_interrupt_ends_at_once_without_a_traceback(bundle: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "log", [bundle]) as server:
        slow = server.socket()
        slow.sendall(f"POST {INFER} HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n".encode())
        time.sleep(0.1)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(5) == 0
        slow.close()
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.usefixtures("parser")
def test_tls_with_and_without_certificates_of_clients(
    bundle: Path, tmp_path: Path, certificate: tuple[str, str]
) -> None:
    options = ["--tls-certificate", certificate[0], "--tls-key", certificate[1]]
    trusting = ssl.create_default_context(cafile=certificate[0])
    with serving(tmp_path / "log", [bundle], *options) as server:
        assert status_by_tls(server, trusting) == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            status_by_tls(server, ssl.create_default_context())
    with serving(tmp_path / "log", [bundle], *options, "--tls-client-ca", certificate[0]) as server:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            status_by_tls(server, trusting)
        trusting.load_cert_chain(*certificate)
        assert status_by_tls(server, trusting) == 200
    assert "Traceback" not in (tmp_path / "log").read_text()
