"""Options of an encoder in an ONNX file: its input, where it is cut, and the limits of its process."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, model_validator

from attncem.config.options.base import Options


class EncoderOptions(Options):
    """Facts that an ONNX file does not contain. Images are in [0, 1] before mean and std."""

    model_config = ConfigDict(title="encoder's options")

    size: int | None = Field(None, ge=8, le=1024)
    """Size to which pictures are scaled, square; default: the size fixed in the file, if any."""
    mean: list[float] = Field([0.0], min_length=1, max_length=3)
    """Subtracted from each channel, or one number for all."""
    std: list[float] = Field([1.0], min_length=1, max_length=3)
    """Divisor of each channel, or one number for all; 0.0039215686 gives pixels from 0 to 255."""
    layout: Literal["nchw", "nhwc"] = "nchw"
    """Order of the input's axes: channels before or after height and width."""
    output: str | None = Field(None, max_length=1000)
    """The tensor that leaves the client, any tensor of the graph; default: the file's only output."""

    @model_validator(mode="after")
    def _scale_makes_sense(self) -> EncoderOptions:
        if min(self.std) <= 0:
            raise ValueError(f"std={min(self.std):g}: must be above 0")
        return self

    @property
    def scales(self) -> bool:
        """Whether mean or std change anything."""
        return any(self.mean) or any(value != 1 for value in self.std)


class EncoderLimits(Options):
    """What the process that reads and runs an ONNX file may take."""

    model_config = ConfigDict(title="encoder's limits")

    seconds: float = Field(60.0, ge=1, le=86_400)
    """Time to read the file, to load it, and to answer each batch of images."""
    memory: float = Field(4.0, ge=0.25, le=1024)
    """Memory in GiB, beside that of the runtime itself; only Linux limits it."""
