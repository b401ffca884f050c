"""A bundle as a model of a Triton model repository: NAME/config.pbtxt and NAME/1/model.onnx. KServe serves the same.

Triton checks type and shape of z and nothing else: neither its range, its grid nor the fingerprint of a request. It
counts no budget. docs/serve.md compares the two servers.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from attncem.base.types import ConfigError
from attncem.deploy.serving.model import VERSION, ServedModel
from attncem.records.files import explain_os_error, partial_path, sync_folder, write_atomic
from attncem_edge.manifest import SERVER, read_file

LARGEST_BATCH = 32


def write_triton(bundle: str | Path, repository: str | Path, *, batch: int = LARGEST_BATCH) -> Path:
    """Write the server half of a bundle into a model repository; returns the model's folder, which must be new."""
    model = ServedModel(bundle)  # checks manifest, hashes and shapes
    folder = Path(repository) / model.name
    if folder.exists():
        raise ConfigError(f"{folder} exists already: choose another repository, or remove it")
    graph = read_file(bundle, model.manifest, SERVER)
    with explain_os_error(folder, "choose another repository"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = partial_path(folder.parent)
        try:
            (temporary / VERSION).mkdir(parents=True)
            write_atomic(temporary / VERSION / "model.onnx", graph)
            write_atomic(temporary / "config.pbtxt", triton_config(model, batch).encode())
            temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        sync_folder(folder.parent)
    return folder


def triton_config(model: ServedModel, batch: int) -> str:
    """The content of config.pbtxt; the first side of every tensor is the batch."""
    facts = {"fingerprint": model.fingerprint, "identity": model.identity}
    return "\n".join(
        [
            f"name: {json.dumps(model.name)}",
            'platform: "onnxruntime_onnx"',
            f"max_batch_size: {batch}",
            f'input [{{ name: "z" data_type: TYPE_FP32 dims: {_sides(model.shape)} }}]',
            f'output [{{ name: "logits" data_type: TYPE_FP32 dims: {_sides(model.answer_shape)} }}]',
            "dynamic_batching { }",
            *(_parameter(key, value) for key, value in facts.items()),
            "",
        ]
    )


def _sides(shape: Sequence[int]) -> str:
    return f"[ {', '.join(map(str, shape))} ]"


def _parameter(key: str, value: str) -> str:
    return f"parameters {{ key: {json.dumps(key)} value {{ string_value: {json.dumps(value)} }} }}"
