"""Limits of the server: time, queue, memory, tokens, budgets; and how it starts, stops and speaks TLS."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import stat
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncem.base.types import AttncemError
from attncem.cli.main import main
from attncem.deploy.serving.address import is_loopback, most_connections
from attncem.deploy.serving.app import Service, build_app
from attncem.deploy.serving.batching import Batcher
from attncem.deploy.serving.deadline import Deadline
from attncem.deploy.serving.limits import Limits
from attncem.deploy.serving.model import ServedModel
from attncem.deploy.serving.refusal import Refusal
from attncem.deploy.serving.tokens import Counts, Token, holder, read_tokens
from bundles import make_bundle
from serving import INFER, numbers, request, serving

Z = numbers()
PHONE, TABLET = "p" * 32, "t" * 32


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("bundles") / "demo")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def tokens_in(folder: Path, text: str) -> str:
    file = folder / "tokens.txt"
    file.write_text(text)
    file.chmod(0o600)
    return str(file)


# batches, queue and time


class Slow:
    """A computation that waits until it may go on, and notes the rows of every batch."""

    def __init__(self) -> None:
        self.go, self.rows = threading.Event(), list[int]()

    def __call__(self, z: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        self.rows.append(len(z))
        assert self.go.wait(10)
        return z.reshape(len(z), -1)[:, :1] * 2


def test_what_waits_is_computed_together_and_in_order() -> None:
    slow = Slow()

    async def all_of_them() -> list[Any]:
        batcher = Batcher(slow, rows=4, queue=100)
        asked = [asyncio.create_task(batcher.answer(numbers(rows, seed))) for seed, rows in enumerate((1, 1, 2, 3, 9))]
        await asyncio.sleep(0.05)
        slow.go.set()
        answers = await asyncio.gather(*asked)
        batcher.close()
        return answers

    answers = asyncio.run(all_of_them())
    assert slow.rows == [4, 3, 9]
    for seed, answer in enumerate(answers):
        np.testing.assert_array_equal(answer, numbers(len(answer), seed).reshape(len(answer), -1)[:, :1] * 2)


def test_who_gave_up_is_not_computed_and_a_failure_reaches_its_batch_only() -> None:
    slow = Slow()

    async def attempts() -> list[Any]:
        batcher = Batcher(slow, rows=1, queue=100)
        first, second, third = (asyncio.create_task(batcher.answer(numbers(rows))) for rows in (1, 2, 3))
        await asyncio.sleep(0.05)
        second.cancel()
        slow.go.set()
        results = await asyncio.gather(first, second, third, return_exceptions=True)
        batcher._run = lambda z: 1 / 0  # type: ignore[assignment,return-value]
        results += await asyncio.gather(batcher.answer(Z), return_exceptions=True)
        batcher._run = slow
        results.append(await batcher.answer(Z))
        batcher.close()
        return results

    results = asyncio.run(attempts())
    assert slow.rows == [1, 3, 1]
    assert isinstance(results[1], asyncio.CancelledError) and isinstance(results[3], ZeroDivisionError)
    assert [len(results[place]) for place in (0, 2, 4)] == [1, 3, 1]


def test_short_batches_are_computed_in_the_loop_and_long_ones_in_the_thread() -> None:
    in_loop: list[bool] = []

    def run(z: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        in_loop.append(threading.current_thread() is threading.main_thread())
        time.sleep(0.001)
        return z

    async def ask() -> None:
        batcher = Batcher(run, rows=1000, queue=100)
        await batcher.answer(Z)
        await batcher.answer(Z)
        for rows in (1, 900):
            batcher._row_seconds = 1e-6
            np.testing.assert_array_equal(await batcher.answer(numbers(rows)), numbers(rows))
        batcher.close()

    asyncio.run(ask())
    assert in_loop == [False, False, True, False]


def test_a_deadline_ends_what_takes_too_long_and_nothing_else() -> None:
    async def wait(limit: float, seconds: float) -> str:
        try:
            with Deadline(limit):
                await asyncio.sleep(seconds)
        except TimeoutError:
            return "late"
        await asyncio.sleep(0.02)  # a timer that is left would end this
        return "in time"

    async def ask() -> tuple[str, str]:
        cancelled = asyncio.create_task(wait(0.01, 10))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        return await wait(0.01, 10), await wait(0.01, 0)

    assert asyncio.run(ask()) == ("late", "in time")


async def ask_app(app: Any, body: Any, path: str = INFER) -> tuple[int, dict[str, str], Any]:
    """One request to the app itself."""
    text = json.dumps(body).encode()
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    headers = [(b"content-length", str(len(text)).encode())]
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": text, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app({**scope, "headers": headers, "http_version": "1.1", "root_path": ""}, receive, send)
    head = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], head, json.loads(sent[1]["body"])


@pytest.mark.parametrize(
    ("limits", "statuses", "reason"),
    [
        ({"queue": 1}, [200, 200, 503], "1 requests wait already"),
        ({"seconds": 0.05}, [503, 503, 503], "not computed within 0.05 s"),
        ({"held": 100}, [503, 503, 503], "too many requests are being received"),
    ],
)
def test_a_server_with_too_much_to_do_says_when_to_come_again(
    bundle: Path, limits: dict[str, Any], statuses: list[int], reason: str
) -> None:
    service, slow = Service({"demo": ServedModel(bundle)}, Limits(batch=1, **limits)), Slow()
    service.batchers["demo"]._run = slow

    async def three() -> list[Any]:
        app, asked = build_app(service), []
        for _ in range(3):
            asked.append(asyncio.create_task(ask_app(app, request(Z))))
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        slow.go.set()
        return await asyncio.gather(*asked)

    answers = asyncio.run(three())
    service.close()
    assert [status for status, _, _ in answers] == statuses
    refused = [(head, answer) for status, head, answer in answers if status == 503]
    assert all(head["retry-after"] == "1" and reason in answer["error"] for head, answer in refused)
    assert service.store.held == 0


def test_an_error_of_ours_gives_500_without_detail(bundle: Path, caplog: pytest.LogCaptureFixture) -> None:
    service = Service({"demo": ServedModel(bundle)})
    service.batchers["demo"]._run = lambda z: [][int(z.size)]
    status, _, answer = asyncio.run(ask_app(build_app(service), request(Z)))
    service.close()
    assert (status, answer) == (500, {"error": "the server failed on this request"})
    assert caplog.messages == ["infer failed: IndexError"] and caplog.records[0].exc_info is None


def test_numbers_that_are_not_finite_do_not_leave_the_server(bundle: Path) -> None:
    service = Service({"demo": ServedModel(bundle)})
    service.batchers["demo"]._run = lambda z: np.full((len(z), 5), np.nan, np.float32)
    status, _, answer = asyncio.run(ask_app(build_app(service), request(Z)))
    service.close()
    assert (status, answer["error"]) == (500, "the model computed numbers that are not finite")


def test_the_limit_of_open_files_is_raised_as_far_as_it_goes() -> None:
    import resource

    kept = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, kept[1]))
        assert most_connections(100) == 100 and resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 300
        assert most_connections(500) == 500 and resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 628
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, kept)


# tokens and budgets


def test_only_known_tokens_are_answered(bundle: Path, tmp_path: Path) -> None:
    file = tokens_in(tmp_path, f"# clients\nphone {PHONE}\n\ntablet {TABLET}  # the second\n")
    with serving(tmp_path / "log", [bundle], "--tokens", file, "--host", "0.0.0.0", "--log-requests") as server:
        for path in ("/v2", "/v2/models/demo", "/v2/models/demo/ready", "/metrics"):
            assert server.ask(path)[0] == 401 and server.ask(path, headers=bearer(PHONE))[0] == 200
        for headers in ({}, bearer("x" * 32), bearer(""), {"Authorization": f"Basic {PHONE}"}, bearer("ü" * 16)):
            status, answer = server.ask(INFER, request(Z), {k: v.encode() for k, v in headers.items()})  # type: ignore[misc]
            assert status == 401 and "a token is needed" in answer["error"]
        for token in (PHONE, TABLET):
            assert server.ask(INFER, request(Z), bearer(token))[0] == 200
        assert server.ask("/v2/health/live")[0] == server.ask("/v2/health/ready")[0] == 200
        metrics = server.ask("/metrics", headers=bearer(PHONE))[1]
        assert 'attncem_releases_total{client="phone"} 1' in metrics
    log = (tmp_path / "log").read_text()
    assert "can be read on the network" in log and PHONE not in log + metrics


def test_budgets_are_counted_for_each_token_and_survive_a_stop(bundle: Path, tmp_path: Path) -> None:
    file = tokens_in(tmp_path, f"phone {PHONE}\ntablet {TABLET} 100\n")
    options = ["--tokens", file, "--budget", "5", "--counts", str(tmp_path / "counts")]
    with serving(tmp_path / "log", [bundle], *options) as server:
        statuses = [server.ask(INFER, request(numbers(2)), bearer(PHONE))[0] for _ in range(3)]
        assert statuses == [200, 200, 429]
        assert server.ask(INFER, {}, bearer(PHONE))[0] == 400, "a refused request costs nothing"
        assert server.ask(INFER, request(numbers(9)), bearer(TABLET))[0] == 200
        assert server.end() == 0
    with serving(tmp_path / "log", [bundle], *options) as server:
        status, answer = server.ask(INFER, request(numbers(2)), bearer(PHONE))
        assert (status, answer["error"]) == (429, "the budget of phone, 5 releases, has 1 left")
        assert server.ask(INFER, request(numbers(1)), bearer(PHONE))[0] == 200
        used = server.ask("/metrics", headers=bearer(PHONE))[1]
        assert 'attncem_budget_used_releases{client="phone"} 5' in used
        assert 'attncem_budget_used_releases{client="tablet"} 9' in used


def test_a_killed_server_never_counts_too_few(bundle: Path, tmp_path: Path) -> None:
    file = tokens_in(tmp_path, f"phone {PHONE} 200\n")
    options = ["--tokens", file, "--counts", str(tmp_path / "counts")]
    answered = 0
    for _ in range(2):
        with serving(tmp_path / "log", [bundle], *options) as server:
            answered += sum(server.ask(INFER, request(Z), bearer(PHONE))[0] == 200 for _ in range(70))
            server.end(signal.SIGKILL)
    with sqlite3.connect(tmp_path / "counts") as base:
        used = base.execute("SELECT used FROM releases").fetchone()[0]
    base.close()
    assert answered == 140 and 140 <= used <= 200


def test_two_servers_share_a_file_of_counts(tmp_path: Path) -> None:
    token = Token("phone", b"", 100)
    both = [Counts(tmp_path / "counts") for _ in range(2)]
    both[0].take(token, 1)
    both[1].take(token, 36)
    with pytest.raises(Refusal, match="has 0 left"):
        both[1].take(token, 1)
    both[0].take(token, 63)
    both[0].take(Token("free", b"", None), 10**6)
    with pytest.raises(Refusal) as spent:
        both[0].take(token, 1)
    assert spent.value.status == 429
    for counts in both:
        counts.close()


def test_counts_that_cannot_be_written_stop_answers(tmp_path: Path) -> None:
    counts = Counts(tmp_path / "counts")
    counts._base.execute("DROP TABLE releases")
    with pytest.raises(Refusal, match="cannot be written") as refusal:
        counts.take(Token("phone", b"", 5), 1)
    assert refusal.value.status == 503
    counts.close()
    (tmp_path / "other").write_text("no base")
    with pytest.raises(AttncemError, match="no file of counts"):
        Counts(tmp_path / "other")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "holds no token"),
        ("phone\n", "line 1: a line is NAME TOKEN"),
        (f"phone {PHONE} 5 6\n", "a line is NAME TOKEN"),
        ("phone short\n", "at least 16"),
        (f"phone {PHONE} many\n", "whole number of releases"),
        (f"phone {PHONE} 0\n", "whole number of releases"),
        (f"phone {PHONE}\nphone {TABLET}\n", "stands in two lines"),
        (f"phone {PHONE}\ntablet {PHONE}\n", "stands in two lines"),
    ],
)
def test_wrong_files_of_tokens(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(AttncemError, match=reason) as error:
        read_tokens(tokens_in(tmp_path, text), None, {})
    assert PHONE not in str(error.value)


def test_the_token_of_the_environment() -> None:
    assert read_tokens(None, 5, {}) == []
    (token,) = read_tokens(None, 5, {"ATTNCEM_TOKEN": PHONE})
    assert token.budget == 5 and holder([token], f"bearer {PHONE}") is token
    assert PHONE not in repr(token)
    with pytest.raises(AttncemError, match="ATTNCEM_TOKEN: a token has at least 16"):
        read_tokens(None, None, {"ATTNCEM_TOKEN": "short"})


def test_a_budget_needs_counts(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tokens_in(tmp_path, f"phone {PHONE} 5\n")
    assert main(["serve", str(bundle), "--tokens", file]) == 2
    assert "--counts FILE need each other" in capsys.readouterr().err


def test_a_file_of_tokens_that_others_can_read_is_named(bundle: Path, tmp_path: Path) -> None:
    file = Path(tokens_in(tmp_path, f"phone {PHONE}\n"))
    file.chmod(stat.S_IRUSR | stat.S_IRGRP)
    with serving(tmp_path / "log", [bundle], "--tokens", str(file)):
        assert "make it private: chmod 600" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("address", "loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("0.0.0.0", False), ("::", False), ("10.0.0.1", False)],
)
def test_loopback_addresses(address: str, loopback: bool) -> None:
    assert is_loopback(address) == loopback
