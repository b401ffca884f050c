"""Servers for the small z of a lean client: one of its own, a packaged network from its middle on, or a library's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attncem.base.plugins import load_installed
from attncem.base.types import ConfigError, DatasetSpec
from attncem.config.loading.suggest import known
from attncem.config.options.model import ModelOptions
from attncem.models.architecture import Architecture, Stage, channels_last
from attncem.models.foreign import foreign_server
from attncem.models.lean_plan import halved
from attncem.models.resnet import BasicBlock, PaddedShortcut
from attncem.models.vgg import Halve

SMALL = "small"
"""Name of the server of its own, the default."""
WIDTH, BLOCKS = 128, 3
LARGEST_SIDE = 8
"""Side of the map on which the small server works; a larger z is halved first."""
Shape = tuple[int, int, int]
"""Channels, height and width."""
Networks = Mapping[str, Callable[[DatasetSpec, ModelOptions], Architecture]]
"""The table of networks by name."""


def server_of(spec: DatasetSpec, options: ModelOptions, z: Shape, table: Networks) -> Architecture:
    """The stages and head that answer from z: `small`, a row of the table of networks, or LIBRARY/NAME:MODULE."""
    name = SMALL if options.server is None else options.server
    if not name:
        raise ConfigError("model.server is empty: name a server, or leave it null")
    if options.arguments and "/" not in name:
        raise ConfigError(f"model.arguments: {name} takes none; they are for servers of other libraries")
    if name == SMALL:
        return small_server(spec, z)
    if "/" in name:
        return _of_library(spec, options, z)
    return _of_table(spec, name, z, table)


def small_server(spec: DatasetSpec, z: Shape) -> Architecture:
    """3x3 to 128 channels, three residual blocks at the resolution of z, mean over the map, linear: 0.9 M weights."""
    halvings = max(0, math.ceil(math.log2(max(z[1:]) / LARGEST_SIDE)))
    widths = [z[0], *[WIDTH] * max(1, halvings)]
    strides = [2] * halvings or [1]
    widen = [_convolution(*widths[number : number + 2], stride=it) for number, it in enumerate(strides)]
    blocks: list[Stage] = [
        (f"server{number}", BasicBlock(WIDTH, WIDTH, 1, projection=True), WIDTH) for number in range(1, BLOCKS + 1)
    ]
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTH, spec.num_classes))
    return Architecture((("widen", nn.Sequential(*widen), WIDTH), *blocks), head)


def _convolution(inputs: int, outputs: int, *, stride: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


# packaged networks


def _of_table(spec: DatasetSpec, name: str, z: Shape, table: Networks) -> Architecture:
    """A network behind a 3x3 convolution, from the first stage whose input is a quarter of the image or smaller.

    A network of tokens gives up its embedding alone: a pixel of z becomes a token.
    """
    if name not in table:
        load_installed()
    known("model.server", name, [SMALL, *(row for row in table if row != "lean")])
    build, options = table[name], ModelOptions(name=name)
    try:
        with torch.device("meta"), torch.random.fork_rng(devices=[]):
            sizes = _sizes(spec, name, build(spec, options))
    except ConfigError as error:
        raise ConfigError(str(error).replace("model.name=", "model.server=")) from error
    whole = build(spec, options)
    if whole.features == "tokens":
        return replace(whole, stages=(("tokens", Tokens(z, whole.stages[0][2]), whole.stages[0][2]), *whole.stages[1:]))
    start = _start(spec, name, sizes)
    width = whole.stages[start - 1][2]
    stages = _without_halvings(whole.stages[start:], sizes[start - 1 :], z[1:])
    return replace(whole, stages=(("widen", _convolution(z[0], width), width), *stages))


def _sizes(spec: DatasetSpec, name: str, network: Architecture) -> list[tuple[int, ...]]:
    """Height and width behind each stage for an image of the data."""
    x, sizes = torch.zeros(2, *spec.shape), []
    try:
        for _, stage, _ in network.stages:
            x = stage.eval()(x)
            sizes.append(tuple(x.shape[2:]))
    except RuntimeError as error:
        first_line = str(error).partition("\n")[0]
        raise ConfigError(
            f"model.server={name} does not take images of shape {list(spec.shape)} ({first_line}); choose another"
        ) from error
    return sizes


def _start(spec: DatasetSpec, name: str, sizes: Sequence[tuple[int, ...]]) -> int:
    """Number of stages that the client replaces."""
    quarter = max(halved(halved((spec.shape[1], spec.shape[2]))))
    start = next((number for number, size in enumerate(sizes[:-1], 1) if max(size) <= quarter), None)
    if start is None:
        raise ConfigError(f"model.server={name}: no stage of it begins at a quarter of the image; choose another")
    return start


def _without_halvings(stages: Sequence[Stage], sizes: Sequence[tuple[int, ...]], z: tuple[int, ...]) -> list[Stage]:
    """The stages without the first halvings, which a map of the size of z no longer needs."""
    (height, width), spare = sizes[0], 0
    while max(height, width) > max(z):
        (height, width), spare = halved((height, width)), spare + 1
    kept: list[Stage] = []
    for (name, module, channels), before, after in zip(stages, sizes, sizes[1:], strict=False):
        halves = max(after) < max(before)
        kept.append((name, _unstrided(module) if halves and spare > 0 else module, channels))
        spare -= halves
    return kept


def _unstrided(module: nn.Module) -> nn.Module:
    """The module without pooling, all its strides 1."""
    if isinstance(module, Halve | nn.MaxPool2d | nn.AvgPool2d):
        return nn.Identity()
    if isinstance(module, nn.Conv2d):
        module.stride = (1, 1)
    if isinstance(module, PaddedShortcut):
        module.stride = 1
    for name, child in module.named_children():
        setattr(module, name, _unstrided(child))
    return module


class Tokens(nn.Module):
    """A 3x3 convolution of z, each pixel of which becomes a token with a learned position."""

    def __init__(self, z: Shape, width: int) -> None:
        super().__init__()
        self.widen = nn.Conv2d(z[0], width, 3, padding=1)
        self.positions = nn.Parameter(0.02 * torch.randn(1, z[1] * z[2], width))

    def forward(self, z: Tensor) -> Tensor:
        """[B, C, H, W] to [B, H W, width]."""
        tokens: Tensor = self.widen(z).flatten(2).transpose(1, 2)
        return tokens + self.positions


# networks of other libraries


class Enlarge(nn.Module):
    """Repeats pixels until height and width are at least those of a size; a larger one stays as it is."""

    def __init__(self, size: tuple[int, int]) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to [B, C, height, width]."""
        size = max(x.shape[-2], self.size[0]), max(x.shape[-1], self.size[1])
        return x if size == x.shape[-2:] else F.interpolate(x, size)


def _of_library(spec: DatasetSpec, options: ModelOptions, z: Shape) -> Architecture:
    """The part of LIBRARY/NAME behind MODULE: z is widened to the channels there and enlarged to the size there."""
    assert options.server is not None
    name, _, module = options.server.partition(":")
    try:
        server, native = foreign_server(spec, ModelOptions(name=name, cut=module, arguments=options.arguments))
    except ConfigError as error:
        shown = str(error).replace("model.name=", "model.server=").replace("model.cut=", f"model.server={name}:")
        advice = (
            ""
            if module or "no such module" not in shown
            else f"; name the last module that the client replaces: model.server={name}:MODULE"
        )
        raise ConfigError(shown + advice) from error
    shape = native.shape[1:]
    if len(shape) != 3 or channels_last(shape, spec.shape):
        raise ConfigError(
            f"model.server={options.server}: it gives {list(shape)} there, not a map [C, H, W]; name a module that does"
        )
    width, size = native.shape[1], (native.shape[2], native.shape[3])
    widen = nn.Sequential(_convolution(z[0], width), Enlarge(size))
    return Architecture((("widen", widen, width), ("rest", server, 0)), nn.Identity())
