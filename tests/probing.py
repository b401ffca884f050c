"""Made-up data and encoders for the tests of probes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attncem.base.types import DatasetSpec
from attncem.data.batches import DeviceData
from attncem.data.splits import Split
from attncem.judging.opening import OpenRun, open_encoder
from attncem.training.build import RunData

SIZE, NUM_CLASSES = 12, 4
SPEC = DatasetSpec("pictures", (1, SIZE, SIZE), NUM_CLASSES, (0.5,), (0.5,))
PARTS = {"train": 160, "validation": 60, "held_out": 60, "test": 120, "infer_auxiliary": 100, "infer_evaluation": 40}


def pictures(count: int, seed: int) -> DeviceData:
    """Smooth random pictures, and a class that one dark pixel tells."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % NUM_CLASSES
    x = F.interpolate(torch.rand(count, 1, 4, 4, generator=generator), size=(SIZE, SIZE), mode="bilinear")
    x[:, 0, 0, 0] = y / 10
    return DeviceData((255 * x).round().byte(), y)


def _data() -> RunData:
    index = np.arange(0)
    parts = {name: pictures(count, seed) for seed, (name, count) in enumerate(PARTS.items())}
    return RunData(SPEC, Split(*[index] * 6, sha256="made up", available=len(index)), **parts)


DATA = _data()


class Constant(nn.Module):
    """Tells nothing about x."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.full((len(x), 4, 3, 3), 0.3, device=x.device)


LEAKY = nn.PixelUnshuffle(4)


def subject(
    encoder: nn.Module,
    noise_std: float = 0.0,
    server: nn.Module | None = None,
    *,
    data: RunData = DATA,
    noise: str = "fresh",
) -> OpenRun:
    """A foreign encoder with these data, read from nowhere."""
    channel = [{"name": "gaussian", "noise_std": noise_std, "noise": noise}]
    key = bytes(range(32)) if noise == "keyed" else None
    opened = open_encoder(encoder, data={"name": "fashion_mnist_mini"}, channel=channel, server=server, key=key)
    return replace(opened, spec=SPEC, reader=lambda: data)
