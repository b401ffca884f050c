"""Requests: what is sent, that retries are the same bytes, and every answer that cannot be read."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edge_answering import (
    LOGITS,
    Reply,
    answer_in_json,
    answering,
    drip,
    drop,
    half,
    late,
    of_body,
    of_status,
    once,
    outputs,
)

from attncem_edge.errors import ConfigError, ServerError
from attncem_edge.wire import Server, make_request

PRINT = "cd" * 32
Z = np.linspace(-1, 1, 12, dtype=np.float32)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attncem_edge.wire._FIRST_PAUSE", 0.001)


def ask(url: str, **options: Any) -> Any:
    server = Server(url, **{"timeout": 2.0, **options})
    try:
        return server.ask("small", make_request(Z, PRINT), 3)
    finally:
        server.close()


def test_a_request_is_the_protocols_and_names_the_model() -> None:
    with answering() as server:
        assert np.array_equal(ask(server.url, token="secret"), LOGITS)
    size = int(server.headers[0]["Inference-Header-Content-Length"])
    head = json.loads(server.bodies[0][:size])
    assert head["inputs"] == [
        {"name": "z", "shape": [1, 12], "datatype": "FP32", "parameters": {"binary_data_size": 48}}
    ]
    assert head["parameters"] == {"fingerprint": PRINT}
    assert np.array_equal(server.z(), Z)
    assert server.headers[0]["Authorization"] == "Bearer secret"


def test_an_answer_in_json_is_read_too() -> None:
    with answering(answer_in_json) as server:
        assert np.array_equal(ask(server.url), LOGITS)


def test_a_request_names_nobody() -> None:
    """Two requests of the same z differ in their identifier alone, which is random."""
    one, other = make_request(Z, PRINT), make_request(Z, PRINT)
    assert one.mark != other.mark and one.body.replace(one.mark.encode(), other.mark.encode()) == other.body


WAIT = of_status(429, **{"Retry_After": "0"})


@pytest.mark.parametrize("reply", [drop, half, WAIT, *(of_status(status) for status in (502, 503, 504))])
def test_a_retry_sends_the_same_bytes(reply: Reply) -> None:
    with answering(reply, reply) as server:
        assert np.array_equal(ask(server.url), LOGITS)
        assert len(server.bodies) == 3 and len(set(server.bodies)) == 1


def test_a_late_answer_is_asked_for_again() -> None:
    with answering(late(0.6)) as server:
        assert np.array_equal(ask(server.url, timeout=0.2), LOGITS)
        assert len(server.bodies) == 2 and len(set(server.bodies)) == 1


def test_a_server_that_drips_does_not_hold_the_client() -> None:
    with answering(drip) as server:
        started = time.monotonic()
        assert np.array_equal(ask(server.url, timeout=0.3), LOGITS)
        assert time.monotonic() - started < 2 and len(server.bodies) == 2
    with answering(drip) as server, pytest.raises(ServerError, match="after 1 attempts: no answer in time"):
        ask(server.url, timeout=0.3, retries=0)


def test_a_connection_that_was_closed_meanwhile_is_no_failed_attempt() -> None:
    with answering(once, once) as server:
        kept = Server(server.url, retries=0)
        for _ in range(3):
            assert np.array_equal(kept.ask("small", make_request(Z, PRINT), 3), LOGITS)
            time.sleep(0.05)
        kept.close()


def test_the_attempts_have_an_end() -> None:
    with answering(*[of_status(503, "no room\x1b[31m")] * 9) as server:
        with pytest.raises(ServerError, match=r"after 3 attempts: status 503: no room \[31m"):
            ask(server.url, retries=2)
        assert len(server.bodies) == 3


def test_a_server_may_ask_for_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("attncem_edge.wire.time.sleep", pauses.append)
    with answering(of_status(429, **{"Retry_After": "7"}), of_status(429, **{"Retry_After": "99999"})) as server:
        ask(server.url)
    assert 7 <= pauses[0] <= 10.5 and 30 <= pauses[1] <= 45


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 429, 500, 301])
def test_a_refusal_is_final(status: int) -> None:
    with answering(of_status(status, "another fingerprint", Location="http://127.0.0.1:1/")) as server:
        with pytest.raises(ServerError, match=rf"refused: status {status}: another fingerprint"):
            ask(server.url)
        assert len(server.bodies) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[" * 100_000,
        [],
        {},
        {"outputs": []},
        {"outputs": [outputs()]},
        {"outputs": [outputs(data=[1, 2])]},
        {"outputs": [outputs(data=[1, 2, "x"])]},
        {"outputs": [outputs(data=[1, 2, float("nan")])]},
        {"outputs": [outputs(data=[1, 2, 3], datatype="INT64")]},
        {"outputs": [{**outputs(data=[1, 2, 3]), "shape": [1, 4]}]},
        {"outputs": [outputs(data=[1, 2, 3])] * 2},
        {"outputs": [outputs(data=[1, 2, 3])], "id": "another"},
        {"outputs": [outputs(parameters={"binary_data_size": "many"})]},
        {"outputs": [outputs(parameters=7)]},
    ],
)
def test_an_answer_that_cannot_be_read_is_refused(body: Any) -> None:
    with answering(of_body(body)) as server, pytest.raises(ServerError, match="cannot be read"):
        ask(server.url)


def test_an_endless_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attncem_edge.wire.LARGEST_ANSWER", 100)
    with answering(*[of_body(b" " * 200)] * 3) as server, pytest.raises(ServerError, match="more than 100 bytes"):
        ask(server.url, retries=1)


def test_nobody_there() -> None:
    with answering() as server:
        url = server.url
    with pytest.raises(ServerError, match="refused"):
        ask(url, retries=1)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("127.0.0.1:8000", "must look like"),
        ("ftp://127.0.0.1", "must look like"),
        ("http://", "must look like"),
        ("http://127.0.0.1:1/ä", "must look like"),
        ("http://127.0.0.1:1/a b", "must look like"),
        ("https://bücher.example", "must look like"),
        ("https://a\nb", "must look like"),
        ("https://example.org/?a=1", "must look like"),
        ("http://[::1", "url="),
        ("http://127.0.0.1:99999", "url="),
        ("https://me:secret@example.org", "must hold no password"),
        ("http://example.org", "use https"),
        ("http://10.0.0.1:8000", "use https"),
    ],
)
def test_an_address_that_is_none_or_unprotected_is_refused(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        Server(url)
    assert "secret" not in str(caught.value)


def test_addresses_that_are_taken() -> None:
    for url in ("http://127.0.0.1:1", "http://localhost", "http://[::1]:8000", "https://example.org/models"):
        Server(url)
    Server("http://10.0.0.1", plain_http=True)


@pytest.mark.parametrize("token", ["", " a", "a\nb", "ä"])
def test_a_token_that_would_break_the_request_is_refused(token: str) -> None:
    with pytest.raises(ConfigError, match="one line of printable"):
        Server("https://example.org", token=token)


@pytest.mark.parametrize("options", [{"timeout": 0}, {"timeout": float("inf")}, {"retries": -1}])
def test_limits_that_are_none_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be above 0"):
        Server("https://example.org", **options)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of 127.0.0.1 that signs itself; its key lies beside it."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate of this test")
    file = tmp_path_factory.mktemp("tls") / "certificate.pem"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=here"
    more = ["-addext", "subjectAltName=IP:127.0.0.1", "-out", file, "-keyout", file.with_suffix(".key")]
    subprocess.run([*words.split(), *more], check=True, capture_output=True)
    return file


def test_a_server_must_show_a_certificate_that_is_trusted_and_its_own(certificate: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, certificate.with_suffix(".key"))
    with answering(tls=tls) as server:
        url = server.url.replace("http:", "https:")
        assert np.array_equal(ask(url, ca=certificate, token="secret"), LOGITS)
        for address, authority in ((url, None), (url.replace("127.0.0.1", "localhost"), certificate)):
            with pytest.raises(ServerError, match=r"is not the server: .*certificate verify failed"):
                ask(address, ca=authority)
        assert len(server.bodies) == 1, "nothing was sent to the others"


def test_tls_checks_certificate_and_name(tmp_path: Path) -> None:
    context = Server("https://example.org")._context
    assert context is not None and context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(ConfigError, match="cannot be read as certificates"):
        Server("https://example.org", ca=tmp_path / "ca.pem")
