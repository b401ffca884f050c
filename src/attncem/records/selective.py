"""Selective: what a client with a head sends of the evaluation images, and what it answers itself."""

from __future__ import annotations

from dataclasses import field

from attncem.base.record import Record
from attncem.records.score import Score


class CurvePoint(Record):
    """Accuracy of client and server together if this share of the images is sent, the least sure ones first."""

    share: float
    accuracy: float


class Selective(Record):
    """Facts of an audit of a client that sends some images: the audit judges only those.

    ``num_sent`` of ``num_images`` evaluation images are sent. ``together`` is the accuracy of client and server on all
    images, ``alone`` that of the head on all of them, ``all_sent`` that of the server if all were sent,
    ``alone_on_sent`` that of the head on the sent ones. ``shares`` is the share of each class that is sent (None: no
    image), ``curve`` the accuracy over the share.
    """

    threshold: float
    num_images: int
    num_sent: int
    together: Score
    alone: Score
    all_sent: Score
    alone_on_sent: float | None = None
    shares: list[float | None] = field(default_factory=list)
    curve: list[CurvePoint] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Share of the images that is sent."""
        return self.num_sent / self.num_images
