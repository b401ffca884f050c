"""What predict() says about images: labels, and what left the client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from attncem.results.findings import Finding
from attncem.results.record import Record


@dataclass(frozen=True)
class Release(Record):
    """What left the client for one image; ``noise`` is fresh, keyed or none. The image's own bytes stand beside it."""

    shape: list[int]
    dtype: str
    bytes: int
    minimum: float
    maximum: float
    noise: str
    noise_std: float
    image_bytes: int
    file_bytes: int | None


@dataclass(frozen=True)
class Candidate(Record):
    """One label with the server's probability for it."""

    label: int
    name: str
    probability: float


@dataclass(frozen=True)
class Prediction(Record):
    """One image: the likeliest labels, best first, what was done to the file, what left the client."""

    source: str
    top: list[Candidate]
    true_label: int | None
    true_name: str | None
    preparation: list[str]
    release: Release
    saved: str | None = None


@dataclass(frozen=True)
class PredictionResult(Record):
    """Predictions of one run for a few images."""

    run: str
    weights: str
    dataset: str
    channel: list[dict[str, Any]]
    predictions: list[Prediction]
    findings: list[Finding]
