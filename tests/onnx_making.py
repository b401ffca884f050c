"""Small ONNX files for tests, made by hand with onnx's own helpers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SHAPE: tuple[int | str, ...] = ("batch", 1, 28, 28)
WEIGHT = np.random.default_rng(0).normal(size=(3, 1, 7, 7)).astype(np.float32) / 7


def value(name: str, shape: Sequence[int | str] | None, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def conv(source: str = "x", output: str = "z") -> Any:
    """A convolution with WEIGHT in strides of 7: [B, 1, 28, 28] to [B, 3, 4, 4]."""
    return helper.make_node("Conv", [source, "w"], [output], strides=[7, 7])


def model(
    nodes: Sequence[Any],
    *,
    inputs: Sequence[Any] = (value("x", SHAPE),),
    outputs: Sequence[str] = ("z",),
    weights: Sequence[Any] = (numpy_helper.from_array(WEIGHT, "w"),),
    domains: Sequence[str] = (),
) -> Any:
    """A model of these nodes; the types of its outputs are left for others to infer."""
    given = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(list(nodes), "made", list(inputs), given, list(weights))
    opsets = [helper.make_opsetid("", 17), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def write(path: Path, made: Any) -> Path:
    path.write_bytes(made.SerializeToString())
    return path


def external(path: Path, location: str, **entries: str) -> Path:
    """A model whose weights lie in another file."""
    made = model([conv()])
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, entry in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=entry)
    return write(path, made)
