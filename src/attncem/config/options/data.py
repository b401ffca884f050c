"""Options of the data: which set, its location, split and augmentation."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from attncem.config.options.base import Options


class DataOptions(Options):
    """The data set and its disjoint parts: train, validation, held_out (attacker's) and test."""

    name: str = "fashion_mnist_mini"
    """Data set; `attncem data` lists them."""
    root: str | None = None
    """Folder of the data set or its parent folder; default: search $ATTNCEM_DATA and ./data."""
    image_size: int | None = Field(None, ge=8, le=1024)
    """Sets of image files: scale every image to this many pixels square; default: all must have one size."""
    placement: Literal["auto", "device", "host"] = "auto"
    """Memory of the images: the device, or the host, which streams batches; auto: the device if they fill at most half
    of its free memory."""
    images_per_class: int | None = Field(None, ge=2)
    """Use at most this many of the training images of each class, drawn by `split_seed`; the fractions below divide
    these. Test images stay whole; default: all."""
    validation_fraction: float = Field(0.1, gt=0, lt=1)
    """Part of the training images for validation."""
    held_out_fraction: float = Field(0.1, ge=0, lt=1)
    """Part of the training images that only a `held_out` attacker owns."""
    split_seed: int = Field(0, ge=0)
    """Seed of the split; separate from the run's seed, so runs with different seeds share the split."""
    crop_padding: int = Field(0, ge=0, le=1024)
    """Augmentation: random crop after padding by this many pixels (the baseline: 4)."""
    horizontal_flip: bool = False
    """Augmentation: mirror half of the images."""
    rotation_degrees: float = Field(0.0, ge=0, le=180)
    """Augmentation: rotation by up to this angle in both directions (the baseline: 15)."""

    @model_validator(mode="after")
    def _leave_something_to_train(self) -> DataOptions:
        if self.validation_fraction + self.held_out_fraction >= 1:
            raise ValueError("validation_fraction + held_out_fraction must stay below 1: nothing is left to train on")
        return self
