"""The table of data sets: facts, and how to get what is not embedded. No torch."""

from __future__ import annotations

from attncem.types import DatasetSpec

FASHION_CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)

DATASETS: dict[str, DatasetSpec] = {
    "fashion_mnist_mini": DatasetSpec(
        "fashion_mnist_mini", (1, 28, 28), 10, mean=(0.2873,), std=(0.3544,), class_names=FASHION_CLASSES
    ),
}
"""Data sets by name; a reader of the same name lies in readers.py."""
