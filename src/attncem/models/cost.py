"""Cost of one query: multiply-accumulates and parameters of client and server, bytes sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from attncem.models.front_ends import FrontEnd
from attncem.models.pruning import compact
from attncem.models.sparse_coding import SparseCoding
from attncem.models.split import SplitModel, count_parameters, evaluation, passes_gradients
from attncem.models.vit import SelfAttention

BYTES_PER_VALUE = 4
"""z is sent as float32."""


@dataclass(frozen=True)
class Cost:
    """Cost of one image. The server's numbers are 0 if the model has no server half.

    The numbers of a client that another library runs are None: they cannot be counted.
    """

    client_macs: int | None
    server_macs: int
    client_parameters: int | None
    server_parameters: int
    bytes_per_query: int


def count_cost(model: SplitModel, image_shape: tuple[int, int, int]) -> Cost:
    """Send one blank image through both halves in evaluation mode and count.

    It counts multiply-accumulates of convolutions, linear layers, attention and the front end's filters; normalisation,
    activations, pooling, biases and the channel's noise are left out, as is customary. Pruned channels of the client do
    not count.
    """
    parameter = next(model.parameters(), None)
    device = parameter.device if parameter is not None else torch.device("cpu")
    with evaluation(model), torch.no_grad():
        client = compact(model.encoder)
        client_macs, z = _count(client, torch.zeros(1, *image_shape, device=device))
        server_macs = _count(model.server, z)[0] if model.server is not None else 0
    counted = passes_gradients(client)
    return Cost(
        client_macs=client_macs if counted else None,
        server_macs=server_macs,
        client_parameters=count_parameters(client) if counted else None,
        server_parameters=count_parameters(model.server),
        bytes_per_query=BYTES_PER_VALUE * z.numel(),
    )


def _count(module: nn.Module, x: Tensor) -> tuple[int, Tensor]:
    """Multiply-accumulates of one pass, and its output."""
    counted: list[int] = []

    def hook(layer: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
        if isinstance(layer, nn.MultiheadAttention):
            given = {**named, **dict(zip(("query", "key", "value"), inputs, strict=False))}
            counted.append(_attention_macs(layer, given["query"], given["key"], given["value"]))
        else:
            counted.append(_macs(layer, (*inputs, *named.values()), output))

    handles = [layer.register_forward_hook(hook, with_kwargs=True) for layer in module.modules()]
    try:
        out: Tensor = module(x)
    finally:
        for handle in handles:
            handle.remove()
    return sum(counted), out


def _macs(layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> int:
    """Multiply-accumulates of the layer alone; its children are counted separately."""
    if isinstance(layer, _ConvTransposeNd):
        return int(inputs[0].numel()) // layer.in_channels * layer.weight.numel()
    if isinstance(layer, _ConvNd):
        return int(output.numel()) // layer.out_channels * layer.weight.numel()
    if isinstance(layer, nn.Linear):
        return int(output.numel()) * layer.in_features
    if isinstance(layer, FrontEnd):
        return layer.macs * int(output.shape[0])
    if isinstance(layer, SparseCoding):
        return 2 * layer.dictionary.numel() * int(output.shape[0])
    if isinstance(layer, SelfAttention):
        return 2 * int(output.numel()) * int(output.shape[1])
    return 0


def _attention_macs(layer: nn.MultiheadAttention, query: Tensor, key: Tensor, value: Tensor) -> int:
    """Projections of query, key, value and result, and the two products of attention; torch calls no layer there."""
    width = int(layer.embed_dim)
    queries, keys = query.numel() // width, key.numel() // key.shape[-1]
    return width * (2 * queries * width + key.numel() + value.numel() + 2 * queries * keys)
