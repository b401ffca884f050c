"""Networks by (architecture, cut): client and server halves. No losses."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from attncem.base.plugins import addition, load_installed
from attncem.base.types import ConfigError, DatasetSpec
from attncem.config.loading.suggest import known
from attncem.config.options.model import LEAN, BottleneckOptions, ModelOptions
from attncem.config.plugins import open_table
from attncem.models.architecture import Architecture, Stage, channels_last
from attncem.models.client_head import ClientHead, layers_of
from attncem.models.foreign import foreign_architecture
from attncem.models.front_ends import build_front_end
from attncem.models.lean import lean, lean_classifier, plan_of
from attncem.models.mobilenet import mobilenet_v2
from attncem.models.pruning import add_masks
from attncem.models.resnet import resnet18, resnet20
from attncem.models.sparse_coding import SparseCoding
from attncem.models.split import feature_shape
from attncem.models.thin_vgg import thin_vgg11_bn
from attncem.models.vgg import vgg11_bn
from attncem.models.vit import MeanToken, vit_tiny


def _conv_block(inputs: int, outputs: int, *, pool: bool) -> nn.Sequential:
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    ]
    return nn.Sequential(*layers, *([nn.MaxPool2d(2)] if pool else []))


def small_cnn(spec: DatasetSpec, options: ModelOptions) -> Architecture:
    """Five convolutions for images of 16 to 64 px; cuts after the first four."""
    w = options.width or 16
    plan = [("conv1", w, True), ("conv2", 2 * w, True), ("conv3", 4 * w, False), ("conv4", 4 * w, True)]
    stages: list[Stage] = []
    channels = spec.shape[0]
    for name, outputs, pool in [*plan, ("conv5", 8 * w, False)]:
        stages.append((name, _conv_block(channels, outputs, pool=pool), outputs))
        channels = outputs
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, spec.num_classes))
    return Architecture(tuple(stages), head)


ARCHITECTURES: dict[str, Callable[[DatasetSpec, ModelOptions], Architecture]] = {
    "small_cnn": small_cnn,
    "vgg11_bn": vgg11_bn,
    "thin_vgg11_bn": thin_vgg11_bn,
    "resnet20": resnet20,
    "resnet18": resnet18,
    "mobilenet_v2": mobilenet_v2,
    "vit_tiny": vit_tiny,
    "lean": lambda spec, options: lean(spec, options, ARCHITECTURES),
}
"""Networks by name."""
open_table("network", ARCHITECTURES)


def architecture(spec: DatasetSpec, options: ModelOptions) -> Architecture:
    """The network that the options name: a row of ARCHITECTURES, or LIBRARY/NAME of the extra `vision`."""
    if "/" in options.name:
        return foreign_architecture(spec, options)
    if options.name not in ARCHITECTURES:
        load_installed()
    known("model.name", options.name, ARCHITECTURES)
    for_client = ("macs", "side", "channels", "server")
    if options.name != "lean" and (key := next((it for it in for_client if getattr(options, it) is not None), None)):
        raise ConfigError(
            f"model.{key}={getattr(options, key)}: only lean has it, {options.name} does not: leave it null"
        )
    if options.arguments and options.name != "lean" and addition("network", options.name) is None:
        raise ConfigError(f"model.arguments: {options.name} takes none; they are for networks of other libraries")
    return ARCHITECTURES[options.name](spec, options)


def only_ours(options: ModelOptions) -> bool:
    """Whether no other library builds a part of the network; not all of theirs support the meta device."""
    return "/" not in options.name and "/" not in (options.server or "")


def check_network(spec: DatasetSpec, options: ModelOptions) -> None:
    """Reject an unknown network or cut; does not change the random state."""
    with torch.device("meta" if only_ours(options) else "cpu"), torch.random.fork_rng(devices=[]):
        resolve_cut(architecture(spec, options), options)


def build_halves(spec: DatasetSpec, options: ModelOptions) -> tuple[nn.Sequential, nn.Sequential]:
    """Client and server half of the network, cut by the options.

    client: front end, stages up to the cut, bottleneck, sparse coding, sigmoid; server: expansion to the width at the
    cut, the other stages, the head.
    """
    if options.extra_layer and options.name != "vgg11_bn":
        raise ConfigError(f"model.extra_layer=true: {options.name} has none; vgg11_bn does")
    if options.blocks is not None and options.name != "thin_vgg11_bn":
        raise ConfigError(f"model.blocks={options.blocks}: {options.name} has a fixed number; thin_vgg11_bn does not")
    network = architecture(spec, options)
    cut = resolve_cut(network, options)
    front_end = build_front_end(options.front_end, spec)
    client: list[nn.Module] = [front_end, *(module for _, module, _ in network.stages[:cut])]
    server: list[nn.Module] = [*(module for _, module, _ in network.stages[cut:]), network.head]
    if options.bottleneck is not None and network.only_cut is None:
        narrow, widen = _bottleneck(network, network.stages[cut - 1][2], options.bottleneck)
        client.extend([narrow, *([nn.ReLU(inplace=True)] if options.bottleneck.relu else [])])
        server.insert(0, widen)
    if options.sparse_coding is not None:
        shape = feature_shape(nn.Sequential(*client), spec.shape)
        client.append(SparseCoding(shape, options.sparse_coding.threshold))
    if options.sigmoid:
        client.append(nn.Sigmoid())
    encoder = nn.Sequential(*client)
    if options.pruning is not None:
        add_masks(encoder, keep_up_to=options.pruning.keep_up_to)
    if network.initialise_client is not None:
        encoder.apply(network.initialise_client)
    return encoder, nn.Sequential(*server)


def build_on_device(spec: DatasetSpec, options: ModelOptions) -> tuple[nn.Sequential, nn.Sequential]:
    """The client's trunk, front end and stages up to the cut, and a pooled linear head of its own: a whole network.

    lean spends all of model.macs on both.
    """
    front_end = build_front_end(options.front_end, spec)
    if options.name == "lean":
        trunk, head = lean_classifier(spec, plan_of(spec, options, classes=spec.num_classes))
        return nn.Sequential(front_end, *trunk), head
    network = architecture(spec, options)
    cut = resolve_cut(network, options)
    trunk = nn.Sequential(front_end, *(stage for _, stage, _ in network.stages[:cut]))
    if network.initialise_client is not None:
        trunk.apply(network.initialise_client)
    _check_channels_first(trunk, spec, options)
    return trunk, _classifier(network, network.stages[cut - 1][2], spec.num_classes)


def _check_channels_first(trunk: nn.Module, spec: DatasetSpec, options: ModelOptions) -> None:
    """ConfigError for a network of another library that gives the client alone a map with the channels last."""
    if "/" in options.name and channels_last(shape := feature_shape(trunk, spec.shape), spec.shape):
        raise ConfigError(
            f"model.cut={options.cut}: {options.name} gives {list(shape)} there, with the channels last; the client "
            "alone needs a map [C, H, W]: cut at a module that gives one"
        )


def _classifier(network: Architecture, width: int, classes: int) -> nn.Sequential:
    """A pooled linear classifier behind a stage of this width."""
    pool = [nn.LayerNorm(width), MeanToken()] if network.features == "tokens" else [Pool()]
    return nn.Sequential(*pool, nn.Linear(width, classes))


def build_head(spec: DatasetSpec, options: ModelOptions, encoder: nn.Sequential) -> ClientHead:
    """The head of a client that `build_halves` made: pooled and linear, behind the trunk, before what narrows z."""
    with torch.device("meta" if only_ours(options) else "cpu"), torch.random.fork_rng(devices=[]):
        network = architecture(spec, options)
    cut = resolve_cut(network, options)
    stages = [stage for _, stage, _ in network.stages[:cut]]
    layers = 1 + len(list(layers_of(nn.Sequential(*stages))))  # the front end is one
    width = network.stages[cut - 1][2]
    if options.name == LEAN:
        layers, width = layers - 1, plan_of(spec, options).width
    trunk = nn.Sequential(*list(layers_of(encoder))[:layers])
    _check_channels_first(trunk, spec, options)
    return ClientHead(_classifier(network, width, spec.num_classes), layers)


def with_room_for_head(spec: DatasetSpec, options: ModelOptions) -> ModelOptions:
    """The options of a lean client whose budget is reduced by the head's multiply-accumulates; others unchanged."""
    if options.name != LEAN or options.macs is None:
        return options
    budget = int(options.macs)
    planned, smaller = plan_of(spec, options), options
    for _ in range(4):
        if planned.macs + (room := planned.width * spec.num_classes) <= budget:
            return smaller
        smaller = options.model_copy(update={"macs": float(budget - room)})
        try:
            planned = plan_of(spec, smaller)
        except ConfigError as error:
            raise ConfigError(f"model.macs={budget}, of which a head takes {room}: {error}") from error
    raise ConfigError(f"model.macs={budget}: no client with a head uses it; use a little more")


class Pool(nn.Module):
    """The mean of each map; a vector stays as it is."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] or [B, C] to [B, C]."""
        return x.flatten(2).mean(2) if x.ndim > 2 else x


def _bottleneck(network: Architecture, width: int, options: BottleneckOptions) -> tuple[nn.Module, nn.Module]:
    """The layer that narrows a stage's output to z, and the server's layer that widens it again."""
    channels, kernel = options.channels, options.kernel
    if network.features == "tokens":
        return nn.Linear(width, channels), nn.Linear(channels, width)
    narrow = nn.Conv2d(width, channels, kernel, stride=options.stride, padding=kernel // 2)
    return narrow, nn.Conv2d(channels, width, 3, padding=1)


def resolve_cut(network: Architecture, options: ModelOptions) -> int:
    """The cut as a number of stages; ConfigError if the network has no such cut."""
    cuts = network.cuts()
    number = next((position for position, name in cuts.items() if name == options.cut), options.cut)
    if isinstance(number, str) and number.isdecimal():
        number = int(number)
    if isinstance(number, int) and number in cuts:
        return number
    allowed = ", ".join(f"{position} ({name})" for position, name in cuts.items())
    raise ConfigError(f"model.cut={options.cut}: {options.name} can be cut after {allowed}")
