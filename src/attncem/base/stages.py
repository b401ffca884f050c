"""What a program did when memory ran out: a note on the error, which the command shows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def at_stage(what: str) -> Iterator[None]:
    """Add a note to an error of Python, numpy or torch that may be a lack of memory."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        error.add_note(what)
        raise
