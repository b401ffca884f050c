"""Networks by (architecture, cut): client and server halves. No losses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attncem.config.model import ModelOptions
from attncem.types import ConfigError, DatasetSpec


@dataclass(frozen=True)
class Architecture:
    """A network as named stages; cut k lies after stage k, so the last stage stays with the server."""

    stages: tuple[tuple[str, nn.Module, int], ...]
    """(name, module, output channels)."""
    head: nn.Module

    def cut_names(self) -> list[str]:
        """Names of the stages after which the network can be cut."""
        return [name for name, _, _ in self.stages[:-1]]


class Normalise(nn.Module):
    """(x - mean) / std per channel, on [0, 1] pixels."""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise a batch of images."""
        mean, std = self.get_buffer("mean"), self.get_buffer("std")
        return (x - mean) / std


def _conv_block(inputs: int, outputs: int, *, pool: bool) -> nn.Sequential:
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    ]
    return nn.Sequential(*layers, *([nn.MaxPool2d(2)] if pool else []))


def small_cnn(spec: DatasetSpec, options: ModelOptions) -> Architecture:
    """Five convolutions for images of 16 to 64 px; cuts after the first four."""
    w = options.width
    plan = [("conv1", w, True), ("conv2", 2 * w, True), ("conv3", 4 * w, False), ("conv4", 4 * w, True)]
    stages: list[tuple[str, nn.Module, int]] = []
    channels = spec.shape[0]
    for name, outputs, pool in [*plan, ("conv5", 8 * w, False)]:
        stages.append((name, _conv_block(channels, outputs, pool=pool), outputs))
        channels = outputs
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, spec.num_classes))
    return Architecture(tuple(stages), head)


ARCHITECTURES: dict[str, Callable[[DatasetSpec, ModelOptions], Architecture]] = {"small_cnn": small_cnn}
"""Networks by name."""


def build_halves(spec: DatasetSpec, options: ModelOptions) -> tuple[nn.Sequential, nn.Sequential]:
    """Client and server half of the network cut as the options say.

    client: normalise, stages up to the cut, bottleneck convolution, sigmoid;
    server: convolution back to the width at the cut, the other stages, the head.
    """
    network = ARCHITECTURES[options.name](spec, options)
    cut = resolve_cut(network, options)
    client: list[nn.Module] = [Normalise(spec.mean, spec.std), *(module for _, module, _ in network.stages[:cut])]
    server: list[nn.Module] = [*(module for _, module, _ in network.stages[cut:]), network.head]
    width = network.stages[cut - 1][2]
    if options.bottleneck is not None:
        b = options.bottleneck
        client.append(nn.Conv2d(width, b.channels, b.kernel, stride=b.stride, padding=b.kernel // 2))
        client.extend([nn.ReLU(inplace=True)] if b.relu else [])
        server.insert(0, nn.Conv2d(b.channels, width, 3, padding=1))
    if options.sigmoid:
        client.append(nn.Sigmoid())
    return nn.Sequential(*client), nn.Sequential(*server)


def resolve_cut(network: Architecture, options: ModelOptions) -> int:
    """The cut as a number of stages; ConfigError when the network has no such cut."""
    names = network.cut_names()
    number = names.index(str(options.cut)) + 1 if options.cut in names else options.cut
    if isinstance(number, str) and number.isdecimal():
        number = int(number)
    if isinstance(number, int) and 1 <= number <= len(names):
        return number
    allowed = ", ".join(f"{position} ({name})" for position, name in enumerate(names, 1))
    raise ConfigError(f"model.cut={options.cut}: {options.name} can be cut after {allowed}")
