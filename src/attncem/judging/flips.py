"""count_flips(): how often batch, threads and runtime change the code of an image.

z moves by about 1e-7 with the order of sums, which depends on them; a value that lies this near to a threshold gets
another code. So the bound by bits holds for one file and one runtime, and R runtimes count R times.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import torch
from torch import Tensor, nn

from attncem.base.types import ConfigError
from attncem.config.loading.suggest import known
from attncem.judging.certificates.bits import Rounding, code_of, roundings
from attncem.models.channels import Channel
from attncem.models.onnx_export import export_onnx
from attncem.models.onnx_file import read_onnx
from attncem.models.onnx_network import OnnxNetwork
from attncem.models.split import SplitModel
from attncem.records.flips import FlipRow
from attncem.training.engine import limited_threads

RUNTIMES = ("torch", "onnxruntime")
Encode = Callable[[Tensor], Tensor]


@torch.no_grad()
def count_flips(
    model: SplitModel,
    x: Tensor,
    *,
    batches: Sequence[int] = (1, 7, 256),
    threads: Sequence[int] = (1, 2),
    runtimes: Sequence[str] = RUNTIMES,
) -> list[FlipRow]:
    """Compare the codes of images x under every condition with those of torch, one image at a time, on one thread.

    The model is on the CPU, and its pixels alone determine a code. `onnxruntime` needs the extra `onnx`.
    """
    for name in runtimes:
        known("runtimes", name, RUNTIMES)
    rounding = _fixed_rounding(model.channel)
    expected = _features(model.encode, x, 1, 1)
    codes = code_of(model.channel, rounding, expected)
    nearest = _nearest(model.channel, rounding, expected)
    rows = []
    for runtime, count in product(runtimes, threads):
        encode = model.encode if runtime == "torch" else _exported(model.encoder, x, count)
        for batch in batches:
            z = _features(encode, x, batch, count)
            other = code_of(model.channel, rounding, z) != codes
            counts = (len(x), codes.numel(), int(other.sum()), int(other.flatten(1).any(1).sum()))
            moved = float((z - expected).abs().max())
            rows.append(FlipRow(runtime, batch, count, *counts, moved, nearest))
    return rows


def _fixed_rounding(channel: nn.Module) -> Rounding:
    fixed = [one for one in roundings(channel) if one.fixed]
    if not fixed:
        raise ConfigError("flips are counted where the pixels determine a code: quantise, and nothing random before it")
    return fixed[-1]


def _features(encode: Encode, x: Tensor, batch: int, threads: int) -> Tensor:
    with limited_threads(threads):
        return torch.cat([encode(part) for part in x.split(batch)])


def _exported(encoder: nn.Module, x: Tensor, threads: int) -> OnnxNetwork:
    """The encoder as an ONNX file, run by onnxruntime on this many threads."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "client.onnx"
        file.write_bytes(export_onnx(encoder, x[:2]))
        return OnnxNetwork(read_onnx(file), threads=threads)


def _nearest(channel: nn.Module, rounding: Rounding, z: Tensor) -> float:
    """The smallest distance of the values that are rounded to a threshold between two levels."""
    assert isinstance(channel, Channel)
    *before, last = list(channel.single_stages())[: rounding.place + 1]
    for stage in before:
        z = stage(z)
    low, step = last.options.low, (last.options.high - last.options.low) / (2**rounding.bits - 1)
    place = (z.double() - low) / step - 0.5
    return float(((place - place.round().clamp(0, 2**rounding.bits - 2)) * step).abs().min())
