"""RunDirectory: one folder per run. Writes are atomic, nothing is overwritten, no pickle is executed.

config.yaml               the resolved configuration; its hash is in the manifest
manifest.json             status, facts of the data, split, versions, sizes
noise.key                 the key of keyed noise, where the channel uses it: 32 bytes, readable only by the owner
metrics.jsonl             measurements during training; byte-identical after a resume
timing.jsonl              wall-clock seconds per epoch
checkpoints/epoch-00007/  client, server and surrogate weights (safetensors), optimizer.pt, checkpoint.json (with the
                          seal under noise.key)
best.json                 the best checkpoint by validation accuracy
tensorboard/              the same numbers as events, where training.track asks for them
onnx/epoch-00007/         both halves as ONNX, of runs that were trained with a user's own modules
audits/ID/                an audit: audit.json, and ROW.json, ROW.npz, pictures for each row
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from attncem.base.plugins import PluginUse, standing_in
from attncem.base.record import read
from attncem.base.types import SCHEMA_VERSION, ConfigError, RunError
from attncem.config.loading.load import load_config
from attncem.config.loading.suggest import did_you_mean, nearest
from attncem.config.loading.yaml_text import parse_yaml
from attncem.config.options.run import RunConfig
from attncem.config.plugins import require, stand_ins
from attncem.records.audit import AuditResult
from attncem.records.checkpoints import (
    Checkpoint,
    State,
    add_checkpoint,
    bests_named,
    checkpoint_names,
    clear_leftovers,
    drop_checkpoints,
    newest_intact,
    read_checkpoint,
    read_facts,
)
from attncem.records.files import (
    PARTIAL,
    append,
    cut_short,
    cut_to_lines,
    is_held,
    locked,
    lost_of,
    made_at_once,
    read_bytes,
    read_json,
    read_lines,
    read_record,
    write_atomic,
    write_json,
    write_private,
)
from attncem.records.files import explain_os_error as explain
from attncem.records.fingerprints import fingerprint
from attncem.records.ledger import PLAN, count_audits, joined, ledgers
from attncem.records.run_files import Best, Manifest, line_kind
from attncem.records.seals import read_key, sealed

_KEPT = 2
"""Number of newest checkpoints that are kept, in addition to the best."""
explain_os_error = partial(explain, advice="earlier checkpoints are intact: fix this and continue with --resume")
"""Turns a failed write to a run into an error for people."""
KEY_FILE, _LOCK = "noise.key", ".lock"
LOGS = ("metrics.jsonl", "timing.jsonl")
_FIRST_PARTS = ("checkpoints", "audits", KEY_FILE, "config.yaml")
"""Entries of a run's folder before it has a manifest."""


class RunDirectory:
    """A run's folder. `create` makes one, `open` opens an existing one."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @classmethod
    def create(
        cls, path: str | Path, *, config_yaml: str, manifest: Mapping[str, Any], key: bytes | None = None
    ) -> RunDirectory:
        """Make a new run folder; refuses an existing folder that is not empty. `key` is that of keyed noise.

        A kill at any moment leaves a complete run, or a folder in which a run can be made again.
        """
        folder = Path(path)
        facts = {"status": "running", "config_sha256": hashlib.sha256(config_yaml.encode()).hexdigest(), **manifest}
        with explain(folder, "no run was made"), made_at_once(folder, _FIRST_PARTS, "manifest.json"):
            (folder / "checkpoints").mkdir()
            (folder / "audits").mkdir()
            if key is not None:
                write_private(folder / KEY_FILE, key)
            write_atomic(folder / "config.yaml", config_yaml.encode())
            write_json(folder / "manifest.json", facts)
        return cls(folder)

    @classmethod
    def open(cls, path: str | Path | RunDirectory) -> RunDirectory:
        """An existing run folder; RunError where it is not a run."""
        if isinstance(path, RunDirectory):
            return path
        folder = Path(path)
        if not folder.exists():
            raise RunError(
                f"{folder} is not a run folder: there is no such folder{did_you_mean(nearest_folder(folder))}"
            )
        for name in ("config.yaml", "manifest.json"):
            if not (folder / name).is_file():
                raise RunError(f"{folder} is not a run folder: {name} is missing{_instead(folder)}")
        return cls(folder)

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"RunDirectory({str(self.path)!r})"

    def audits(self) -> list[AuditResult]:
        """The audits of the run, complete or not, oldest first."""
        return [joined(ledger.path) for ledger in ledgers(self.path / "audits")]

    @property
    def config_yaml(self) -> str:
        """Text of the resolved configuration; RunError where it changed since the run was made."""
        file = self.path / "config.yaml"
        data = read_bytes(file)
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise RunError(f"{file} cannot be read: {error}") from error
        expected = self.manifest.get("config_sha256")  # absent in runs of attncem 0.1
        if expected is not None and hashlib.sha256(data).hexdigest() != expected:
            raise RunError(
                f"{file} is not the configuration that the run was made with: restore it, or train a new run "
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
            with standing_in(stand_ins(self.plugins)):
                return load_config(data).config
        except ConfigError as error:
            raise RunError(f"{file} cannot be used: {error}") from error

    @property
    def plugins(self) -> list[PluginUse]:
        """The plugins that the run was made with; they are needed to compute with it, not to read it."""
        return read(Manifest, self.manifest, self.path / "manifest.json").plugins

    def require_plugins(self, *, same: bool = False) -> list[PluginUse]:
        """The run's plugins whose file has changed since; RunError if one is not loaded, or with `same` has changed."""
        return require(self.plugins, str(self.path), same=same)

    @property
    def noise_key(self) -> bytes | None:
        """The key of keyed noise, None without one; RunError where the file cannot be a key."""
        return read_key(self.path / KEY_FILE)

    def seal(self, encoder_sha256: str, **more: Any) -> str:
        """The seal of a checkpoint with this encoder, of all that decides its releases; empty without a key."""
        key = self.noise_key
        if key is None:
            return ""
        config, manifest = self.config, self.manifest
        channel, front_end = config.channel_options, config.front_end_options
        facts = {
            "noise_scheme": manifest.get("noise_scheme", 0),
            "channel": channel,
            "front_end": front_end,
            "fingerprint": fingerprint(encoder_sha256, channel, front_end),
            "config_sha256": hashlib.sha256(self.config_yaml.encode()).hexdigest(),
            "data": manifest.get("data"),
            "custom_network": manifest.get("custom_network", False),
        }
        return sealed(key, facts | more)

    @property
    def manifest(self) -> dict[str, Any]:
        """Status, split, versions and sizes of the run; RunError names an entry of the wrong kind."""
        file = self.path / "manifest.json"
        data = read_json(file)
        read(Manifest, data, file)
        return data

    @property
    def is_finished(self) -> bool:
        """Whether training is complete; RunError where the manifest lacks the result."""
        manifest = self.manifest
        if manifest["status"] == "finished" and not manifest.get("best"):
            raise RunError(f"{self.path / 'manifest.json'} is damaged: best is missing")
        return bool(manifest["status"] == "finished")

    def update_manifest(self, **values: Any) -> None:
        """Change some entries of the manifest."""
        self.write("manifest.json", {**self.manifest, **values})

    def write(self, name: str, data: Mapping[str, Any]) -> None:
        """Write one more JSON file of the run."""
        with explain_os_error(self.path):
            write_json(self.path / name, data)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the run for one process; a second one is refused. The system frees the lock if the process dies."""
        with locked(self.path / _LOCK, f"{self.path} is being trained by another process"):
            yield

    @property
    def held(self) -> bool | None:
        """Whether a process trains it; None where that is unknown."""
        return is_held(self.path / _LOCK)

    # metrics

    def log(self, record: Mapping[str, Any], file: str = "metrics.jsonl") -> None:
        """Append one line of JSON."""
        line = json.dumps({"schema_version": SCHEMA_VERSION, **record}, allow_nan=False) + "\n"
        with explain_os_error(self.path):
            append(self.path / file, line.encode())

    def offsets(self) -> dict[str, int]:
        """Length of each log in bytes; a resume cuts the logs back to it."""
        files = (self.path / name for name in LOGS)
        return {file.name: file.stat().st_size if file.exists() else 0 for file in files}

    def cut_back(self, offsets: Mapping[str, int]) -> None:
        """Cut the logs back to a checkpoint's lengths; a log that lost its end keeps its complete lines."""
        with explain_os_error(self.path):
            for name in LOGS:
                if name in offsets:
                    cut_to_lines(self.path / name, offsets[name])

    def log_problems(self, offsets: Mapping[str, int] | None = None) -> list[str]:
        """Differences between the logs and a checkpoint's record of them (default: the newest's), as sentences."""
        if offsets is None:
            names = self.checkpoints()
            offsets = read_facts(self.path / "checkpoints" / names[-1]).get("offsets", {}) if names else {}
        return [said for name in LOGS if (said := lost_of(self.path / name, offsets.get(name, 0)))]

    def records(self, file: str = "metrics.jsonl") -> list[dict[str, Any]]:
        """All complete lines of a log; RunError names a line that attncem did not write."""
        found = read_lines(self.path / file)
        for where, line in found:
            read(line_kind(file, line), line, where)
        return [line for _, line in found]

    # checkpoints

    def save(self, weights: State, optimizer: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
        """Write a checkpoint under a temporary name, rename it, then remove old ones."""
        folder, best = self.path / "checkpoints", facts["best"]["checkpoint"]
        with explain_os_error(self.path):
            newest = add_checkpoint(folder, weights, optimizer, facts, self.seal)
            write_json(self.path / "best.json", {"checkpoint": best})
        # Later ones (damaged: the run was resumed from an earlier one) are replaced as training reaches them.
        old = [name for name in self.checkpoints() if name <= newest][:-_KEPT]
        drop_checkpoints(folder, [name for name in old if name != best])
        return newest

    def checkpoints(self) -> list[str]:
        """Names of the complete checkpoints, oldest first."""
        return checkpoint_names(self.path / "checkpoints")

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
        name = self._best() if which == "best" else which
        if name not in names:
            raise RunError(f"{self.path} has no checkpoint {name}; it has {', '.join(names)}")
        return name

    def _best(self) -> str:
        """The checkpoint in best.json; RunError where other files of the run name another best checkpoint."""
        file = self.path / "best.json"
        name = read_record(Best, file).checkpoint
        known = self._bests_on_record()
        if known and name not in known:
            said = ", ".join(sorted(known))
            raise RunError(f"{file} names {name}, but the best checkpoint on record is {said}: restore that name")
        return name

    def _bests_on_record(self) -> set[str]:
        """The best checkpoints by the other files of the run; empty where none is recorded."""
        manifest = self.manifest
        if manifest["status"] != "finished":
            return bests_named(self.path / "checkpoints")
        return {manifest["best"]["checkpoint"]} if manifest.get("best") else set()

    def encoder_sha256(self, which: str = "best") -> str:
        """The recorded hash of a checkpoint's encoder; no weights are read."""
        facts = read_facts(self.path / "checkpoints" / self.checkpoint_name(which))
        return str(facts["sha256"]["client.safetensors"])

    def load_newest_intact(self, endless: Collection[str] = ()) -> tuple[Checkpoint | None, list[str]]:
        """The newest complete and finite checkpoint (`endless` tensors may be infinite), and problems of newer ones."""
        return newest_intact(self.path / "checkpoints", endless)

    def clear_leftovers(self) -> list[str]:
        """Remove partial files of a killed process; return a sentence for each incomplete checkpoint."""
        for leftover in self.path.glob(f"{PARTIAL}*"):
            with contextlib.suppress(OSError):
                leftover.unlink()
        return clear_leftovers(self.path / "checkpoints")


def _instead(folder: Path) -> str:
    """The kind of a folder that is not a run, where that is known."""
    if cut_short(folder):
        return ": it is incomplete; run the command that creates it again"
    if (folder / PLAN).is_file() or count_audits(folder) not in ("0", "?"):
        return ". It holds an audit, which attncem report shows; other verbs need the run, and an encoder has none"
    below = sorted(file.parent for depth in ("*", "*/*") for file in folder.glob(f"{depth}/manifest.json"))
    return f". It is a folder of runs: name one of them, such as {below[0]}" if below else ""


def nearest_folder(path: Path) -> str | None:
    """The existing folder whose name is most similar to that of this path; None where none is similar."""
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.is_dir()]
    except OSError:
        return None
    name = nearest(path.name, names)
    return None if name is None else str(path.with_name(name))


class UnwrittenRun(RunDirectory):
    """The run in a helper process of a distributed training: nothing is read or written here."""

    def __init__(self) -> None:
        super().__init__(Path())

    @property
    def manifest(self) -> dict[str, Any]:
        """Empty here."""
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

    def load_newest_intact(self, endless: Collection[str] = ()) -> tuple[Checkpoint | None, list[str]]:
        """The first process reads it."""
        return None, []

    def clear_leftovers(self) -> list[str]:
        """The first process clears up."""
        return []

    def log_problems(self, offsets: Mapping[str, int] | None = None) -> list[str]:
        """There are no logs."""
        return []


def free_path(root: str | Path, name: str) -> Path:
    """root/name-001, or the next number that no folder has yet."""
    number = 1
    while (path := Path(root) / f"{name}-{number:03d}").exists():
        number += 1
    return path
