"""One bundle in a server: its files checked, its session, its metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attncem.base.types import ConfigError
from attncem.deploy.serving.libraries import needed
from attncem.deploy.serving.possible import possible_numbers
from attncem_edge.errors import BundleError
from attncem_edge.manifest import CARD, SERVER, Manifest, read_file, read_manifest

VERSION = "1"
"""The version of every model: another model has another fingerprint, and is another bundle."""
_LARGEST_CARD = 4 << 20


class ServedModel:
    """A bundle whose files are those that were exported. ``run`` computes logits [B, …] of z [B, …]."""

    def __init__(self, folder: str | Path, threads: int = 1) -> None:
        self.folder = Path(folder)
        if (self.folder / "config.yaml").is_file():
            raise BundleError(f"{folder} is a run and no bundle; attncem export {folder} --out bundle makes one")
        self.manifest: Manifest = read_manifest(folder)
        self.name, self.fingerprint = self.manifest.name, self.manifest.fingerprint
        self.identity = self.manifest.identity  # computed once: every request is compared with it
        self.shape = tuple(self.manifest.feature.shape)
        self.count = prod(self.shape)
        self.possible = possible_numbers(self.manifest)
        self.card = _card(self.folder, self.manifest)
        self._session = _session(self.folder / SERVER, read_file(folder, self.manifest, SERVER), threads)
        self.answer_shape = _checked_shapes(self.folder / SERVER, self._session, self.shape)

    def run(self, z: NDArray[np.float32]) -> NDArray[np.float32]:
        """The logits of z; needs no lock."""
        return np.asarray(self._session.run(["logits"], {"z": z})[0], np.float32)

    def metadata(self) -> dict[str, Any]:
        """The answer to GET v2/models/NAME."""
        return {
            "name": self.name,
            "versions": [VERSION],
            "platform": "onnx_onnxv1",
            "inputs": [{"name": "z", "datatype": "FP32", "shape": [-1, *self.shape]}],
            "outputs": [{"name": "logits", "datatype": "FP32", "shape": [-1, *self.answer_shape]}],
            "parameters": {
                "fingerprint": self.fingerprint,
                "identity": self.identity,
                "card": self.card,
            },
        }


def open_models(folders: Sequence[str | Path], threads: int = 1) -> dict[str, ServedModel]:
    """The models of bundles by name; ConfigError where two have the same name."""
    models: dict[str, ServedModel] = {}
    for folder in folders:
        model = ServedModel(folder, threads)
        if (other := models.get(model.name)) is not None:
            raise ConfigError(f"{other.folder} and {folder} have the same name {model.name}: serve them on two ports")
        models[model.name] = model
    return models


def _card(folder: Path, manifest: Manifest) -> Mapping[str, Any] | None:
    """The bundle's card, if it is the exported one; None: it has none."""
    if CARD not in manifest.files:
        return None
    text = read_file(folder, manifest, CARD)
    if len(text) > _LARGEST_CARD:
        raise BundleError(f"{folder / CARD} has more than {_LARGEST_CARD} bytes: it is no card")
    try:
        card: Mapping[str, Any] = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{folder / CARD} is no JSON: {error}") from error
    return card


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no number in JSON")


def _session(file: Path, graph: bytes, threads: int) -> Any:
    """A session on the CPU. The graph comes as bytes, so it names no other file; no operator library is loaded."""
    runtime = needed("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.enable_mem_pattern = False  # batches of many sizes would each keep a plan
    options.log_severity_level = 4
    try:
        return runtime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no common base class
        raise BundleError(f"{file} cannot be run by onnxruntime: {' '.join(str(error).split())[:400]}") from error


def _checked_shapes(file: Path, session: Any, shape: Sequence[int]) -> list[int]:
    """The shape of one answer, −1 where it varies; BundleError where the graph does not take the z of its manifest."""
    inputs, outputs = session.get_inputs(), session.get_outputs()
    names = [it.name for it in inputs], [it.name for it in outputs]
    if names != (["z"], ["logits"]):
        raise BundleError(f"{file} must take z and give logits; it takes {names[0]} and gives {names[1]}")
    taken = list(inputs[0].shape)
    if inputs[0].type != "tensor(float)" or taken[1:] != list(shape) or isinstance(taken[0], int):
        raise BundleError(
            f"{file} takes z of shape {taken}, {inputs[0].type}; its manifest says [any, {', '.join(map(str, shape))}]"
        )
    return [side if isinstance(side, int) else -1 for side in outputs[0].shape[1:]]
