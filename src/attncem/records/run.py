"""Facts of the data in a run's manifest."""

from __future__ import annotations

from attncem.base.record import Record
from attncem.base.types import DatasetSpec

_LARGEST = 2**20
"""Upper limit of image sides, channels and classes."""


class DataFacts(Record):
    """Facts of a data set at the time of training."""

    name: str
    shape: list[int]
    num_classes: int
    mean: list[float]
    std: list[float]
    class_names: list[str]

    def __post_init__(self) -> None:
        """ValueError for facts that allow no network."""
        if len(self.shape) != 3 or not all(0 < size <= _LARGEST for size in (*self.shape, self.num_classes)):
            raise ValueError("must have a shape of three sizes, and classes")
        if not len(self.mean) == len(self.std) == self.shape[0] or min(self.std) <= 0:
            raise ValueError("must have a mean and a positive std for each channel")

    def spec(self) -> DatasetSpec:
        """The facts as a DatasetSpec."""
        channels, height, width = self.shape
        names = tuple(self.class_names)
        shape = (channels, height, width)
        return DatasetSpec(self.name, shape, self.num_classes, tuple(self.mean), tuple(self.std), names)
