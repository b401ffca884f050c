"""Flips of codes: how often another batch, thread count or runtime gives an image another code."""

from __future__ import annotations

from attncem.base.record import Record


class FlipRow(Record):
    """The codes of ``queries`` images under one condition, compared with those of one image at a time on one thread.

    ``values`` are compared in total; ``flips`` of them have another code, in ``images_changed`` images.
    ``largest_change`` is that of z. ``nearest`` is the smallest distance of z to a threshold between two codes.
    """

    runtime: str
    batch: int
    threads: int
    queries: int
    values: int
    flips: int
    images_changed: int
    largest_change: float
    nearest: float
