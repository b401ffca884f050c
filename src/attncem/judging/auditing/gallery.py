"""Pictures of a row: one image of each of the first classes, and the best and worst reconstructions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from attncem.base.pictures import png
from attncem.config.options.suites import row_file
from attncem.judging.case import Case
from attncem.records.audit import NO_LABEL, Picture, Role

_CLASSES = 10
_EXTREMES = 5
"""Number of best and of worst reconstructions in the gallery."""


def choose_pictures(
    row: str, case: Case, images: Tensor, errors: NDArray[np.float64]
) -> tuple[list[Picture], dict[str, bytes]]:
    """The row's pictures, and their files by name."""
    labels = case.y.cpu().numpy() if case.subject.spec.num_classes else np.full(len(case.y), NO_LABEL)
    ranked = [int(index) for index in np.argsort(errors, kind="stable")]
    chosen: dict[Role, list[int]] = {
        "fixed": _fixed(labels[: len(errors)]),
        "best": ranked[:_EXTREMES],
        "worst": ranked[: -_EXTREMES - 1 : -1],
    }
    pictures: list[Picture] = []
    files: dict[str, bytes] = {}
    for role, index in ((role, index) for role, indices in chosen.items() for index in indices):
        place = int(case.places[index])
        original, image = f"original-{place}.png", f"{row_file(row)}-{place}.png"
        files[original], files[image] = png(case.x[index]), png(images[index])
        pictures.append(Picture(place, int(labels[index]), role, original, image, float(errors[index])))
    return pictures, files


def _fixed(labels: NDArray[np.int64]) -> list[int]:
    """The first image of each of the first classes; without labels, the first images."""
    if NO_LABEL in labels:
        return list(range(min(_CLASSES, len(labels))))
    return [int(np.flatnonzero(labels == label)[0]) for label in np.unique(labels)[:_CLASSES]]
