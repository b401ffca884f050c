"""Both halves of a model as ONNX graphs: image → z (and the head's answers), z → logits. Neither channel nor noise."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attncem.base.types import RunError
from attncem.models.cost import sides
from attncem.models.onnx_export import onnx_of
from attncem.models.onnx_file import need
from attncem.models.onnx_network import OnnxNetwork
from attncem.models.split import SplitModel, passes_gradients
from attncem_edge.manifest import ANSWERS, FEATURE, IMAGE, LOGITS

_WARNING = "z as this graph gives it has no noise: never send it. attncem-edge applies the channel of manifest.json."
_VIEWS = ("Identity", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze")
_RANGES: dict[str, tuple[float | None, float | None]] = {
    "Sigmoid": (0.0, 1.0),
    "HardSigmoid": (0.0, 1.0),
    "Softmax": (0.0, 1.0),
    "Tanh": (-1.0, 1.0),
    "Relu": (0.0, None),
}
"""Lowest and highest output of operators, whatever their input."""


class Halves(NamedTuple):
    """The files of a bundle, and the limits of z that follow from the client's last operator."""

    client: bytes
    server: bytes
    low: float | None
    high: float | None


class _Piece(NamedTuple):
    """A graph with one input and one output, and the names that these get."""

    graph: Any
    source: str
    target: str


@torch.no_grad()
def halves_of(model: SplitModel, x: Tensor) -> Halves:
    """Both graphs of a model; ``x`` are at least two images. RunError names what cannot be exported."""
    alone = copy.deepcopy(model).cpu().eval()
    x = x[:2].cpu()
    z = alone.encode(x)
    client = _client(alone, x, z)
    assert alone.server is not None
    server = _saved(_assembled([*_pieces(alone.server, z, FEATURE, LOGITS)], z, [LOGITS]))
    return Halves(_saved(client, _WARNING), server, *range_of(client))


def _client(model: SplitModel, x: Tensor, z: Tensor) -> Any:
    """The client with its head, if it has one. What another library runs is joined with what torch exports."""
    outputs = [FEATURE, *([ANSWERS] if model.head is not None else [])]
    if passes_gradients(model.encoder):
        return _parsed(onnx_of(sides(model)[0], x, IMAGE, *outputs))
    pieces = [*_pieces(model.encoder, x, IMAGE, FEATURE)]
    if model.head is not None:
        assert model.head.layers is None, "a head behind a network that another library runs reads z"
        pieces += _pieces(model.head.classifier, z, FEATURE, ANSWERS)
    return _assembled(pieces, x, outputs)


def _pieces(module: nn.Module, x: Tensor, source: str, target: str) -> list[_Piece]:
    """A module as graphs one after the other: torch exports its own, a network from a file keeps its graph."""
    if isinstance(module, OnnxNetwork):
        return [_Piece(_parsed(module.file.graph), source, target)]
    if passes_gradients(module):
        return [_Piece(_parsed(onnx_of(module, x)), source, target)]
    assert isinstance(module, nn.Sequential)
    pieces, parts = list[_Piece](), list(module)
    for number, part in enumerate(parts, 1):
        after = target if number == len(parts) else f"{target}/{number}"
        pieces += _pieces(part, x, source, after)
        x, source = part(x), after
    return pieces


def _assembled(pieces: Sequence[_Piece], x: Tensor, outputs: Sequence[str]) -> Any:
    """One graph of several, each behind a prefix of its own; RunError where their versions differ."""
    onnx = need("onnx")
    parts = [onnx.compose.add_prefix(piece.graph, f"part{place}/") for place, piece in enumerate(pieces)]
    imports = {(it.domain, it.version) for part in parts for it in part.opset_import}
    if len({domain for domain, _ in imports}) < len(imports):
        raise RunError(
            "the stored halves were exported with another version of ONNX's operators than this one: in Python, pass "
            "your networks again as modules=(encoder, server)"
        )
    nodes = []
    for part, piece in zip(parts, pieces, strict=True):
        nodes += [_same(piece.source, part.graph.input[0].name), *part.graph.node]
        nodes.append(_same(part.graph.output[0].name, piece.target))
    first = onnx.helper.make_tensor_value_info(pieces[0].source, onnx.TensorProto.FLOAT, ["batch", *x.shape[1:]])
    ends = [_renamed(parts[_place(pieces, name)].graph.output[0], name) for name in outputs]
    graph = onnx.helper.make_graph(
        nodes, "half", [first], ends, [it for part in parts for it in part.graph.initializer]
    )
    functions = [it for part in parts for it in part.functions]
    opsets = [onnx.helper.make_opsetid(*it) for it in sorted(imports)]
    return onnx.helper.make_model(
        graph, opset_imports=opsets, functions=functions, ir_version=max(it.ir_version for it in parts)
    )


def _same(source: str, target: str) -> Any:
    return need("onnx").helper.make_node("Identity", [source], [target])


def _place(pieces: Sequence[_Piece], target: str) -> int:
    return next(place for place, piece in enumerate(pieces) if piece.target == target)


def _renamed(value: Any, name: str) -> Any:
    """The type of an output under another name, with a free batch."""
    copied = type(value)()
    copied.CopyFrom(value)
    copied.name = name
    copied.type.tensor_type.shape.dim[0].dim_param = "batch"
    return copied


def _parsed(graph: bytes) -> Any:
    return need("onnx").load_model_from_string(graph)


def _saved(model: Any, warning: str = "") -> bytes:
    """The bytes of a checked graph; ``warning`` is shown by programs that open the file."""
    model.doc_string = warning
    need("onnx").checker.check_model(model)
    data: bytes = model.SerializeToString(deterministic=True)
    return data


# the limits of z


def range_of(model: Any) -> tuple[float | None, float | None]:
    """Limits that no z exceeds, from the operator that makes it; None where there is none, or it is not known."""
    made = {name: node for node in model.graph.node for name in node.output}
    node = made.get(FEATURE)
    while node is not None and node.op_type in _VIEWS:
        node = made.get(node.input[0])
    if node is None or node.domain not in ("", "ai.onnx"):
        return None, None
    if node.op_type == "Clip":
        return _limit(model, node, 1), _limit(model, node, 2)
    return _RANGES.get(node.op_type, (None, None))


def _limit(model: Any, node: Any, place: int) -> float | None:
    """A limit of Clip, where it is a constant."""
    name = node.input[place] if place < len(node.input) else ""
    constants = {it.name: it for it in model.graph.initializer}
    constants |= {it.output[0]: it.attribute[0].t for it in model.graph.node if it.op_type == "Constant"}
    return float(need("onnx").numpy_helper.to_array(constants[name])) if name in constants else None
