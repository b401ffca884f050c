"""What a run's manifest says about its data."""

from __future__ import annotations

from dataclasses import dataclass

from attncem.results.record import Record
from attncem.types import DatasetSpec


@dataclass(frozen=True)
class DataFacts(Record):
    """Facts of a data set as they were when the run was trained."""

    name: str
    shape: list[int]
    num_classes: int
    mean: list[float]
    std: list[float]
    class_names: list[str]

    def spec(self) -> DatasetSpec:
        """As the rest of the package has them."""
        channels, height, width = self.shape
        names = tuple(self.class_names)
        shape = (channels, height, width)
        return DatasetSpec(self.name, shape, self.num_classes, tuple(self.mean), tuple(self.std), names)
