"""Cost of one query: multiply-accumulates and parameters of client and server, the client's peak memory, bytes sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from attncem.models.activations import ActivationTrace
from attncem.models.client_head import HeadedClient
from attncem.models.front_ends import FrontEnd
from attncem.models.packing import bytes_of_release
from attncem.models.pruning import compact
from attncem.models.sparse_coding import SparseCoding
from attncem.models.split import SplitModel, count_parameters, evaluation, passes_gradients
from attncem.models.vit import SelfAttention


@dataclass(frozen=True)
class Cost:
    """Cost of one image. The server's numbers are 0 if the model has no server half, or if it runs on the client.

    The numbers of a client that another library runs are None: they cannot be counted. ``client_activation_bytes`` is
    the peak memory of its activations (`models/activations.py`). The milliseconds are measured, not counted: on one
    thread of the CPU ``client_timed_on``, by torch and by onnxruntime (`training/client_time.py`); None: not measured.
    """

    client_macs: int | None
    server_macs: int
    client_parameters: int | None
    server_parameters: int
    bytes_per_query: int
    client_activation_bytes: int | None = None
    client_milliseconds: float | None = None
    client_milliseconds_onnx: float | None = None
    client_timed_on: str | None = None


def count_cost(model: SplitModel, image_shape: tuple[int, int, int]) -> Cost:
    """Send one blank image through both halves in evaluation mode and count.

    It counts multiply-accumulates of convolutions, linear layers, attention and the front end's filters; normalisation,
    activations, pooling, biases and the channel's noise are left out, as is customary. So are element-wise products,
    such as those of squeeze-excitation: up to 4 % of the count of a lean client. Pruned channels of the client do not
    count.
    """
    parameter = next(model.parameters(), None)
    device = parameter.device if parameter is not None else torch.device("cpu")
    with evaluation(model), torch.no_grad():
        client, server = sides(model)
        images = torch.zeros(1, *image_shape, device=device)
        with ActivationTrace(images) as trace:
            client_macs, computed = _count(client, images)
            z = computed[0] if isinstance(computed, tuple) else computed
        server_macs = _count(server, z)[0] if server is not None else 0
    counted = passes_gradients(client)
    return Cost(
        client_macs=client_macs if counted else None,
        server_macs=server_macs,
        client_parameters=count_parameters(client) if counted else None,
        server_parameters=count_parameters(server),
        bytes_per_query=0 if model.on_device else bytes_of_release(model.channel, z.numel()),
        client_activation_bytes=trace.peak(z) if counted else None,
    )


def sides(model: SplitModel) -> tuple[nn.Module, nn.Module | None]:
    """What the client computes, without pruned channels, and what the server computes: None if nothing."""
    client = compact(model.encoder)
    if model.on_device and model.server is not None:
        return nn.Sequential(client, model.server), None
    return client if model.head is None else HeadedClient(client, model.head), model.server


def _count(module: nn.Module, x: Tensor) -> tuple[int, Any]:
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
        out = module(x)
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
