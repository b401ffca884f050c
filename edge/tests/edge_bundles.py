"""Bundles for tests, made without torch: a small client with or without a head, and its server."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from attncem_edge.manifest import CLIENT, NAME, SERVER, DecisionFacts, FeatureFacts, ImageFacts, Manifest

PRINT = "ab" * 32
SIDE, FEATURES, CLASSES = 8, 12, 3
LABELS = ["cat", "dog", "tree"]
GAUSSIAN = {"name": "gaussian", "noise": "fresh", "noise_std": 0.1}
KEYED = {**GAUSSIAN, "noise": "keyed"}
CODES = {"name": "quantise", "bits": 2, "low": 0.0, "high": 1.0}


def _weights(name: str, *shape: int) -> Any:
    seed = sum(name.encode())
    return numpy_helper.from_array(np.random.default_rng(seed).normal(size=shape).astype(np.float32) / 2, name)


def _saved(nodes: list[Any], source: tuple[str, list[Any]], targets: dict[str, int], weights: list[Any]) -> bytes:
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", count]) for name, count in targets.items()
    ]
    source_value = helper.make_tensor_value_info(source[0], TensorProto.FLOAT, ["batch", *source[1]])
    graph = helper.make_graph(nodes, "half", [source_value], values, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model)
    data: bytes = model.SerializeToString()
    return data


def client_graph(*, head: bool) -> bytes:
    nodes = [
        helper.make_node("Flatten", ["image"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["wide"]),
        helper.make_node("Sigmoid", ["wide"], ["z"]),
        *([helper.make_node("MatMul", ["z", "v"], ["answers"])] if head else []),
    ]
    weights = [_weights("w", SIDE * SIDE, FEATURES), *([_weights("v", FEATURES, CLASSES)] if head else [])]
    return _saved(nodes, ("image", [1, SIDE, SIDE]), {"z": FEATURES, **({"answers": CLASSES} if head else {})}, weights)


def server_graph() -> bytes:
    nodes = [helper.make_node("MatMul", ["z", "u"], ["logits"])]
    return _saved(nodes, ("z", [FEATURES]), {"logits": CLASSES}, [_weights("u", FEATURES, CLASSES)])


def make_bundle(folder: Path, *channel: dict[str, Any], threshold: float | None = None, **others: Any) -> Manifest:
    """A bundle whose client sends through this channel; with a threshold it answers itself above it."""
    folder.mkdir(parents=True)
    files = {CLIENT: client_graph(head=threshold is not None), SERVER: server_graph()}
    for name, data in files.items():
        (folder / name).write_bytes(data)
    facts: dict[str, Any] = {
        "name": "small",
        "fingerprint": PRINT,
        "image": ImageFacts(1, SIDE, SIDE),
        "feature": FeatureFacts([FEATURES], 0.0, 1.0),
        "labels": LABELS,
        "channel": list(channel or (GAUSSIAN,)),
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
        "decision": None if threshold is None else DecisionFacts(threshold, 0.5),
        **others,
    }
    manifest = Manifest(**facts)
    (folder / NAME).write_text(manifest.to_text())
    return manifest


def pixels(seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (1, SIDE, SIDE), dtype=np.uint8)


def photo(folder: Path, seed: int = 0) -> Path:
    file = folder / f"photo{seed}.png"
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (30, 40, 3), dtype=np.uint8)).save(file)
    return file
