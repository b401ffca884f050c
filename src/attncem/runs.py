"""RunDirectory: one folder per run. Writes are atomic, nothing is overwritten, no pickle is executed.

config.yaml               the resolved configuration
manifest.json             status, split, versions, sizes
metrics.jsonl             what was measured while training; byte-identical after a resume
timing.jsonl              wall-clock seconds per epoch
checkpoints/epoch-00007/  client, server and surrogate weights (safetensors), optimizer.pt, checkpoint.json
best.json                 which checkpoint is the best by validation accuracy
audits/                   one JSON per audit
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from attncem.types import SCHEMA_VERSION, RunError

if TYPE_CHECKING:
    from torch import Tensor

State = Mapping[str, "Mapping[str, Tensor]"]
"""Weights of each part: client, server, surrogate."""
_KEPT = 2
"""How many of the newest checkpoints stay, beside the best."""
_RESUME = "what was saved before is intact: mend this and go on with --resume"


@dataclass(frozen=True)
class Checkpoint:
    """One loaded checkpoint: weights by part, optimiser state, and facts (epoch, step, offsets, best)."""

    name: str
    weights: dict[str, dict[str, Tensor]]
    optimizer: dict[str, Any]
    facts: dict[str, Any]


class RunDirectory:
    """A run's folder. Make one with `create`, reach an existing one with `open`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: str | Path, *, config_yaml: str, manifest: Mapping[str, Any]) -> RunDirectory:
        """Make a new run folder; refuses one that exists and is not empty."""
        folder = Path(path)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RunError(f"{folder} exists already and is left as it is; choose another --out, or --resume it")
        run = cls(folder)
        with _explain_os_error(folder, "no run was made"):
            (folder / "checkpoints").mkdir(parents=True)
            try:
                (folder / "audits").mkdir()
                write_atomic(folder / "config.yaml", config_yaml.encode())
                write_json(folder / "manifest.json", {"status": "running", **manifest})
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)  # half a run could be neither resumed nor made again
                raise
        return run

    @classmethod
    def open(cls, path: str | Path | RunDirectory) -> RunDirectory:
        """An existing run folder; RunError when it is none."""
        if isinstance(path, RunDirectory):
            return path
        folder = Path(path)
        for name in ("config.yaml", "manifest.json"):
            if not (folder / name).is_file():
                raise RunError(f"{folder} is not a run folder: {name} is missing")
        return cls(folder)

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"RunDirectory({str(self.path)!r})"

    @property
    def config_yaml(self) -> str:
        """Text of the resolved configuration."""
        return (self.path / "config.yaml").read_text(encoding="utf-8")

    @property
    def manifest(self) -> dict[str, Any]:
        """Status, split, versions and sizes of the run."""
        return read_json(self.path / "manifest.json")

    def update_manifest(self, **values: Any) -> None:
        """Change some entries of the manifest."""
        self.write("manifest.json", {**self.manifest, **values})

    def write(self, name: str, data: Mapping[str, Any]) -> None:
        """Write one more JSON file of the run."""
        with _explain_os_error(self.path):
            write_json(self.path / name, data)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run for one process; a second one is refused. Freed by the system if the process dies."""
        try:
            import fcntl
        except ImportError:  # no such locks on this platform
            yield
            return
        with _explain_os_error(self.path):
            handle = (self.path / ".lock").open("w")
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RunError(f"{self.path} is being trained by another process") from None
            yield

    # metrics

    def log(self, record: Mapping[str, Any], file: str = "metrics.jsonl") -> None:
        """Append one line of JSON."""
        line = json.dumps({"schema_version": SCHEMA_VERSION, **record}, allow_nan=False) + "\n"
        with _explain_os_error(self.path), (self.path / file).open("a") as handle:
            handle.write(line)

    def offsets(self) -> dict[str, int]:
        """Length of each log in bytes, to cut it back to on resume."""
        files = (self.path / name for name in ("metrics.jsonl", "timing.jsonl"))
        return {file.name: file.stat().st_size if file.exists() else 0 for file in files}

    def cut_back(self, offsets: Mapping[str, int]) -> None:
        """Shorten the logs to what a checkpoint knew of; a log that lost its end keeps its whole lines."""
        for name, size in offsets.items():
            file = self.path / name
            if file.exists():
                os.truncate(file, file.read_bytes()[:size].rfind(b"\n") + 1)

    def records(self, file: str = "metrics.jsonl") -> list[dict[str, Any]]:
        """All complete lines of a log."""
        path = self.path / file
        if not path.exists():
            return []
        found: list[dict[str, Any]] = []
        for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
            try:
                found.append(json.loads(line))
            except ValueError as error:
                raise RunError(f"{path} is damaged: line {number}: {error}") from error
        return found

    # checkpoints

    def save(self, weights: State, optimizer: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
        """Write a checkpoint beside the others, then make it visible by one rename, then drop old ones."""
        name = f"epoch-{facts['epoch']:05d}"
        folder = self.path / "checkpoints"
        with _explain_os_error(self.path):
            partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder))
            try:
                _write_checkpoint(partial, weights, optimizer, facts)
                _replace_folder(partial, folder / name)
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                raise
            best = facts["best"]["checkpoint"]
            write_json(self.path / "best.json", {"checkpoint": best})
        self._prune(newest=name, keep=best)
        return name

    def _prune(self, newest: str, keep: str) -> None:
        """Drop all but the newest and the best. Later ones (damaged: the run was resumed below them) are replaced."""
        for name in [name for name in self.checkpoints() if name <= newest][:-_KEPT]:
            if name != keep:
                shutil.rmtree(self.path / "checkpoints" / name, ignore_errors=True)

    def checkpoints(self) -> list[str]:
        """Names of the complete checkpoints, oldest first."""
        return sorted(p.name for p in (self.path / "checkpoints").glob("epoch-*"))

    def load(self, which: str = "best", *, optimizer: bool = True) -> Checkpoint:
        """A checkpoint by name, or `best` or `last`; every file is checked against its SHA-256."""
        return _read_checkpoint(self.path / "checkpoints" / self.checkpoint_name(which), optimizer=optimizer)

    def checkpoint_name(self, which: str) -> str:
        """Resolve `best` and `last`."""
        names = self.checkpoints()
        if not names:
            raise RunError(f"{self.path} has no checkpoint yet: it stopped before its first epoch ended")
        if which == "last":
            return names[-1]
        name = str(read_json(self.path / "best.json")["checkpoint"]) if which == "best" else which
        if name not in names:
            raise RunError(f"{self.path} has no checkpoint {name}; it has {', '.join(names)}")
        return name

    def load_newest_intact(self) -> tuple[Checkpoint | None, list[str]]:
        """The newest checkpoint whose files are whole, and what was wrong with newer ones."""
        problems: list[str] = []
        for leftover in (self.path / "checkpoints").glob(".partial-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        for name in reversed(self.checkpoints()):
            try:
                return self.load(name), problems
            except RunError as error:
                problems.append(str(error))
        return None, problems

    # audits

    def save_audit(self, name: str, data: Mapping[str, Any]) -> Path:
        """Write an audit under a name that is still free: NAME.json, NAME-2.json and so on."""
        folder = self.path / "audits"
        with _explain_os_error(self.path):
            folder.mkdir(exist_ok=True)
            files = (folder / (f"{name}.json" if number == 1 else f"{name}-{number}.json") for number in count(1))
            return next(file for file in files if write_new_json(file, data))


class UnwrittenRun(RunDirectory):
    """The run as a process sees it that only helps to train: nothing is read or written here."""

    def __init__(self) -> None:
        super().__init__(Path())

    @property
    def manifest(self) -> dict[str, Any]:
        """Nothing is known here."""
        return {}

    def write(self, name: str, data: Mapping[str, Any]) -> None:
        """Write nothing."""

    def log(self, record: Mapping[str, Any], file: str = "metrics.jsonl") -> None:
        """Log nothing."""

    def offsets(self) -> dict[str, int]:
        """There are no logs."""
        return {}

    def cut_back(self, offsets: Mapping[str, int]) -> None:
        """There are no logs."""

    def records(self, file: str = "metrics.jsonl") -> list[dict[str, Any]]:
        """There are no logs."""
        return []

    def save(self, weights: State, optimizer: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
        """Save nothing."""
        return ""

    def load_newest_intact(self) -> tuple[Checkpoint | None, list[str]]:
        """The first process reads it."""
        return None, []


def list_runs(folder: str | Path) -> list[RunDirectory]:
    """The run folders right inside a folder, by name."""
    root = Path(folder)
    if not root.is_dir():
        return []
    return [RunDirectory(p) for p in sorted(root.iterdir()) if (p / "manifest.json").is_file()]


def describe_runs(folder: str | Path) -> list[tuple[str, ...]]:
    """One row per run: folder, status, surrogate, weight, epoch, validation accuracy, number of audits."""
    rows: list[tuple[str, ...]] = []
    for run in list_runs(folder):
        try:
            rows.append(_describe(run))
        except (RunError, OSError, yaml.YAMLError, LookupError, TypeError, ValueError):
            rows.append((str(run.path), "damaged", "", "", "", "", ""))
    return rows


def _describe(run: RunDirectory) -> tuple[str, ...]:
    manifest, config = run.manifest, yaml.safe_load(run.config_yaml)
    last = next((r for r in reversed(run.records()) if r["kind"] == "validation"), None)
    return (
        str(run.path),
        _status(run, manifest),
        str(config["surrogate"]["name"]),
        f"{config['training']['penalty_weight']:g}",
        f"{last['epoch'] if last else 0} of {config['training']['epochs']}",
        f"{100 * last['accuracy']:.1f} %" if last else "",
        str(len(list((run.path / "audits").glob("*.json")))),
    )


def _status(run: RunDirectory, manifest: Mapping[str, Any]) -> str:
    """The manifest's word; a run called running that no process holds was killed."""
    status = str(manifest["status"])
    if status != "running":
        return status
    try:
        with run.locked():
            return "interrupted"
    except RunError:
        return status


def free_path(root: str | Path, name: str) -> Path:
    """root/name-001, or the next number that no folder has yet."""
    number = 1
    while (path := Path(root) / f"{name}-{number:03d}").exists():
        number += 1
    return path


def hash_file(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old one or the whole new one, never a part."""
    descriptor, temporary = tempfile.mkstemp(prefix=".partial-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_new(path: Path, data: bytes) -> None:
    """Write a file that is not there yet; RunError where one is, or where nothing can be written."""
    with _explain_os_error(path, "choose another folder"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as handle:
            handle.write(data)


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write a JSON object with its schema_version, atomically."""
    text = json.dumps({"schema_version": SCHEMA_VERSION, **data}, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomic(path, text.encode())


def write_new_json(path: Path, data: Mapping[str, Any]) -> bool:
    """Write a JSON object where none is, whoever else tries the same at this instant; False: the place is taken."""
    claim = path.with_name(f".{path.name}.claim")
    try:
        claim.touch(exist_ok=False)
    except FileExistsError:
        return False
    try:
        if path.exists():
            return False
        write_json(path, data)
        return True
    finally:
        claim.unlink(missing_ok=True)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; RunError names a file that is missing, damaged or from a newer version."""
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise RunError(f"{path} is missing") from None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise RunError(f"{path} is damaged: {error}") from error
    if not isinstance(data, dict):
        raise RunError(f"{path} is damaged: not a JSON object")
    version = data.get("schema_version", 0)
    if not isinstance(version, int):
        raise RunError(f"{path} is damaged: schema_version is {version!r}")
    if version > SCHEMA_VERSION:
        raise RunError(f"{path} was written by a newer attncem (schema {version}): upgrade to read it")
    return data


def _write_checkpoint(folder: Path, weights: State, optimizer: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    import torch
    from safetensors.torch import save

    files: dict[str, bytes] = {}
    for part, tensors in weights.items():
        # clones: safetensors refuses tied weights, which share their memory
        copies = {key: t.detach().cpu().clone(memory_format=torch.contiguous_format) for key, t in tensors.items()}
        files[f"{part}.safetensors"] = save(copies)
    buffer = io.BytesIO()
    torch.save(dict(optimizer), buffer)
    files["optimizer.pt"] = buffer.getvalue()
    for name, data in files.items():
        write_atomic(folder / name, data)
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    write_json(folder / "checkpoint.json", {**facts, "sha256": hashes})


def _read_checkpoint(folder: Path, *, optimizer: bool) -> Checkpoint:
    facts = read_json(folder / "checkpoint.json")
    hashes = facts.get("sha256")
    if not isinstance(hashes, dict) or "optimizer.pt" not in hashes:
        raise RunError(f"{folder / 'checkpoint.json'} is damaged: it does not list the checkpoint's files")
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


def _replace_folder(source: Path, target: Path) -> None:
    """Rename a folder into place; an older one of that name (a resumed epoch) makes way."""
    if target.exists():
        shutil.rmtree(target)
    source.rename(target)


@contextlib.contextmanager
def _explain_os_error(path: Path, advice: str = _RESUME) -> Iterator[None]:
    """Turn a failed write (full disk, no permission) into an error for people."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunError(f"cannot write to {path}: {reason}; {advice}") from error
