"""Processes to be killed: forks of one that has imported everything, so that a start takes milliseconds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

_LOOP = """
import json, os, sys, traceback
import lightning_fabric  # a training imports it where it begins
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        os.dup2(2, 1)  # what it prints is no answer
        try:
            work(*json.loads(line))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Forking:
    """A process of a program that imports what is needed and defines `work`; each fork of it works once."""

    def __init__(self, program: str) -> None:
        command = [sys.executable, "-c", program + _LOOP]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def begin(self, *arguments: Any) -> int:
        """Let a fork work on these arguments; its process id."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        return self._number()

    def kill(self, child: int) -> int:
        """Kill the fork, if it has not ended; its exit code."""
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end of the fork; its exit code."""
        return self._number()

    def _number(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


def is_alive(child: int) -> bool:
    """Whether a fork has not ended."""
    try:
        os.kill(child, 0)
    except ProcessLookupError:
        return False
    return True
