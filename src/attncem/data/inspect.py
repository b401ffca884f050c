"""What data sets there are, where they lie and whether they are whole. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from attncem.data.readers import read_dataset
from attncem.data.specs import DATASETS
from attncem.types import DataError


@dataclass(frozen=True)
class DatasetState:
    """One line of `attncem data`."""

    name: str
    shape: str
    num_classes: int
    train: int
    test: int
    ok: bool
    state: str
    where: str


def inspect_datasets(root: str | None = None) -> list[DatasetState]:
    """Read and check every data set of the table."""
    return [_inspect(name, root) for name in DATASETS]


def _inspect(name: str, root: str | None) -> DatasetState:
    spec = DATASETS[name]
    shape = "x".join(str(size) for size in spec.shape)
    where = root or "embedded in the package"
    try:
        raw = read_dataset(name, root)
    except DataError as error:
        return DatasetState(name, shape, spec.num_classes, 0, 0, False, str(error), where)
    counts = (len(raw.train_labels), len(raw.test_labels))
    return DatasetState(name, shape, spec.num_classes, *counts, True, f"ok, sha256 {raw.sha256[:12]}", where)
