"""ONNX files that nobody meant: each is tried as an encoder or refused with a clear error, soon, in little memory."""

from __future__ import annotations

import random
import re
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from google.protobuf.message import Message
from onnx import TensorProto, helper, numpy_helper

from attncem.base.types import AttncemError
from attncem.config.options.encoder import EncoderLimits, EncoderOptions
from attncem.models.onnx_file import read_onnx
from attncem.models.onnx_network import onnx_encoder
from attncem.models.onnx_process import OnnxProcess
from attncem.models.trial import try_encoder
from fuzzing import Tally, amount, fuzz_in_places, start
from onnx_making import WEIGHT, conv, deep, endless, external, huge, model, swelling, value

QUICK, MANY = 40, 3000
PARENT = 1_500_000
"""kB of memory that this process may take beside what it had: six features of the largest size, a few times."""
X = torch.rand(6, 1, 28, 28, generator=torch.Generator().manual_seed(0))
NUMBERS = (0, 1, -1, 2, 7, 27, 255, 2**16, 2**31 - 1, -(2**31), 2**40, 2**62, -(2**63), 2**63 - 1)
FLOATS = (0.0, -0.0, 1e-45, 2e34, 3.4e38, float("inf"), float("-inf"), float("nan"), -1.0)
WORDS = (
    *("", "x", "y", "z", "w", "none", "\0", "a\0b", "../w.bin", "/etc/passwd", "w.bin", "é画", "a" * 5000, "\x1b[31m"),
    *(
        "com.microsoft",
        "ai.onnx.ml",
        "ai.onnx",
        "com.ms.internal.nhwc",
        "local",
        "*/_ORT_MEM_ADDR_/*",
        "-1",
        "9" * 5000,
    ),
)
OPERATORS = (
    *("Loop", "If", "Scan", "ConstantOfShape", "Expand", "Tile", "Range", "Resize", "RandomNormal", "RandomNormalLike"),
    *("SequenceEmpty", "SequenceConstruct", "StringNormalizer", "Einsum", "Cast", "CastLike", "Gather", "GatherND"),
    *("Reshape", "Squeeze", "Pad", "Conv", "ConvTranspose", "MatMul", "Gemm", "Softmax", "TopK", "NonZero", "Unique"),
    *(
        "Shape",
        "Size",
        "Constant",
        "Identity",
        "Relu",
        "Exp",
        "Div",
        "Mod",
        "BitShift",
        "QuantizeLinear",
        "LSTM",
        "Split",
    ),
    *("OneHot", "CumSum", "DFT", "MaxUnpool", "RoiAlign", "Compress", "EyeLike", "Optional", "FusedConv", "Steal"),
)


# valid files to begin with


def branched() -> Any:
    plain = helper.make_graph([helper.make_node("Identity", ["y"], ["b"])], "p", [], [value("b", None)])
    other = helper.make_graph([helper.make_node("Neg", ["y"], ["c"])], "o", [], [value("c", None)])
    weights = [numpy_helper.from_array(WEIGHT, "w"), numpy_helper.from_array(np.array(True), "yes")]
    branch = helper.make_node("If", ["yes"], ["z"], then_branch=plain, else_branch=other)
    return model([conv(output="y"), branch], weights=weights)


def layered() -> Any:
    weights = [numpy_helper.from_array(WEIGHT, "w"), numpy_helper.from_array(np.ones((48, 5), np.float32), "m")]
    weights.append(numpy_helper.from_array(np.array([0, 48]), "to"))
    nodes = [conv(output="y"), helper.make_node("Relu", ["y"], ["r"]), helper.make_node("Reshape", ["r", "to"], ["f"])]
    return model([*nodes, helper.make_node("MatMul", ["f", "m"], ["z"])], weights=weights)


def pixels() -> Any:
    node = helper.make_node("Cast", ["x"], ["z"], to=TensorProto.FLOAT)
    return model([node], inputs=[value("x", [2, 1, 28, 28], TensorProto.UINT8)], weights=())


def beside(place: Path) -> Any:
    (place / "w.bin").write_bytes(WEIGHT.tobytes())
    return type(model([conv()])).FromString(external(place / "a.onnx", "w.bin", offset="0").read_bytes())


def valid(rng: random.Random, place: Path) -> Any:
    made: tuple[Callable[[], Any], ...] = (
        *(lambda: model([conv()]), branched, layered, pixels, lambda: deep(2), lambda: beside(place)),
    )
    return rng.choice(made)()


# what becomes of them


def changed_bytes(rng: random.Random, raw: bytes) -> bytes:
    """The bytes with a few turned, cut, put in or repeated."""
    data = bytearray(raw)
    for _ in range(rng.randint(1, 4)):
        a, b = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        b = min(b, a + 40)
        how = rng.randrange(5)
        if how == 0 and data:
            data[a % len(data)] = rng.randrange(256)
        elif how == 1:
            del data[a:b]
        elif how == 2:
            data[a:a] = rng.randbytes(rng.randrange(8))
        elif how == 3:
            data[a:a] = data[a:b]
        else:
            data[a:b] = bytes(rng.choice((0, 255)) for _ in range(b - a))
    return bytes(data)


def messages(message: Message) -> list[Any]:
    """The message and all messages in it."""
    inner = [message]
    for field, content in message.ListFields():
        if field.message_type is not None:
            for part in (content,) if isinstance(content, Message) else content:
                inner += messages(part)
    return inner


def strange(rng: random.Random, field: Any) -> Any:
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return rng.choice(FLOATS)
    if field.cpp_type == field.CPPTYPE_STRING:
        word = rng.choice(OPERATORS if field.name == "op_type" else WORDS)
        return word.encode() if field.type == field.TYPE_BYTES else word
    if field.cpp_type == field.CPPTYPE_ENUM:
        return rng.randrange(25)
    return rng.choice(NUMBERS)


def change(rng: random.Random, made: Any) -> None:
    """Set, add, drop or repeat one field of one message at any depth."""
    message = rng.choice(messages(made))
    field = rng.choice(message.DESCRIPTOR.fields)
    content = getattr(message, field.name)
    try:
        if field.message_type is not None:
            change_inner(rng, message, field, content)
        elif isinstance(content, int | float | str | bytes):
            setattr(message, field.name, strange(rng, field))
        elif len(content) and rng.random() < 0.5:
            content[rng.randrange(len(content))] = strange(rng, field)
        else:
            content.extend([strange(rng, field)] * rng.choice((1, 1, 2, 30)))
    except (ValueError, TypeError):  # a number that the field cannot hold
        pass


def change_inner(rng: random.Random, message: Any, field: Any, content: Any) -> None:
    if isinstance(content, Message):
        message.ClearField(field.name) if rng.random() < 0.3 else content.SetInParent()
    elif len(content) and rng.random() < 0.4:
        del content[rng.randrange(len(content))]
    elif len(content):
        part = type(content[0]).FromString(rng.choice(content).SerializeToString())
        content.extend([part] * rng.choice((1, 1, 2, 20)))
    else:
        content.add()


def hostile(rng: random.Random) -> bytes:
    """A file that is correct and asks for too much."""
    made = rng.choice((endless, lambda: deep(rng.randint(10, 60)), lambda: huge(2 ** rng.randint(20, 62)), None))
    return swelling(2 ** rng.randint(10, 23)) if made is None else bytes(made().SerializeToString())


def content_of(rng: random.Random, place: Path) -> bytes:
    made, how = valid(rng, place), rng.random()
    if how < 0.02:
        return hostile(rng)
    if how < 0.35:
        return changed_bytes(rng, made.SerializeToString())
    for _ in range(rng.randint(1, 5)):
        change(rng, made)
    return bytes(made.SerializeToString())


# tries


def tried(file: Path, process: OnnxProcess) -> None:
    """What an audit does first with a file."""
    encoder = onnx_encoder(process.read(file), EncoderOptions(), (1, 28, 28), process)
    try_encoder(encoder, X)


def clearly(attempt: Callable[[], None]) -> None:
    """No error of the process may be the name of an exception that nobody expected."""
    try:
        attempt()
    except AttncemError as error:
        assert not re.search(r"a\.onnx: \w+(Error|Exception): ", str(error)), error
        raise


def fuzz(count: int, seed: int, root: Path) -> None:
    reading, trying = Tally("ONNX files read here"), Tally("ONNX files tried as encoders", seconds=10)
    process = OnnxProcess(EncoderLimits.model_construct(seconds=1.0, memory=0.5))

    def one(number: int, rng: random.Random, place: Path) -> None:
        place.mkdir()
        file, content = place / "a.onnx", content_of(rng, place)
        file.write_bytes(content)
        if len(content) < 100_000:
            reading.survives(lambda: read_onnx(file), number, AttncemError)
        trying.survives(lambda: clearly(lambda: tried(file, process)), number, AttncemError)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    fuzz_in_places(trying, one, count, seed, root)
    reading.check()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < PARENT


def test_a_few_wrong_onnx_files(tmp_path: Path) -> None:
    fuzz(QUICK, 33, tmp_path)


@pytest.mark.slow
def test_many_wrong_onnx_files(tmp_path: Path) -> None:
    fuzz(amount(MANY), start(34), tmp_path)
