"""What the fuzzers share: how much is tried and from which seed, bounds on time and memory, and the count of outcomes.

A larger pass than that of the tests:
ATTNCEM_FUZZ_COUNT=24000 ATTNCEM_FUZZ_SEED=7 pytest -s -o timeout=0 tests/test_fuzz.py -k many
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from attncem.base.types import AttncemError

SECONDS = 3.0
"""Processor time that one input may take; most take some milliseconds."""
MEMORY = 6 * 2**30
"""Bytes of addresses that one input may take, beside those taken before."""


def amount(usual: int) -> int:
    """How many inputs are tried."""
    return int(os.environ.get("ATTNCEM_FUZZ_COUNT", usual))


def start(usual: int) -> int:
    """The seed of all inputs."""
    return int(os.environ.get("ATTNCEM_FUZZ_SEED", usual))


class Slow(BaseException):
    """An input that takes too long; no reader may catch it."""


class Tally:
    """Counts how inputs ended: read, refused with a clear error, or a failure, which is kept with its traceback."""

    def __init__(self, what: str, seconds: float = SECONDS) -> None:
        self.what, self.seconds = what, seconds
        self.ended: Counter[str] = Counter()
        self.failures: list[str] = []

    def survives(self, attempt: Callable[[], object], given: object, errors: type[Exception] = AttncemError) -> None:
        """Try one input: it is read, or refused by an error of this kind."""
        started = time.process_time()
        try:
            with _limited(self.seconds):
                attempt()
            self.ended["read"] += 1
        except errors as error:
            self.ended["refused"] += 1
            self.expect(bool(str(error)) and "Traceback" not in str(error), f"unclear: {error!s:.500}", given)
        except (Exception, Slow):
            self.fail(traceback.format_exc(), given)
        taken = time.process_time() - started
        self.expect(taken < self.seconds, f"slow: {taken:.1f} s", given)

    def expect(self, fits: bool, said: str, given: object) -> None:
        """Note a failure unless it fits."""
        if not fits:
            self.fail(said, given)

    def fail(self, said: str, given: object) -> None:
        """Note a failure."""
        self.ended["failed"] += 1
        self.failures.append(f"{given!r:.2000}\n{said}")
        sys.stdout.write(f"\n{self.failures[-1][-3000:]}\n")
        sys.stdout.flush()

    def check(self) -> None:
        """AssertionError with one failure of each kind, if there are any; how the inputs ended is printed."""
        sys.stdout.write(f"\n{self.what}: {dict(self.ended)}\n")
        kinds = {_kind(failure): failure for failure in reversed(self.failures)}
        assert not kinds, "\n\n".join([f"{len(self.failures)} failures of {len(kinds)} kinds", *kinds.values()])


def fuzz_in_places(
    tally: Tally, one: Callable[[int, random.Random, Path], None], count: int, seed: int, root: Path
) -> None:
    """Try `one` so often, each time with random numbers and a folder of its own, which is removed; then check."""
    for number in range(count):
        place = root / str(number)
        one(number, random.Random(f"{seed} {number}"), place)
        shutil.rmtree(place)
    tally.check()


def _kind(failure: str) -> str:
    """The place that a traceback ends at, or else what is said."""
    places = [line for line in failure.splitlines() if line.startswith("  File ")]
    return places[-1] if places else failure.rpartition("\n")[2]


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """End what takes far too long or waits for ever, and put pytest's own limit back afterwards."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Slow

    left = signal.setitimer(signal.ITIMER_REAL, 0)
    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, 10 * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *left)


@contextmanager
def limited_memory(more: int = MEMORY) -> Iterator[None]:
    """No more addresses than these beside those that are taken: a MemoryError, not a machine that stands still."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def contents(folders: Sequence[Path]) -> dict[Path, object]:
    """All that lies in the folders, to be compared: bytes of files, targets of links."""
    found: dict[Path, object] = {}
    for path in (path for folder in folders for path in sorted(folder.rglob("*"))):
        if path.is_symlink():
            found[path] = path.readlink()
        else:
            found[path] = path.read_bytes() if path.is_file() else path.is_dir()
    return found
