"""Processes that take work: Ctrl-C is for their parent alone, and what failed leaves nothing behind for others."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import attncem.base.working
from attncem.base.progress import Progress, silent
from attncem.base.working import WorkerEnded, Workers

pytestmark = pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals are blocked by threads")


def interrupted() -> tuple[int, bool]:
    """The process's number, and whether Ctrl-C is kept from it; it gets one, and goes on."""
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.2)  # so that every process gets a task
    return os.getpid(), signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def used(spoil: bool) -> int:
    """The process's number; a spoilt one, as a GPU's error leaves it, can do nothing any more."""
    if getattr(time, "spoilt", False) or spoil:
        time.spoilt = True  # type: ignore[attr-defined]
        raise RuntimeError("an illegal memory access was encountered")
    return os.getpid()


def stuck(progress: Progress) -> None:
    """Inside C for years, with Python's lock: no thread of the process can end it."""
    progress("stuck", 0, 1, {})
    re.match(r"(a+)+$", "a" * 60 + "b")


def test_a_process_that_cannot_end_itself_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attncem.base.working, "_END_SECONDS", 0.5)
    begun = threading.Event()

    def report(*_: Any) -> None:
        begun.set()

    pool = Workers(1, report, "a test")
    work = pool.submit(stuck, tells=True)
    assert begun.wait(60)
    time.sleep(0.5)  # until it is inside
    pool.end()
    with pytest.raises(WorkerEnded, match="SIGKILL"):
        work.result()


def shared_lock() -> None:
    """Keep a lock between processes, as progress bars of other libraries do."""
    time.kept = multiprocessing.RLock()  # type: ignore[attr-defined]


_SCRIPT = """
from attncem.base.progress import silent
from attncem.base.working import Workers
from tests.test_working import shared_lock
if __name__ == "__main__":
    with Workers(2, silent, "a test") as pool:
        pool.submit(shared_lock).result()
"""


@pytest.mark.slow
def test_idle_processes_remove_what_they_share(tmp_path: Path) -> None:
    """Python's resource tracker names at the end what was left behind."""
    file = tmp_path / "shares.py"
    file.write_text(_SCRIPT)
    root = str(Path(__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, str(file)], env={**os.environ, "PYTHONPATH": root}, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


def test_a_failure_is_the_last_that_a_process_does() -> None:
    with Workers(1, silent, "a test") as pool:
        first, again = (pool.submit(used, False).result() for _ in range(2))
        with pytest.raises(RuntimeError, match="illegal memory access"):
            pool.submit(used, True).result()
        assert first == again != pool.submit(used, False).result()


def test_no_worker_gets_ctrl_c_the_first_neither() -> None:
    """Starting the first one also starts Python's resource tracker, which unblocks signals in the thread that does."""
    with Workers(2, silent, "a test") as pool:
        found = [future.result() for future in [pool.submit(interrupted) for _ in range(8)]]
    assert len({process for process, _ in found}) == 2
    assert all(blocked for _, blocked in found)
