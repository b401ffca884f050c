"""Structured pruning of the client: masks over channels, and the equivalent smaller client.

A pruned channel is multiplied by zero after its activation, so it does not reach z and gets no gradient; tensors keep
their shapes. `compact` makes the client without these channels: the same function, fewer weights.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from attncem.base.types import ConfigError


class ChannelMask(nn.Module):
    """Multiplies each channel by 1, or by 0 once it is pruned."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mask", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to the same shape."""
        return x * self.get_buffer("mask").to(x.dtype).view(1, -1, 1, 1)


def add_masks(client: nn.Sequential, *, keep_up_to: int) -> None:
    """Put a mask after every convolution, normalisation and ReLU that feed another convolution of the client.

    Convolutions with at most `keep_up_to` outputs get none. Only a chain of layers can be pruned this way.
    """
    layers = _chain(client)
    other = next((layer for layer in layers if any(True for _ in layer.children())), None)
    if other is not None:
        raise ConfigError(
            f"model.pruning: the client must be a chain of layers, as of small_cnn or vgg11_bn; this one has "
            f"{type(other).__name__}, where a channel has more than one use"
        )
    blocks = [layers[n : n + 3] for n in range(len(layers)) if any(isinstance(x, nn.Conv2d) for x in layers[n + 1 :])]
    found = [(conv.out_channels, relu) for conv, relu in map(_ends, blocks) if conv and conv.out_channels > keep_up_to]
    if not found:
        raise ConfigError(
            f"model.pruning.keep_up_to={keep_up_to}: no convolution of the client that feeds another has more outputs"
        )
    for channels, relu in found:
        _insert_after(client, relu, ChannelMask(channels))


def _chain(client: nn.Module) -> list[nn.Module]:
    """The layers inside sequences, in order of use."""
    if not isinstance(client, nn.Sequential):
        return [client]
    return [layer for part in client for layer in _chain(part)]


def _ends(block: list[nn.Module]) -> tuple[nn.Conv2d | None, nn.Module]:
    """Convolution and ReLU of three layers with a normalisation between them; None as convolution for anything else."""
    first, *between, last = block
    fits = isinstance(last, nn.ReLU) and len(between) == 1 and isinstance(between[0], nn.BatchNorm2d)
    return (first if fits and isinstance(first, nn.Conv2d) else None), last


def _insert_after(client: nn.Sequential, layer: nn.Module, new: nn.Module) -> None:
    for holder in [module for module in client.modules() if isinstance(module, nn.Sequential)]:
        position = next((place for place, own in enumerate(holder) if own is layer), None)
        if position is not None:
            holder.insert(position + 1, new)
            return


def masks_of(client: nn.Module) -> list[ChannelMask]:
    """The masks of a client, first to last."""
    return [module for module in client.modules() if isinstance(module, ChannelMask)]


def channel_importance(client: nn.Module, losses: Iterable[Tensor]) -> list[Tensor]:
    """Importance of each masked channel: the squared first-order change of the loss without it, over all `losses`.

    The change is the gradient with respect to the channel's mask (Molchanov et al., 2019). `losses` is read one by one;
    each is a scalar of a forward pass made after this call.
    """
    gates = [mask.get_buffer("mask").requires_grad_() for mask in masks_of(client)]
    try:
        totals = [torch.zeros_like(gate) for gate in gates]
        for loss in losses:
            for total, change in zip(totals, torch.autograd.grad(loss, gates), strict=True):
                total.add_(change.square())
    finally:
        for gate in gates:
            gate.requires_grad_(False)
    return totals


@torch.no_grad()
def prune(client: nn.Module, importance: list[Tensor], ratio: float, optimizer: Optimizer) -> None:
    """Prune the least important `ratio` of every masked layer's channels.

    Their weights and optimiser state become zero; the others do not change.
    """
    for mask, values in zip(masks_of(client), importance, strict=True):
        gate = mask.get_buffer("mask")
        closed = len(gate) - int(len(gate) * (1 - ratio))
        gate[values.argsort(stable=True)[:closed]] = 0
    for parameter, factor in _factors(client):
        parameter.mul_(factor)
        for memory in optimizer.state.get(parameter, {}).values():
            if isinstance(memory, Tensor) and memory.shape == parameter.shape:
                memory.mul_(factor)


def _factors(client: nn.Module) -> Iterator[tuple[nn.Parameter, Tensor]]:
    """Each weight of masked channels, with a mask: 0 where a pruned channel uses it, 1 elsewhere."""
    for layer, outputs, inputs in _with_gates(client):
        for parameter in layer.parameters(recurse=False):
            if outputs is not None:
                yield parameter, outputs.view(-1, *[1] * (parameter.ndim - 1))
            if inputs is not None and parameter.ndim == 4:
                yield parameter, inputs.view(1, -1, 1, 1)


def _with_gates(client: nn.Module) -> Iterator[tuple[nn.Module, Tensor | None, Tensor | None]]:
    """Convolutions and normalisations with the masks of their outputs and inputs; None: all channels are kept."""
    layers = _chain(client)
    gates: Tensor | None = None
    for number, layer in enumerate(layers):
        if isinstance(layer, nn.Conv2d):
            after = next((other for other in layers[number + 1 : number + 4] if isinstance(other, ChannelMask)), None)
            inputs, gates = gates, None if after is None else after.get_buffer("mask")
            yield layer, gates, inputs
        elif isinstance(layer, nn.BatchNorm2d):
            yield layer, gates, None


@torch.no_grad()
def compact(client: nn.Module) -> nn.Module:
    """A copy of the client without its pruned channels; the client itself if it has no masks."""
    if not masks_of(client):
        return client
    small = copy.deepcopy(client)
    for layer, outputs, inputs in _with_gates(small):
        _cut(layer, outputs, inputs)
    for mask in masks_of(small):
        mask.mask = mask.get_buffer("mask")[_open(mask.get_buffer("mask"))]
    return small


def _open(gate: Tensor) -> Tensor:
    return gate.nonzero().flatten()


def _cut(layer: nn.Module, outputs: Tensor | None, inputs: Tensor | None) -> None:
    """Keep the remaining channels of one layer's weights and statistics."""
    for name, tensor in [*layer.named_parameters(recurse=False), *layer.named_buffers(recurse=False)]:
        kept = tensor.detach()
        if outputs is not None and tensor.ndim:
            kept = kept[_open(outputs)]
        if inputs is not None and tensor.ndim == 4:
            kept = kept[:, _open(inputs)]
        setattr(layer, name, nn.Parameter(kept) if isinstance(tensor, nn.Parameter) else kept)
    if isinstance(layer, nn.Conv2d):
        layer.out_channels, layer.in_channels = layer.weight.shape[:2]
    elif isinstance(layer, nn.BatchNorm2d):
        layer.num_features = len(layer.weight)
