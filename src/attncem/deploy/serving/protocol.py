"""The Open Inference Protocol v2 and its binary extension: bytes of a request → z, logits → bytes of an answer.

A request is a JSON object, alone or followed by the raw bytes of its tensors: the header
``Inference-Header-Content-Length`` says where the JSON ends. Numbers are little-endian and row major.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attncem.deploy.serving.model import VERSION, ServedModel
from attncem.deploy.serving.refusal import Refusal, bad

HEADER = "Inference-Header-Content-Length"
HEAD = 1 << 16
"""Bytes of a request besides its numbers, at most."""
_SHORT = 1024
"""Bytes of a JSON that is kept; one without binary numbers, which may hold z, is not."""
_DIGITS = 32
"""Bytes of one number in JSON, at most, with its separators; float64 in Python's shortest form has 25."""
_OFFERED = ("classification", "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size")
"""Extensions of Triton that change what an answer means and that this server does not have."""


@dataclass(frozen=True)
class Asked:
    """A request: z [B, …], its id, its parameters, and whether the answer is binary."""

    z: NDArray[np.float32]
    id: str | None
    parameters: Mapping[str, Any]
    binary: bool


@dataclass(frozen=True)
class Answer:
    """The bytes of an answer and the headers that belong to them."""

    body: bytes
    headers: Mapping[str, str]


def largest_body(model: ServedModel, rows: int, *, binary: bool) -> int:
    """Bytes of the largest request that can be right."""
    return HEAD + rows * model.count * (4 if binary else _DIGITS)


@dataclass(frozen=True)
class _Head:
    """The JSON of a request: its tensor, its id, its parameters, and whether the answer is binary."""

    tensor: dict[str, Any]
    id: str | None
    parameters: Mapping[str, Any]
    binary: bool


def parse(body: bytes, length: str | None, model: ServedModel, rows: int) -> Asked:
    """The request in a body; Refusal 400 where it is not one for this model."""
    head, rest = _parts(body, length)
    return Asked(_numbers(head.tensor, rest, model, rows), head.id, head.parameters, head.binary)


def _head(text: bytes) -> _Head:
    head = _object(text)
    parameters = _mapping(head, "parameters")
    identifier = head.get("id")
    if identifier is not None and not isinstance(identifier, str):
        raise bad("id must be a text")
    return _Head(_only_input(head), identifier, parameters, _binary_answer(head, parameters))


_usual_head = lru_cache(64)(_head)
"""The JSON before binary numbers: a client sends the same again and again."""


def _parts(body: bytes, length: str | None) -> tuple[_Head, memoryview]:
    """The JSON, and the bytes that follow it."""
    if length is None:
        return _head(body), memoryview(b"")
    if not re.fullmatch(r"[0-9]{1,12}", length) or int(length) > len(body):
        raise bad(f"{HEADER} must be the number of bytes of the JSON, at most {len(body)}")
    if int(length) > HEAD:
        raise bad(f"the JSON before binary numbers has at most {HEAD} bytes")
    text = body[: int(length)]
    rest = memoryview(body)[int(length) :]
    return (_usual_head if rest and len(text) <= _SHORT else _head)(text), rest


def _object(text: bytes) -> dict[str, Any]:
    try:
        head = _DECODER.decode(text.decode())
    except RecursionError:
        raise bad("the JSON is nested too deeply") from None
    except ValueError:
        raise bad("the request is not JSON") from None
    if not isinstance(head, dict):
        raise bad("the request must be a JSON object")
    return head


def _no_constant(word: str) -> None:
    raise bad(f"{word} is no number in JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def _mapping(holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = holder.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise bad(f"{key} must be an object")
    return value


def _only_input(head: Mapping[str, Any]) -> dict[str, Any]:
    inputs = head.get("inputs")
    if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
        raise bad("inputs must be a list of one tensor, z")
    if inputs[0].get("name") != "z":
        raise bad("the only input of this model has the name z")
    if inputs[0].get("datatype") != "FP32":
        raise bad("z has the datatype FP32")
    return inputs[0]


def _binary_answer(head: Mapping[str, Any], parameters: Mapping[str, Any]) -> bool:
    """Whether logits come back as bytes; the output's parameter goes before that of the request."""
    default = parameters.get("binary_data_output", False)
    outputs = head.get("outputs")
    asked = [_output(it) for it in _listed(outputs)]
    binary = asked[0].get("binary_data", default) if asked else default
    if not isinstance(binary, bool):
        raise bad("binary_data and binary_data_output must be true or false")
    return binary


def _listed(outputs: Any) -> Sequence[Any]:
    if outputs is None or outputs == []:
        return ()
    if not isinstance(outputs, list) or len(outputs) != 1:
        raise bad("outputs must be a list of one tensor, logits")
    return outputs


def _output(one: Any) -> Mapping[str, Any]:
    if not isinstance(one, dict) or one.get("name") != "logits":
        raise bad("the only output of this model has the name logits")
    parameters = _mapping(one, "parameters")
    _refuse_extensions(parameters)
    return parameters


def _refuse_extensions(parameters: Mapping[str, Any]) -> None:
    for name in _OFFERED:
        if name in parameters:
            raise bad(f"this server does not have the extension {name}")


def _numbers(tensor: Mapping[str, Any], rest: memoryview, model: ServedModel, rows: int) -> NDArray[np.float32]:
    """The input in the shape that the request names, which must be the model's."""
    shape = tensor.get("shape")
    if not isinstance(shape, list) or not all(type(side) is int for side in shape):
        raise bad("shape must be a list of whole numbers")
    if shape[1:] != list(model.shape) or not shape or not 1 <= shape[0] <= rows:
        raise bad(f"the shape of z is [B, {', '.join(map(str, model.shape))}], B from 1 to {rows}")
    parameters = _mapping(tensor, "parameters")
    _refuse_extensions(parameters)
    size = parameters.get("binary_data_size")
    if size is None:
        return _from_json(tensor, rest, shape)
    if "data" in tensor:
        raise bad("z has both data and binary_data_size")
    return _from_bytes(size, rest, shape)


def _from_bytes(size: Any, rest: memoryview, shape: list[int]) -> NDArray[np.float32]:
    expected = 4 * int(np.prod(shape))
    if type(size) is not int or size != expected or len(rest) != expected:
        raise bad(
            f"z of this shape has {expected} bytes; binary_data_size and the bytes after the JSON must be as many"
        )
    return np.frombuffer(rest, "<f4").astype(np.float32).reshape(shape)  # a copy, aligned, without the body


def _from_json(tensor: Mapping[str, Any], rest: memoryview, shape: list[int]) -> NDArray[np.float32]:
    data = tensor.get("data")
    if len(rest):
        raise bad("bytes follow the JSON, but no tensor has binary_data_size")
    if not isinstance(data, list):
        raise bad("data must be a list of numbers")
    flat = _flat(data, shape)
    if len(flat) != int(np.prod(shape)):
        raise bad("data does not have as many numbers as its shape says")
    if not set(map(type, flat)) <= {int, float}:
        raise bad("data must hold numbers only")
    try:
        with np.errstate(over="ignore"):  # an infinite number is refused later
            return np.array(flat, np.float64).astype(np.float32).reshape(shape)
    except OverflowError:
        raise bad("data holds a number that float32 cannot hold") from None


def _flat(data: list[Any], shape: list[int]) -> list[Any]:
    """The numbers of a flat list, or of one that is nested as its shape says."""
    if list not in set(map(type, data)):
        return data
    nested = np.empty(0, object)
    with suppress(ValueError):  # lists of different lengths
        nested = np.array(data, dtype=object)
    if nested.shape != tuple(shape):
        raise bad("data is not nested as its shape says")
    return nested.ravel().tolist()


def check(asked: Asked, model: ServedModel) -> None:
    """Refusal 400 where the request is meant for another model, or no client of this one can have made its z."""
    for name, value in (("fingerprint", model.fingerprint), ("identity", model.identity)):
        if asked.parameters.get(name, value) != value:
            raise bad(f"the request is for another model: its {name} is not that of {model.name}, {value}")
    if problem := model.possible.problem(asked.z):
        raise bad(problem)


def render(logits: NDArray[np.float32], asked: Asked, model: ServedModel) -> Answer:
    """The answer to a request."""
    if not np.isfinite(logits).all():
        raise Refusal(500, "the model computed numbers that are not finite")
    if not asked.binary:
        head = _answer_head(model.name, logits.shape, asked.id)
        head["outputs"][0]["data"] = logits.ravel().tolist()
        return Answer(json.dumps(head).encode(), {"Content-Type": "application/json"})
    text = (_usual_binary_head if asked.id is None else _binary_head)(model.name, logits.shape, asked.id)
    raw = np.ascontiguousarray(logits, "<f4").tobytes()
    return Answer(text + raw, {"Content-Type": "application/octet-stream", HEADER: str(len(text))})


def _answer_head(name: str, shape: tuple[int, ...], identifier: str | None) -> dict[str, Any]:
    """The JSON of an answer without its numbers."""
    output = {"name": "logits", "datatype": "FP32", "shape": list(shape)}
    head: dict[str, Any] = {"model_name": name, "model_version": VERSION, "outputs": [output]}
    return head if identifier is None else {**head, "id": identifier}


def _binary_head(name: str, shape: tuple[int, ...], identifier: str | None) -> bytes:
    """The JSON before binary logits."""
    head = _answer_head(name, shape, identifier)
    head["outputs"][0]["parameters"] = {"binary_data_size": 4 * prod(shape)}
    return json.dumps(head).encode()


_usual_binary_head = lru_cache(64)(_binary_head)
"""It is the same for all answers without an id."""
