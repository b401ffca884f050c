"""What the requests of a server may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What one request, and all of them together, may take."""

    rows: int = 32
    """Rows of one request."""
    batch: int = 32
    """Rows that are computed together; 1: every request alone."""
    queue: int = 256
    """Requests that wait for each model."""
    seconds: float = 30.0
    """Time to receive a request, and time to compute it."""
    held: int = 256 << 20
    """Bytes of all bodies in memory."""
