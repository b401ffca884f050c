"""Small bundles for tests of the server: ONNX files made by hand, without torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from attncem_edge.manifest import FeatureFacts, ImageFacts, Manifest

GAUSSIAN = {"name": "gaussian", "noise_std": 0.1, "noise": "fresh"}
SHAPE = (4, 3, 3)
CLASSES = 5


def weights(shape: Sequence[int] = SHAPE, classes: int = CLASSES, seed: int = 0) -> np.ndarray[Any, Any]:
    """The matrix of the server half: logits = z.flatten(1) @ weights."""
    numbers = np.random.default_rng(seed).normal(size=(int(np.prod(shape)), classes))
    return numbers.astype(np.float32)


def server_half(matrix: np.ndarray[Any, Any], shape: Sequence[int] = SHAPE, *, taken: str = "z") -> bytes:
    """An ONNX file that multiplies z with a matrix."""
    nodes = [
        helper.make_node("Flatten", [taken], ["flat"], axis=1),
        helper.make_node("MatMul", ["flat", "w"], ["logits"]),
    ]
    inputs = [helper.make_tensor_value_info(taken, TensorProto.FLOAT, ["batch", *shape])]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", matrix.shape[1]])]
    graph = helper.make_graph(nodes, "server", inputs, outputs, [numpy_helper.from_array(matrix, "w")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(made)
    return bytes(made.SerializeToString())


def make_bundle(folder: Path, *, name: str = "demo", graph: bytes | None = None, **changes: Any) -> Path:
    """A bundle whose server half is a matrix, or a given graph; ``changes`` are fields of its manifest."""
    folder.mkdir(parents=True)
    files = {"server.onnx": graph or server_half(weights()), "card.json": json.dumps({"use": "tests"}).encode()}
    for file, content in files.items():
        (folder / file).write_bytes(content)
    facts: dict[str, Any] = {
        "name": name,
        "fingerprint": "ab" * 32,
        "image": ImageFacts(1, 8, 8),
        "feature": FeatureFacts(list(SHAPE), -1.0, 1.0),
        "labels": [str(number) for number in range(CLASSES)],
        "channel": [GAUSSIAN],
        "files": {file: hashlib.sha256(content).hexdigest() for file, content in files.items()},
    }
    manifest = Manifest(**{**facts, **changes})
    (folder / "manifest.json").write_text(manifest.to_text(), encoding="utf-8")
    return folder
