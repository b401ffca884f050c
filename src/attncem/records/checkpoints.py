"""Checkpoints: weights as safetensors, the optimiser's state, and facts with the hash of every file.

Nothing in a file is executed. Torch is imported when tensors are read or written. A checkpoint is a folder that appears
and disappears by one rename: any other remains of a kill are called .partial-… or have no checkpoint.json.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import shutil
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attncem.base.record import read
from attncem.base.types import RunError
from attncem.records.files import PARTIAL, hash_file, partial_path, read_json, sync_folder, write_atomic, write_json
from attncem.records.fingerprints import release_of
from attncem.records.run_files import CheckpointFacts
from attncem.records.sizes import check_unpacked

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

State = Mapping[str, "Mapping[str, Tensor]"]
"""Weights of each part: client, server, surrogate."""
Sealer = Callable[..., str]
"""Encoder hash, and by name what else is sealed → the checkpoint's seal, empty without a key."""
FACTS = "checkpoint.json"
_WORDS = 40
"""Largest number of words of torch's message on a mismatch that an error quotes."""


@dataclass(frozen=True)
class Checkpoint:
    """One loaded checkpoint: weights by part, optimiser state, and facts (epoch, step, offsets, best)."""

    name: str
    weights: dict[str, dict[str, Tensor]]
    optimizer: dict[str, Any]
    facts: dict[str, Any]
    folder: Path

    def restore(self, part: str, module: nn.Module) -> None:
        """Load the weights of a part (client, server, surrogate) into a module; RunError where they do not fit."""
        with fitting(f"{self.folder} does not fit the run"):
            module.load_state_dict(self.weights[part])


@contextlib.contextmanager
def fitting(what: str) -> Iterator[None]:
    """Turn the mismatch of a valid file with this run into an error for people."""
    try:
        yield
    except (LookupError, TypeError, ValueError, RuntimeError) as error:
        said = f"{error} is missing" if isinstance(error, KeyError) else " ".join(str(error).split()[:_WORDS])
        raise RunError(f"{what}: {said}") from error


# one checkpoint


def checkpoint_called(epoch: int) -> str:
    """The name of an epoch's checkpoint."""
    return f"epoch-{epoch:05d}"


def write_checkpoint(
    folder: Path, weights: State, optimizer: Mapping[str, Any], facts: Mapping[str, Any], sealer: Sealer
) -> None:
    """Write every part of a checkpoint, and last the facts with their hashes and the seal."""
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
    write_sealed(folder, {**facts, "sha256": hashes}, sealer)


def write_sealed(folder: Path, facts: Mapping[str, Any], sealer: Sealer) -> None:
    """Write the facts of a checkpoint with its seal; without a key they have none."""
    decides = {"release": release} if (release := release_of(facts)) else {}
    mark = sealer(facts["sha256"]["client.safetensors"], **decides)
    rest = {name: value for name, value in facts.items() if name != "seal"}
    write_json(folder / FACTS, {**rest, "seal": mark} if mark else rest)


def pack_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors as the bytes of a .safetensors file."""
    import torch
    from safetensors.torch import save

    # clones: safetensors refuses tied weights, which share their memory
    return save({key: t.detach().cpu().clone(memory_format=torch.contiguous_format) for key, t in tensors.items()})


def read_checkpoint(folder: Path, *, optimizer: bool) -> Checkpoint:
    """Read a checkpoint and check every file against its recorded hash; RunError names a file that differs."""
    facts = read_facts(folder)
    for name, expected in facts["sha256"].items():
        _check_hash(folder / name, expected)
    state = read_tensors(folder / "optimizer.pt") if optimizer else {}
    files = [name for name in facts["sha256"] if name != "optimizer.pt"]
    weights = {name.removesuffix(".safetensors"): read_tensors(folder / name) for name in files}
    return Checkpoint(folder.name, weights, state, facts, folder)


def _check_hash(file: Path, expected: str) -> None:
    if not file.is_file():
        raise RunError(f"{file} is missing: the checkpoint is incomplete")
    if hash_file(file) != expected:
        raise RunError(f"{file} is damaged: its SHA-256 is not the recorded {expected[:12]}…")


def read_facts(folder: Path) -> dict[str, Any]:
    """The facts of a checkpoint; RunError where they are damaged or belong to another epoch."""
    file = folder / FACTS
    data = read_json(file)
    facts = read(CheckpointFacts, data, file)
    if not {"optimizer.pt", "client.safetensors"} <= facts.sha256.keys():
        raise RunError(f"{file} is damaged: sha256 does not list the checkpoint's files")
    if strange := next((name for name in facts.sha256 if not _is_plain(name)), None):
        raise RunError(f"{file} is damaged: sha256 lists {strange!r}, which is not a file of a checkpoint")
    if folder.name != checkpoint_called(facts.epoch):
        raise RunError(f"{file} is of epoch {facts.epoch}, which is not that of its folder: it was moved or renamed")
    return data


def _is_plain(name: str) -> bool:
    return name == "optimizer.pt" or (name == Path(name).name and name.endswith(".safetensors"))


def read_tensors(file: Path) -> dict[str, Any]:
    """A .safetensors file, or a .pt file read without executing its contents."""
    import torch
    from safetensors.torch import load_file

    try:
        if file.suffix == ".safetensors":
            return dict(load_file(file))
        if zipfile.is_zipfile(file):  # torch packs nothing: a file that grows was made to fill the memory
            check_unpacked(file, file, file.stat().st_size)
        return dict(torch.load(file, weights_only=True, map_location="cpu"))
    except RunError:
        raise
    except Exception as error:  # a file with the right hash and foreign contents can fail in any way
        first_line = str(error).partition("\n")[0]
        raise RunError(f"{file} cannot be read: {first_line}") from error


# checks before saving


@dataclass(frozen=True)
class Broken:
    """A tensor that is not finite: its name, and nan or inf."""

    name: str
    value: str


def broken_tensor(weights: State, optimizer: Mapping[str, Any], endless: Collection[str] = ()) -> Broken | None:
    """The first tensor that holds NaN or infinity; tensors named in `endless` may be infinite, but never NaN."""
    parts = ((f"{part}.{name}", tensor) for part, tensors in weights.items() for name, tensor in tensors.items())
    for name, tensor in (*parts, *_tensors_in(optimizer, "optimizer")):
        if bool(tensor.isnan().any()):
            return Broken(name, "nan")
        if name not in endless and bool(tensor.isinf().any()):
            return Broken(name, "inf")
    return None


def endless_buffers(modules: Mapping[str, nn.Module]) -> frozenset[str]:
    """The buffers of a new model that are infinite on purpose, such as the −inf of a risk that is not measured yet.

    A buffer that is finite before the first step must stay finite.
    """
    named = ((f"{part}.{name}", buffer) for part, module in modules.items() for name, buffer in module.named_buffers())
    return frozenset(name for name, buffer in named if bool(buffer.isinf().any()))


def _tensors_in(value: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    """The tensors of an optimiser's state, each with its path."""
    import torch

    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, Mapping | list):
        pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, item in pairs:
            yield from _tensors_in(item, f"{name}.{key}")


# checks before loading an optimiser


def check_optimizers(optimizers: Mapping[str, Optimizer], states: Mapping[str, Any]) -> None:
    """ValueError unless these states belong to the optimisers: torch accepts anything and fails in the first step."""
    for name, optimizer in optimizers.items():
        given, own = states[name], optimizer.state_dict()
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        if not isinstance(given, Mapping) or not _alike(given["param_groups"], own["param_groups"]):
            raise ValueError(f"its optimiser {name} has other settings or parameters")
        if not isinstance(given["state"], Mapping) or not all(
            _is_state_of(parameters, place, entries) for place, entries in given["state"].items()
        ):
            raise ValueError(f"its optimiser {name} has state for an unknown parameter")


def _alike(given: Any, own: Any) -> bool:
    """Whether settings have the same kind; keys on one side only come from another version."""
    if isinstance(own, Mapping):
        return isinstance(given, Mapping) and all(_alike(given[key], own[key]) for key in own if key in given)
    if isinstance(own, list | tuple):
        same = isinstance(given, list | tuple) and len(given) == len(own)
        return same and all(_alike(*pair) for pair in zip(given, own, strict=True))
    if own is None or isinstance(own, bool):
        return given is None or isinstance(given, bool)
    return _is_number(given) and (not isinstance(own, int) or given == own)


def _is_number(value: Any) -> bool:
    import torch

    if isinstance(value, torch.Tensor):
        return value.ndim == 0 and bool(value.isfinite())
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf


def _is_state_of(parameters: Sequence[Tensor], place: Any, entries: Any) -> bool:
    """Whether these are the running means and counts of the parameter at this index."""
    import torch

    if not isinstance(place, int) or not 0 <= place < len(parameters) or not isinstance(entries, Mapping):
        return False
    shape = parameters[place].shape
    return all(
        _is_number(value) if key == "step" else isinstance(value, torch.Tensor) and value.shape == shape
        for key, value in entries.items()
        if value is not None
    )


# the folder of all checkpoints


def checkpoint_names(folder: Path) -> list[str]:
    """Names of the complete checkpoints, oldest first."""
    return sorted(file.parent.name for file in folder.glob(f"epoch-*/{FACTS}"))


def bests_named(folder: Path) -> set[str]:
    """The best checkpoint by each checkpoint's facts; several names, as each checkpoint knew only the earlier ones."""
    found = set[str]()
    for name in checkpoint_names(folder):
        with contextlib.suppress(RunError):
            best = read_facts(folder / name).get("best")
            found |= {best["checkpoint"]} if best else set()
    return found


def newest_intact(folder: Path, endless: Collection[str]) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that is complete and finite, and the problems of newer ones.

    `endless` names the tensors that may be infinite.
    """
    problems: list[str] = []
    for name in reversed(checkpoint_names(folder)):
        try:
            found = read_checkpoint(folder / name, optimizer=True)
        except RunError as error:
            problems.append(str(error))
            continue
        broken = broken_tensor(found.weights, found.optimizer, endless)
        if broken is None:
            return found, problems
        problems.append(f"{folder / name} holds {broken.value} in {broken.name}")
    return None, problems


def last_finite(folder: Path, endless: Collection[str]) -> str:
    """The last checkpoint with only finite numbers, in words."""
    found, _ = newest_intact(folder, endless)
    if found is None:
        return "no checkpoint with finite weights was saved"
    return f"the last checkpoint with finite weights is {found.name}"


def add_checkpoint(
    folder: Path, weights: State, optimizer: Mapping[str, Any], facts: Mapping[str, Any], sealer: Sealer
) -> str:
    """Write a checkpoint under a temporary name, then rename it; it replaces an older one of the same epoch."""
    name, partial = checkpoint_called(facts["epoch"]), partial_path(folder)
    try:
        partial.mkdir()
        write_checkpoint(partial, weights, optimizer, facts, sealer)
        if (folder / name).exists():
            _drop(folder / name)
        partial.rename(folder / name)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    sync_folder(folder)
    return name


def drop_checkpoints(folder: Path, names: Collection[str]) -> None:
    """Remove checkpoints that are no longer needed; one that cannot be removed stays."""
    for name in names:
        with contextlib.suppress(OSError):
            _drop(folder / name)


def _drop(checkpoint: Path) -> None:
    """Hide a checkpoint by one rename, then remove it, so a kill leaves no partial checkpoint under its name."""
    hidden = partial_path(checkpoint.parent)
    checkpoint.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def clear_leftovers(folder: Path) -> list[str]:
    """Remove the remains of killed processes; return a sentence for each that had the name of a checkpoint."""
    for leftover in folder.glob(f"{PARTIAL}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    halves = [half for half in sorted(folder.glob("epoch-*")) if not (half / FACTS).exists()]
    drop_checkpoints(folder, [half.name for half in halves])
    return [f"{half} was an incomplete checkpoint ({FACTS} was missing) and was removed" for half in halves]
