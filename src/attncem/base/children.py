"""What all share that start processes: none of them gets Ctrl-C, and how one has ended, in words. No torch."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Processes started here, by this thread, never get Ctrl-C: it is who started them that ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # its start would let interrupts through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def how_ended(process: BaseProcess, seconds: float) -> str:
    """A signal's name or an exit code; it is waited so long for it."""
    process.join(seconds)
    code = process.exitcode
    return signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
