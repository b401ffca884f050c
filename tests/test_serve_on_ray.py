"""The server on Ray Serve, with a local Ray."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import numpy as np
import psutil
import pytest

from attncem.cli.main import main
from bundles import make_bundle, weights
from serving import HEADER, INFER, binary, numbers, request, serving

TOKEN = "t" * 32
ASKING = {"Authorization": f"Bearer {TOKEN}"}


@pytest.mark.slow
def test_the_same_app_answers_on_ray(tmp_path: Path) -> None:
    bundle, z = make_bundle(tmp_path / "demo"), numbers(3)
    options = ["--engine", "ray", "--replicas", "2"]
    with serving(tmp_path / "log", [bundle], *options, ATTNCEM_TOKEN=TOKEN) as server:
        metadata = server.ask("/v2/models/demo", headers=ASKING)[1]
        assert metadata["parameters"]["fingerprint"] == "ab" * 32
        expected = (z.reshape(3, -1) @ weights()).ravel()
        for _ in range(20):
            status, answer = server.ask(INFER, request(z), ASKING)
            assert status == 200
            np.testing.assert_allclose(answer["outputs"][0]["data"], expected, atol=1e-5)
        body, headers = binary(z, parameters={"binary_data_output": True})
        connection = server.connect()
        connection.request("POST", INFER, body, {**headers, **ASKING})
        response = connection.getresponse()
        raw = response.read()[int(response.headers[HEADER]) :]
        connection.close()
        np.testing.assert_allclose(np.frombuffer(raw, "<f4"), expected, atol=1e-5)
        assert server.ask(INFER, request(z))[0] == 401
        assert server.ask(INFER, request(100 * z), ASKING)[0] == 400
        assert server.ask(INFER, b"x" * 200_000, ASKING)[0] == 413
        assert open_to_others(server.process.pid) == []
        assert server.end(seconds=60) == 0
    assert "Traceback" not in (tmp_path / "log").read_text()


def open_to_others(process: int) -> list[str]:
    """The addresses of a process and its children that other machines reach."""
    places = []
    for each in (psutil.Process(process), *psutil.Process(process).children(recursive=True)):
        listening = [it.laddr for it in each.net_connections("inet") if it.status == psutil.CONN_LISTEN]
        places += [f"{each.name()} {it}" for it in listening if not is_loopback(it.ip)]
    return places


def is_loopback(address: str) -> bool:
    place = ipaddress.ip_address(address)
    inner = getattr(place, "ipv4_mapped", None)
    return (inner or place).is_loopback


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--engine", "slurm"], "engine=slurm: local or ray"),
        (["--replicas", "2"], "--replicas is for --engine ray"),
        (["--address", "auto"], "--address is for --engine ray"),
        (["--engine", "ray", "--replicas", "0"], "replicas=0: from 1"),
        (["--engine", "ray", "--host", "0.0.0.0"], "needs tokens"),
        (["--engine", "ray", "--counts", "counts", "--budget", "5"], "is for --engine local, not for ray"),
        (["--engine", "ray", "--connections", "5"], "--connections is for --engine local"),
        (["--engine", "ray", "--log-requests"], "--log-requests is for --engine local"),
        (["--engine", "ray", "--tokens", "TOKENS"], "--engine ray has no budgets"),
    ],
)
def test_options_that_ray_does_not_take(
    tmp_path: Path, options: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tokens").write_text(f"phone {TOKEN} 5\n")
    words = [str(tmp_path / "tokens") if word == "TOKENS" else word for word in options]
    assert main(["serve", str(make_bundle(tmp_path / "demo")), *words]) == 2
    assert reason in capsys.readouterr().err


def test_the_tests_know_open_addresses() -> None:
    judged = {place: is_loopback(place) for place in ("127.0.0.1", "::1", "::ffff:127.0.0.1", "::", "0.0.0.0")}
    assert judged == {"127.0.0.1": True, "::1": True, "::ffff:127.0.0.1": True, "::": False, "0.0.0.0": False}
