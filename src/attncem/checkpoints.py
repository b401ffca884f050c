"""Checkpoints: weights as safetensors, the optimiser's state, and facts with the hash of every file.

Nothing in a file is executed. Torch is imported when tensors are read or written.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attncem.files import hash_file, read_json, write_atomic, write_json
from attncem.types import RunError

if TYPE_CHECKING:
    from torch import Tensor

State = Mapping[str, "Mapping[str, Tensor]"]
"""Weights of each part: client, server, surrogate."""


@dataclass(frozen=True)
class Checkpoint:
    """One loaded checkpoint: weights by part, optimiser state, and facts (epoch, step, offsets, best)."""

    name: str
    weights: dict[str, dict[str, Tensor]]
    optimizer: dict[str, Any]
    facts: dict[str, Any]


def write_checkpoint(folder: Path, weights: State, optimizer: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Write every part of a checkpoint, and last the facts with their hashes."""
    import torch

    files: dict[str, bytes] = {}
    for part, tensors in weights.items():
        files[f"{part}.safetensors"] = pack_tensors(tensors)
    buffer = io.BytesIO()
    torch.save(dict(optimizer), buffer)
    files["optimizer.pt"] = buffer.getvalue()
    for name, data in files.items():
        write_atomic(folder / name, data)
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    write_json(folder / "checkpoint.json", {**facts, "sha256": hashes})


def pack_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors as the bytes of a .safetensors file."""
    import torch
    from safetensors.torch import save

    # clones: safetensors refuses tied weights, which share their memory
    return save({key: t.detach().cpu().clone(memory_format=torch.contiguous_format) for key, t in tensors.items()})


def read_checkpoint(folder: Path, *, optimizer: bool) -> Checkpoint:
    """Read a checkpoint whose every file has its recorded hash; RunError names one that has not."""
    facts, hashes = read_json(folder / "checkpoint.json"), hashes_of(folder)
    for name, expected in hashes.items():
        file = folder / name
        if not file.is_file():
            raise RunError(f"{file} is missing: the checkpoint is incomplete")
        if hash_file(file) != expected:
            raise RunError(f"{file} is damaged: its SHA-256 is not the recorded {expected[:12]}…")
    state = read_tensors(folder / "optimizer.pt") if optimizer else {}
    files = [name for name in hashes if name != "optimizer.pt"]
    weights = {name.removesuffix(".safetensors"): read_tensors(folder / name) for name in files}
    return Checkpoint(folder.name, weights, state, facts)


def hashes_of(folder: Path) -> dict[str, str]:
    """The recorded hash of every file of a checkpoint."""
    hashes = read_json(folder / "checkpoint.json").get("sha256")
    if not isinstance(hashes, dict) or not {"optimizer.pt", "client.safetensors"} <= hashes.keys():
        raise RunError(f"{folder / 'checkpoint.json'} is damaged: it does not list the checkpoint's files")
    return hashes


def read_tensors(file: Path) -> dict[str, Any]:
    """A .safetensors file, or a .pt file read without executing what is in it."""
    import torch
    from safetensors.torch import load_file

    try:
        if file.suffix == ".safetensors":
            return dict(load_file(file))
        return dict(torch.load(file, weights_only=True, map_location="cpu"))
    except Exception as error:  # a file that fits its hash but is none of ours fails in any way
        first_line = str(error).partition("\n")[0]
        raise RunError(f"{file} cannot be read: {first_line}") from error
