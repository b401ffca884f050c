"""RunDirectory: one folder per run. Writes are atomic, nothing is overwritten, no pickle is executed.

config.yaml               the resolved configuration; its hash stands in the manifest
manifest.json             status, facts of the data, split, versions, sizes
noise.key                 the key of keyed noise, where the channel has it: 32 bytes, readable by the owner alone
metrics.jsonl             what was measured while training; byte-identical after a resume
timing.jsonl              wall-clock seconds per epoch
checkpoints/epoch-00007/  client, server and surrogate weights (safetensors), optimizer.pt, checkpoint.json
best.json                 which checkpoint is the best by validation accuracy
audits/ID/                an audit: audit.json, and ROW.json, ROW.npz, pictures for each row
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attncem.checkpoints import Checkpoint, State, hashes_of, read_checkpoint, write_checkpoint
from attncem.config.load import load_config
from attncem.config.run import RunConfig
from attncem.config.yaml_text import parse_yaml
from attncem.files import explain_os_error as explain
from attncem.files import locked, read_json, write_atomic, write_json
from attncem.fingerprints import fingerprint
from attncem.types import SCHEMA_VERSION, ConfigError, RunError

if TYPE_CHECKING:
    pass

_KEPT = 2
"""How many of the newest checkpoints stay, beside the best."""
explain_os_error = partial(explain, advice="what was saved before is intact: mend this and go on with --resume")
"""Where a run is being written: a failed write as an error for people."""
KEY_FILE = "noise.key"


class RunDirectory:
    """A run's folder. Make one with `create`, reach an existing one with `open`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(
        cls, path: str | Path, *, config_yaml: str, manifest: Mapping[str, Any], key: bytes | None = None
    ) -> RunDirectory:
        """Make a new run folder; refuses one that exists and is not empty. `key` is that of keyed noise."""
        folder = Path(path)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RunError(f"{folder} exists already and is left as it is; choose another --out, or --resume it")
        run = cls(folder)
        facts = {"status": "running", "config_sha256": hashlib.sha256(config_yaml.encode()).hexdigest(), **manifest}
        with explain(folder, "no run was made"):
            (folder / "checkpoints").mkdir(parents=True)
            try:
                (folder / "audits").mkdir()
                if key is not None:
                    _write_private(folder / KEY_FILE, key)
                write_atomic(folder / "config.yaml", config_yaml.encode())
                write_json(folder / "manifest.json", facts)
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
        """Text of the resolved configuration; RunError where it is not what the run was made with."""
        file = self.path / "config.yaml"
        try:
            data = file.read_bytes()
            text = data.decode()
        except (OSError, UnicodeDecodeError) as error:
            raise RunError(f"{file} cannot be read: {error}") from error
        expected = self.manifest.get("config_sha256")  # absent in runs of attncem 0.1
        if expected is not None and hashlib.sha256(data).hexdigest() != expected:
            raise RunError(
                f"{file} is not the configuration that the run was made with: put it back, or train a run of its own "
                f"with attncem train --config {file}"
            )
        return text

    @property
    def config(self) -> RunConfig:
        """The configuration the run was made with."""
        file = self.path / "config.yaml"
        try:
            data = parse_yaml(self.config_yaml, str(file))
            if not isinstance(data, dict) or "extends" in data:
                raise RunError(f"{file} is damaged: it holds no run's settings")
            return load_config(data).config
        except ConfigError as error:
            raise RunError(f"{file} cannot be used: {error}") from error

    @property
    def noise_key(self) -> bytes | None:
        """The key of keyed noise; None where there is none."""
        file = self.path / KEY_FILE
        try:
            return file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RunError(f"{file} cannot be read: {error.strerror}") from error

    @property
    def manifest(self) -> dict[str, Any]:
        """Status, split, versions and sizes of the run."""
        return read_json(self.path / "manifest.json")

    def update_manifest(self, **values: Any) -> None:
        """Change some entries of the manifest."""
        self.write("manifest.json", {**self.manifest, **values})

    def write(self, name: str, data: Mapping[str, Any]) -> None:
        """Write one more JSON file of the run."""
        with explain_os_error(self.path):
            write_json(self.path / name, data)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run for one process; a second one is refused. Freed by the system if the process dies."""
        with locked(self.path / ".lock", f"{self.path} is being trained by another process"):
            yield

    # metrics

    def log(self, record: Mapping[str, Any], file: str = "metrics.jsonl") -> None:
        """Append one line of JSON."""
        line = json.dumps({"schema_version": SCHEMA_VERSION, **record}, allow_nan=False) + "\n"
        with explain_os_error(self.path), (self.path / file).open("a") as handle:
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
        with explain_os_error(self.path):
            partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder))
            try:
                write_checkpoint(partial, weights, optimizer, facts)
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
        return read_checkpoint(self.path / "checkpoints" / self.checkpoint_name(which), optimizer=optimizer)

    def checkpoint_name(self, which: str) -> str:
        """Resolve `best` and `last`."""
        names = self.checkpoints()
        if not names:
            raise RunError(f"{self.path} has no checkpoint yet: it stopped before its first epoch ended")
        if which == "last":
            return names[-1]
        name = str(read_json(self.path / "best.json").get("checkpoint")) if which == "best" else which
        if name not in names:
            raise RunError(f"{self.path} has no checkpoint {name}; it has {', '.join(names)}")
        return name

    def encoder_sha256(self, which: str = "best") -> str:
        """The recorded hash of a checkpoint's encoder; nothing of the weights is read."""
        return hashes_of(self.path / "checkpoints" / self.checkpoint_name(which))["client.safetensors"]

    def fingerprint(self, which: str = "best") -> str:
        """The name of the client at a checkpoint: its encoder's weights and its channel's options."""
        return fingerprint(self.encoder_sha256(which), self.config.channel_options)

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
        except (RunError, OSError, LookupError, TypeError, ValueError):
            rows.append((str(run.path), "damaged", "", "", "", "", ""))
    return rows


def _describe(run: RunDirectory) -> tuple[str, ...]:
    manifest, config = run.manifest, run.config
    last = next((r for r in reversed(run.records()) if r["kind"] == "validation"), None)
    return (
        str(run.path),
        _status(run, manifest),
        config.surrogate.name,
        f"{config.training.penalty_weight:g}",
        f"{last['epoch'] if last else 0} of {config.training.epochs}",
        f"{100 * last['accuracy']:.1f} %" if last else "",
        str(len(list((run.path / "audits").glob("*/audit.json")))),
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


def _write_private(file: Path, data: bytes) -> None:
    """A new file that its owner alone can read, whatever the umask."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as handle:
        handle.write(data)
        os.fsync(handle.fileno())


def _replace_folder(source: Path, target: Path) -> None:
    """Rename a folder into place; an older one of that name (a resumed epoch) makes way."""
    if target.exists():
        shutil.rmtree(target)
    source.rename(target)
