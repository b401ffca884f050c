"""Budgets: counted before anything is sent, shared by processes, and never too low after a kill at any moment."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from edge_answering import answering
from edge_bundles import make_bundle

from attncem_edge.budget import Budget, Counter, Spending, costs
from attncem_edge.errors import BudgetSpent, ConfigError

ONCE = costs("releases", {})


def spending(image: str = "a", source: str = "model", *, repeats: bool = False, cost: Any = ONCE) -> Spending:
    return Spending(image.encode(), source, cost, repeats)


def counter(folder: Path, **limits: Any) -> Counter:
    return Counter(Budget(**limits), folder / "releases.sqlite")


def test_limits_hold_for_each_image_and_for_all(tmp_path: Path) -> None:
    of_two = counter(tmp_path, per_image=2, total=3)
    of_two.count(spending("a"))
    of_two.count(spending("a", "another model"))
    with pytest.raises(BudgetSpent, match="this image is spent: 2 of 2 releases, and this release costs 1; nothing"):
        of_two.count(spending("a"))
    of_two.count(spending("b"))
    with pytest.raises(BudgetSpent, match="this device"):
        counter(tmp_path, per_image=2, total=3).count(spending("c"))
    assert of_two.spent() == 3
    counter(tmp_path, total=4).count(spending("c"))
    assert of_two.spent() == 4


def test_what_repeats_costs_once_for_each_source(tmp_path: Path) -> None:
    of_two = counter(tmp_path, per_image=2)
    for source in ("one", "one", "other", "one", "other"):
        of_two.count(spending(source=source, repeats=True))
    assert of_two.spent() == 2
    with pytest.raises(BudgetSpent):
        of_two.count(spending(source="third", repeats=True))


def test_nats_follow_the_smallest_sum_of_audited_limits(tmp_path: Path) -> None:
    cost = costs("nats", {"1": 0.5, "4": 1.0, "16": 1.5})
    assert [cost(count) for count in (1, 2, 3, 4, 5, 8, 9, 16, 17, 40)] == [0.5, 1, 1, 1, 1.5, 1.5, 1.5, 1.5, 2, 4.5]
    in_nats = counter(tmp_path, per_image=1.0, unit="nats")
    for _ in range(4):
        in_nats.count(spending(cost=cost))
    with pytest.raises(BudgetSpent, match=r"1 of 1 nats, and this release costs 0\.5"):
        in_nats.count(spending(cost=cost))
    assert in_nats.spent() == 1.0


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"per_image": 0},
        {"total": -1},
        {"total": float("nan")},
        {"per_image": float("inf")},
        {"total": 1, "unit": "x"},
    ],
)
def test_limits_that_are_none_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Budget(**limits)


def test_a_file_counts_one_unit(tmp_path: Path) -> None:
    counter(tmp_path, total=1)
    with pytest.raises(ConfigError, match="counts releases, not nats: count in that unit"):
        counter(tmp_path, total=1, unit="nats")


def test_the_file_holds_no_picture_and_is_private(tmp_path: Path) -> None:
    counter(tmp_path, total=5).count(spending("a picture that nobody may see"))
    file = tmp_path / "releases.sqlite"
    assert b"nobody may see" not in file.read_bytes() and file.stat().st_mode & 0o777 == 0o600
    other = tmp_path / "other"
    counter(other, total=5).count(spending("a picture that nobody may see"))
    marks = []
    for folder in (tmp_path, other):
        with closing(sqlite3.connect(folder / "releases.sqlite")) as base:
            marks.append(base.execute("SELECT image FROM releases").fetchone())
    assert marks[0] != marks[1], "the marks of two devices cannot be compared"
    file.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        counter(tmp_path, total=5)


@pytest.mark.parametrize("damage", [b"no database at all, but long enough" * 100, "keys", "drop"])
def test_a_damaged_file_lets_nothing_leave(tmp_path: Path, damage: Any) -> None:
    working, file = counter(tmp_path, total=5), tmp_path / "releases.sqlite"
    if isinstance(damage, bytes):
        file.write_bytes(damage)
    else:
        damages = {"keys": "UPDATE facts SET value = 'x' WHERE name = 'key'", "drop": "DROP TABLE releases"}
        base = sqlite3.connect(file)
        base.execute(damages[damage])
        base.commit()
        base.close()
    with pytest.raises(ConfigError, match="nothing was sent"):
        (counter(tmp_path, total=5) if damage == "keys" else working).count(spending())


def test_a_file_that_is_gone_lets_nothing_leave(tmp_path: Path) -> None:
    working = counter(tmp_path, total=5)
    (tmp_path / "releases.sqlite").unlink()
    with pytest.raises(ConfigError, match="nothing was sent"):
        working.count(spending())


def test_a_full_disk_lets_nothing_leave(tmp_path: Path) -> None:
    working = counter(tmp_path, total=10_000)
    limited = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from attncem_edge.budget import Budget, Counter, Spending, costs\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "counter = Counter(Budget(total=10_000), Path(sys.argv[1]))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))\n"
        "for number in range(10_000):\n"
        "    counter.count(Spending(str(number).encode(), 'model', costs('releases', {}), False))\n"
        "    print(number, flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", limited, tmp_path / "releases.sqlite"], capture_output=True, text=True, check=False
    )
    assert "nothing was sent" in done.stderr
    assert working.spent() == len(done.stdout.split()) > 10


def test_threads_never_spend_more_than_there_is(tmp_path: Path) -> None:
    def one(number: int) -> bool:
        try:
            counter(tmp_path, total=20).count(spending(str(number)))
        except BudgetSpent:
            return False
        return True

    counter(tmp_path, total=20)
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(one, range(60))) == 20
    assert counter(tmp_path, total=20).spent() == 20


SENDER = """
import sys
import numpy as np
from attncem_edge import Budget, BudgetSpent, Client
folder, url, limit = sys.argv[1], sys.argv[2], int(sys.argv[3])
client = Client(f"{folder}/bundle", url=url, device=folder, budget=Budget(per_image=limit))
try:
    while True:
        client.predict(np.zeros((1, 8, 8), np.uint8))
except BudgetSpent:
    sys.exit(7)
"""
"""Sends one image again and again until the budget is spent."""
ENDLESS = 10**9


def start(folder: Path, url: str, limit: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", SENDER, folder, url, str(limit)], stderr=subprocess.DEVNULL)


def test_processes_never_send_more_than_the_budget(tmp_path: Path) -> None:
    make_bundle(tmp_path / "bundle")
    counted = counter(tmp_path, per_image=40)
    with answering() as server:
        processes = [start(tmp_path, server.url, 40) for _ in range(3)]
        assert [process.wait(60) for process in processes] == [7, 7, 7]
        assert len(server.bodies) == counted.spent() == 40


@pytest.mark.slow
def test_kills_at_random_moments_never_undercount(tmp_path: Path) -> None:
    """Fifty kills of one of two clients: the server never got more than is counted; a kill costs one at most."""
    make_bundle(tmp_path / "bundle")
    chance, kills, counted = random.Random(0), 0, counter(tmp_path, per_image=ENDLESS)
    with answering() as server:
        processes = [start(tmp_path, server.url, ENDLESS) for _ in range(2)]
        ended = time.monotonic() + 240
        while kills < 50 and time.monotonic() < ended:
            time.sleep(chance.uniform(0.2, 0.8))
            victim = processes.pop(chance.randrange(2))
            assert victim.poll() is None, "a client ended by itself"
            victim.send_signal(signal.SIGKILL)
            victim.wait(30)
            kills += 1
            received = len(server.bodies)
            assert received <= counted.spent()
            processes.append(start(tmp_path, server.url, ENDLESS))
        for process in processes:
            process.kill()
            process.wait(30)
        assert len(server.bodies) <= counted.spent() <= len(server.bodies) + kills + 2
        assert kills == 50 and len(server.bodies) > 100
