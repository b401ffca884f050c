"""Results of predict() for images: labels, and the data that left the client."""

from __future__ import annotations

from typing import Any

from attncem.base.record import Record
from attncem.records.findings import Finding


class Release(Record):
    """The data that left the client for one image, and the image's size; ``noise`` is fresh, keyed or none.

    ``bits`` are those of each value of a release that is sent packed (None: it is not), ``bytes`` then its packed size.
    ``repeats``: the same pixels give the same release.
    """

    shape: list[int]
    dtype: str
    bytes: int
    minimum: float
    maximum: float
    noise: str
    noise_std: float
    image_bytes: int
    file_bytes: int | None
    bits: int | None = None
    repeats: bool = False


class Candidate(Record):
    """One label with the server's probability for it."""

    label: int
    name: str
    probability: float


class Seen(Record):
    """The picture as the client's first layer sees it, after the front end: a PNG file in base64, grey where nothing is
    left. ``saved`` is its file, stored with the release; it stays on the device.
    """

    front_end: dict[str, Any]
    picture: str
    saved: str | None = None


class Decision(Record):
    """The decision of a client with a head: whether the image is sent, as its confidence is at most the threshold."""

    sent: bool
    confidence: float
    threshold: float


class Prediction(Record):
    """One image: the likeliest labels, best first, the changes to the file, and the data that left the client.

    ``decision`` is absent where every image is sent. Where the client answered itself, ``release`` is absent, or, in an
    explanation, what it would have been.
    ``seen`` is absent where the client has no front end: its first layer sees the image itself.
    """

    source: str
    top: list[Candidate]
    true_label: int | None
    true_name: str | None
    preparation: list[str]
    release: Release | None
    saved: str | None = None
    seen: Seen | None = None
    decision: Decision | None = None

    @property
    def is_sent(self) -> bool:
        """Whether a release left the client, or would have in an explanation."""
        return self.decision is None or self.decision.sent


class PredictionResult(Record):
    """Predictions of one run for a few images."""

    run: str
    weights: str
    dataset: str
    channel: list[dict[str, Any]]
    predictions: list[Prediction]
    findings: list[Finding]

    __repr__ = Record.brief
