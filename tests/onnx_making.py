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


# files that ask for too much


def endless() -> Any:
    """A loop of 2^62 rounds."""
    nodes = [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Identity", ["a"], ["b"])]
    sources = [value("round", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("a", None)]
    body = helper.make_graph(nodes, "body", sources, [value("on", [], TensorProto.BOOL), value("b", None)])
    weights = [numpy_helper.from_array(WEIGHT, "w"), numpy_helper.from_array(np.array(2**62), "rounds")]
    weights.append(numpy_helper.from_array(np.array(True), "yes"))
    loop = helper.make_node("Loop", ["rounds", "yes", "y"], ["z"], body=body)
    return model([conv(output="y"), loop], weights=weights)


def deep(levels: int) -> Any:
    """Functions that call one another twice: 2^levels nodes once they are inlined."""
    made = model([conv(output="y"), helper.make_node("F0", ["y"], ["z"], domain="local")], domains=["local"])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    for level in range(levels):
        called, domain = (f"F{level + 1}", "local") if level + 1 < levels else ("Neg", "")
        nodes = [helper.make_node(called, [a], [b], domain=domain) for a, b in (("a", "m"), ("m", "b"))]
        made.functions.append(helper.make_function("local", f"F{level}", ["a"], ["b"], nodes, opsets))
    return made


def huge(count: int = 2**30) -> Any:
    """A constant of so many numbers: 4 GiB."""
    nodes = [
        helper.make_node("ConstantOfShape", ["count"], ["c"]),
        helper.make_node("ReduceSum", ["c"], ["sum"], keepdims=0),
        conv(output="y"),
        helper.make_node("Add", ["y", "sum"], ["z"]),
    ]
    return model(
        nodes, weights=[numpy_helper.from_array(WEIGHT, "w"), numpy_helper.from_array(np.array([count]), "count")]
    )


def swelling(count: int) -> bytes:
    """A file with so many empty nodes, of two bytes each, which take some hundred times that in memory."""
    nodes = b"\x0a\x00" * count
    length, size = b"", len(nodes)
    while size >= 128:
        length, size = length + bytes([size % 128 + 128]), size // 128
    return bytes(model([conv()]).SerializeToString()) + b"\x3a" + length + bytes([size]) + nodes
