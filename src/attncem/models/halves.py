"""Halves of a run trained with a user's modules, stored as ONNX: the command line does not have their classes.

onnx/epoch-00007/client-without-noise.onnx, server.onnx   of the best and the last checkpoint

Their hashes are in the manifest. Runs of attncem 0.2 call the first file client.onnx.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from attncem.base.types import AttncemError, RunError
from attncem.config.options.encoder import EncoderLimits
from attncem.models.front_ends import front_end_of
from attncem.models.onnx_export import export_onnx, with_warning
from attncem.models.onnx_network import OnnxNetwork
from attncem.models.onnx_process import OnnxProcess
from attncem.models.split import SplitModel
from attncem.records.checkpoints import Checkpoint, fitting
from attncem.records.files import hash_file, write_atomic
from attncem.records.runs import RunDirectory, explain_os_error

FOLDER = "onnx"
_CLIENT, _SERVER = "client-without-noise.onnx", "server.onnx"
_OLD_CLIENT = "client.onnx"
"""The client's name in runs of attncem 0.2."""
_WARNING = (
    "This client has neither front end nor channel: what it gives has no noise. Never send that to a server. "
    "attncem export RUN --out FOLDER writes a bundle, and attncem-edge applies its channel before anything is sent."
)
_ADVICE = "Pass your networks as modules=(encoder, server): these have no limit"


def keep_halves(run: RunDirectory, model: SplitModel, x: Tensor) -> str:
    """Write both halves of the best and the last checkpoint as ONNX; returns the reason if that is impossible.

    ``x`` are at least two images in [0, 1]. The run is complete without them: a failure here does not harm it.
    """
    try:
        names = dict.fromkeys(run.checkpoint_name(which) for which in ("best", "last"))
        kept = {name: _keep(run, run.load(name, optimizer=False), model, x) for name in names}
    except AttncemError as error:
        problem = str(error)
    except Exception as error:  # a user's modules may do anything
        problem = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    else:
        run.update_manifest(onnx=kept)
        return ""
    run.update_manifest(onnx_problem=problem)
    return problem


def _keep(run: RunDirectory, checkpoint: Checkpoint, model: SplitModel, x: Tensor) -> dict[str, str]:
    """The halves of one checkpoint; the hash of each file by its name, the hash of their weights, and a seal."""
    client, server = (copy.deepcopy(half).cpu().eval() for half in (model.encoder, model.server) if half is not None)
    checkpoint.restore("client", client)
    checkpoint.restore("server", server)
    front_end, own = _parts(client, run)
    with torch.no_grad():
        seen = front_end(x.cpu())
        z = own(seen)
    files = {_CLIENT: with_warning(export_onnx(own, seen), _WARNING), _SERVER: export_onnx(server, z)}
    folder = run.path / FOLDER / checkpoint.name
    with explain_os_error(run.path):
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            write_atomic(folder / name, data)
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    encoder = checkpoint.facts["sha256"]["client.safetensors"]
    kept = {**hashes, "client.safetensors": encoder}
    mark = run.seal(encoder, onnx=kept)
    return {**kept, "seal": mark} if mark else kept


def _parts(client: nn.Module, run: RunDirectory) -> tuple[nn.Module, nn.Module]:
    """The modules that `build_model` puts before a user's encoder, and that encoder."""
    if run.config.model.front_end.name == "none":
        return nn.Identity(), client
    assert isinstance(client, nn.Sequential)
    return client[0], client[1]


def restore_front_end(checkpoint: Checkpoint, client: nn.Module) -> None:
    """Load the learned weights of the front end before a half stored as ONNX, frozen: it gets no gradient."""
    front_end = front_end_of(client)
    if front_end is None:
        return
    first = {name: weight for name, weight in checkpoint.weights["client"].items() if name.startswith("0.")}
    with fitting(f"{checkpoint.folder} does not fit the run"):
        front_end.load_state_dict({name.removeprefix("0."): weight for name, weight in first.items()})
    front_end.requires_grad_(False)


def kept_halves(run: RunDirectory, checkpoint: Checkpoint, threads: int) -> tuple[OnnxNetwork, OnnxNetwork]:
    """The stored halves of a checkpoint; RunError gives the reason if there are none, and a remedy."""
    manifest = run.manifest
    again = "pass them again as modules=(encoder, server)"
    if problem := manifest.get("onnx_problem"):
        raise RunError(f"{run.path} was trained with your own networks, not kept as ONNX ({problem}): {again}")
    kept: Mapping[str, Mapping[str, str]] = manifest.get("onnx") or {}
    if not kept:
        raise RunError(f"{run.path} was trained with your own networks, not kept as ONNX: {again}")
    if checkpoint.name not in kept:
        raise RunError(
            f"{run.path} was trained with your own networks, of which those of {', '.join(kept)} are kept as ONNX and "
            f"not those of {checkpoint.name}: choose one of these with --weights, or {again}"
        )
    expected, folder = kept[checkpoint.name], run.path / FOLDER / checkpoint.name
    if expected.get("client.safetensors") != checkpoint.facts["sha256"]["client.safetensors"]:
        raise RunError(f"{folder} was made of other weights than those of {checkpoint.folder}: {again}")
    names = (_OLD_CLIENT if _OLD_CLIENT in expected else _CLIENT, _SERVER)
    client, server = (_read(folder / name, expected.get(name), threads) for name in names)
    return client, server


def _read(file: Path, expected: str | None, threads: int) -> OnnxNetwork:
    if not file.is_file() or hash_file(file) != expected:
        what = "damaged: its SHA-256 is not the recorded one" if file.is_file() else "missing"
        raise RunError(f"{file} is {what}; pass your networks again as modules=(encoder, server)")
    process = OnnxProcess(EncoderLimits(), threads, advice=_ADVICE)
    return OnnxNetwork(process.read(file), process)
