"""Per-image scores of a row, and their .npz file."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attncem.records.audit import Row
from attncem.records.score import Score
from attncem.records.statistics import bootstrap_mean

NEAR = 1e-9
"""Largest relative difference between equal means that were added up in another order."""


@dataclass(frozen=True)
class ImageScores:
    """Scores of each image by measure, and the indices of the evaluation images."""

    index: NDArray[np.int64]
    values: Mapping[str, NDArray[np.float64]]


def packed_scores(scores: ImageScores) -> bytes:
    """The contents of a scores file."""
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {"index": scores.index, **scores.values}
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def read_scores(raw: bytes) -> ImageScores:
    """The scores in a file; a damaged archive can fail in any way."""
    with np.load(io.BytesIO(raw), allow_pickle=False) as data:
        return _image_scores({key: np.asarray(data[key]) for key in data.files})


def _image_scores(arrays: dict[str, NDArray[Any]]) -> ImageScores:
    """The arrays of a scores file; ValueError unless they hold one number for each image."""
    index = arrays.pop("index", np.empty(0))
    numbers = index.ndim == 1 and index.dtype.kind in "iu" and all(it.dtype.kind == "f" for it in arrays.values())
    if not numbers or any(it.shape != index.shape for it in arrays.values()):
        raise ValueError("it does not hold one number of each measure for each image")
    return ImageScores(index.astype(np.int64), arrays)


def agrees(raw: bytes, row: Row) -> bool:
    """Whether the file has the row's mean: of the MSE, or of the first measure.

    True where the file cannot be read or the row has no measure: that is reported where the scores are used.
    """
    name = "mse" if "mse" in row.scores else next(iter(row.scores), "")
    try:
        with np.load(io.BytesIO(raw), allow_pickle=False) as data:
            mean = float(data[name].mean())
    except Exception:  # a damaged archive can fail in any way
        return True
    return abs(mean - row.scores[name].mean) <= NEAR * max(1.0, abs(mean))


def summarise(values: NDArray[np.float64], labels: NDArray[np.int64], num_classes: int) -> Score:
    """Mean with its interval, both ends and the median, and the mean and lower end of each class."""
    interval = bootstrap_mean(values)
    low, middle, high = map(float, np.quantile(values, [0.05, 0.5, 0.95]))
    members = [values[labels == label] for label in range(num_classes)]
    per_class = [float(own.mean()) if own.size else None for own in members]
    exposed = [float(np.quantile(own, 0.05)) if own.size else None for own in members]
    return Score(interval.mean, interval.low, interval.high, low, high, per_class, middle, exposed)
