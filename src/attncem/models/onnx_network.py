"""A network from an ONNX file as a module: run by onnxruntime on the CPU, without gradients. Needs the extra `onnx`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attncem.base.texts import written
from attncem.base.types import ConfigError, NotApplicable, RunError
from attncem.config.options.encoder import EncoderLimits, EncoderOptions
from attncem.models.onnx_file import OnnxFile
from attncem.models.onnx_process import OnnxProcess, require_feature
from attncem.models.onnx_session import Session

_AT_ONCE = 2**22
"""Largest number of input values per call, if the file takes any number of images."""
_LARGEST_INPUT = 2**28
"""Largest number of input values per call, if the file fixes the number of images: 1 GiB."""
TYPES = {"float": torch.float32, "float16": torch.float16, "double": torch.float64, "uint8": torch.uint8}
"""Image types that a file may take; uint8 means raw pixels."""


class OnnxNetwork(nn.Module):
    """Maps a tensor [B, …] to a tensor [B, …] of float32, on the device of its input.

    A file of somebody else runs in `process`, which has read it; without one it runs here: for files made just now.
    Copies share both. `identity` is the file's hash as a buffer, so that functions that identify a model by its weights
    also identify this one.
    """

    passes_gradients = False
    identity: Tensor

    def __init__(self, file: OnnxFile, process: OnnxProcess | None = None, *, threads: int = 1) -> None:
        super().__init__()
        self.file = file
        self._session = Session(file, threads) if process is None else process
        if process is not None:
            process.load()
        self._batch = None if file.shape is None else file.shape[0]
        self.register_buffer("identity", torch.tensor(list(bytes.fromhex(file.sha256)), dtype=torch.uint8))

    @property
    def limits(self) -> EncoderLimits | None:
        """The limits of the process that runs the file; None if it runs here."""
        return None if isinstance(self._session, Session) else self._session.limits

    def forward(self, x: Tensor) -> Tensor:
        """The output of the file for x; NotApplicable if a gradient is required, which would be silently missing."""
        if x.requires_grad and torch.is_grad_enabled():
            raise NotApplicable(written("subject.lacks.gradient"))
        images = np.ascontiguousarray(x.detach().cpu().numpy())
        size = self._batch or max(1, _AT_ONCE // max(1, math.prod(images.shape[1:])))
        if size * math.prod(images.shape[1:]) > _LARGEST_INPUT:
            raise RunError(f"{self.file.path} takes {size} images at once, too many: export it with a free batch size")
        parts = [self._run(images[start : start + size]) for start in range(0, len(images), size)]
        return torch.from_numpy(parts[0] if len(parts) == 1 else np.concatenate(parts)).to(x.device)

    def _run(self, images: NDArray[Any]) -> NDArray[np.float32]:
        """One batch; if the file fixes the batch size, the input is padded and the extra outputs are dropped."""
        lacking = 0 if self._batch is None else self._batch - len(images)
        filled = np.concatenate([images, np.repeat(images[-1:], lacking, 0)]) if lacking else images
        made = self._session(filled)
        require_feature(self.file, made.shape, made.dtype.name, len(filled))
        with np.errstate(over="ignore"):
            return made[: len(images)].astype(np.float32, copy=False)


class ImageInput(nn.Module):
    """Converts images [B, C, H, W] in [0, 1] to the input of a file: (x - mean) / std, its axis order, its type."""

    mean: Tensor
    std: Tensor
    order: Tensor

    def __init__(self, options: EncoderOptions, channels: int, kind: str) -> None:
        super().__init__()
        self._channels, self._type = channels, TYPES[kind]
        for name in ("mean", "std"):
            values = getattr(options, name)
            if len(values) not in (1, channels):
                raise ConfigError(f"{name} has {len(values)} numbers, and the encoder takes {channels} channels")
            self.register_buffer(name, torch.tensor(values * (channels // len(values))).view(-1, 1, 1))
        self.register_buffer("order", torch.tensor([0, 2, 3, 1] if options.layout == "nhwc" else [0, 1, 2, 3]))

    def forward(self, x: Tensor) -> Tensor:
        """A file that takes colours gets grey images as three equal channels."""
        x = x.expand(-1, self._channels, -1, -1)
        x = (x * 255).round() if self._type == torch.uint8 else (x - self.mean) / self.std
        return x.permute(*self.order.tolist()).to(self._type)


def onnx_encoder(
    file: OnnxFile,
    options: EncoderOptions,
    image_shape: tuple[int, int, int],
    process: OnnxProcess | None = None,
    *,
    threads: int = 1,
) -> nn.Sequential:
    """The file as an encoder of images [B, C, H, W] in [0, 1]; an error if it cannot take them."""
    channels, size = input_of(file, options)
    C, H, W = image_shape
    if channels not in (None, C) and (C, channels) != (1, 3):
        raise ConfigError(f"{file.path} takes {channels} channels, and the images have {C}")
    if any(fixed not in (None, own) for fixed, own in zip(size, (H, W), strict=True)):
        wanted = "x".join("any" if side is None else str(side) for side in size)
        raise ConfigError(f"{file.path} takes images of {wanted} px, and these have {H}x{W}")
    return nn.Sequential(ImageInput(options, channels or C, file.kind), OnnxNetwork(file, process, threads=threads))


def input_of(file: OnnxFile, options: EncoderOptions) -> tuple[int | None, tuple[int | None, int | None]]:
    """Channels and (height, width) that a file fixes, None if free; ConfigError if it does not take images."""
    if file.kind not in TYPES:
        raise ConfigError(f"{file.path} takes {file.kind}; images can be given as {', '.join(TYPES)}")
    if file.kind == "uint8" and options.scales:
        raise ConfigError(f"{file.path} takes pixels as uint8, which have no mean and std: leave these out")
    if file.shape is None:
        return None, (None, None)
    if len(file.shape) != 4:
        raise ConfigError(f"{file.path} takes a tensor of {len(file.shape)} axes; images in batches have 4")
    _, *rest = file.shape
    channels, height, width = rest if options.layout == "nchw" else (rest[2], rest[0], rest[1])
    if channels not in (None, 1, 3):
        other = "nhwc" if options.layout == "nchw" else "nchw"
        said = ", ".join("any" if side is None else str(side) for side in file.shape)
        raise ConfigError(
            f"{file.path} takes [{said}]: with layout={options.layout} that is {channels} channels; "
            f"images have 1 or 3: try layout={other}"
        )
    return channels, (height, width)
