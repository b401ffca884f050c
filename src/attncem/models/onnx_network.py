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
from attncem.config.options.encoder import EncoderOptions
from attncem.models.onnx_file import OnnxFile, need

_AT_ONCE = 2**22
"""Largest number of input values per call, if the file takes any number of images."""
TYPES = {"float": torch.float32, "float16": torch.float16, "double": torch.float64, "uint8": torch.uint8}
"""Image types that a file may take; uint8 means raw pixels."""


class OnnxNetwork(nn.Module):
    """Maps a tensor [B, …] to a tensor [B, …] of float32, on the device of its input.

    Copies share the session, which keeps no state. `identity` is the file's hash as a buffer, so that functions that
    identify a model by its weights also identify this one.
    """

    passes_gradients = False
    identity: Tensor

    def __init__(self, file: OnnxFile, *, threads: int = 1) -> None:
        super().__init__()
        self.file = file
        self._session = _Session(file, threads)
        self._batch = None if file.shape is None else file.shape[0]
        self.register_buffer("identity", torch.tensor(list(bytes.fromhex(file.sha256)), dtype=torch.uint8))

    def forward(self, x: Tensor) -> Tensor:
        """The output of the file for x; NotApplicable if a gradient is required, which would be silently missing."""
        if x.requires_grad and torch.is_grad_enabled():
            raise NotApplicable(written("subject.lacks.gradient"))
        given = np.ascontiguousarray(x.detach().cpu().numpy())
        size = self._batch or max(1, _AT_ONCE // max(1, math.prod(given.shape[1:])))
        parts = [self._run(given[start : start + size]) for start in range(0, len(given), size)]
        return torch.from_numpy(np.concatenate(parts)).to(x.device)

    def _run(self, given: NDArray[Any]) -> NDArray[np.float32]:
        """One batch; if the file fixes the batch size, the input is padded and the extra outputs are dropped."""
        lacking = 0 if self._batch is None else self._batch - len(given)
        filled = np.concatenate([given, np.repeat(given[-1:], lacking, 0)]) if lacking else given
        made = self._session(filled)
        if made.ndim < 2 or len(made) != len(filled):
            raise RunError(
                f"{self.file.path}: {self.file.output} is {list(made.shape)} for a batch of {len(filled)}; a feature "
                "must be [B, …], one row for each image"
            )
        if made.dtype.kind != "f":
            raise RunError(
                f"{self.file.path}: {self.file.output} is of type {made.dtype}; choose a tensor of floating-point "
                "numbers with output=NAME"
            )
        return made[: len(given)].astype(np.float32, copy=False)


class _Session:
    """A session of onnxruntime on the CPU; no operator library is ever registered."""

    def __init__(self, file: OnnxFile, threads: int) -> None:
        runtime = need("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 4  # important messages come as errors
        self._file = file
        try:
            self._run = runtime.InferenceSession(file.graph, options, providers=["CPUExecutionProvider"]).run
        except Exception as error:  # onnxruntime's errors have no common base class
            raise RunError(f"{file.path} cannot be run by onnxruntime: {_said(error)}") from error

    def __call__(self, given: NDArray[Any]) -> NDArray[Any]:
        try:
            return np.asarray(self._run([self._file.output], {self._file.input: given})[0])
        except Exception as error:
            shape = list(given.shape)
            raise RunError(f"{self._file.path} cannot be run on an input of {shape}: {_said(error)}") from error

    def __deepcopy__(self, memo: object) -> _Session:
        return self


def _said(error: Exception) -> str:
    """The message of onnxruntime, in one line of limited length."""
    return " ".join(str(error).split())[:400]


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
    file: OnnxFile, options: EncoderOptions, image_shape: tuple[int, int, int], *, threads: int = 1
) -> nn.Sequential:
    """The file as an encoder of images [B, C, H, W] in [0, 1]; an error if it cannot take them."""
    channels, size = input_of(file, options)
    C, H, W = image_shape
    if channels not in (None, C) and (C, channels) != (1, 3):
        raise ConfigError(f"{file.path} takes {channels} channels, and the images have {C}")
    if any(fixed not in (None, own) for fixed, own in zip(size, (H, W), strict=True)):
        wanted = "x".join("any" if side is None else str(side) for side in size)
        raise ConfigError(f"{file.path} takes images of {wanted} px, and these have {H}x{W}")
    return nn.Sequential(ImageInput(options, channels or C, file.kind), OnnxNetwork(file, threads=threads))


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
