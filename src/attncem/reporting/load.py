"""Run folders → dataclasses: reads JSON and YAML only, and names the file in every error."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from attncem.types import SCHEMA_VERSION, AuditResult, RunError, audit_from_dict

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """One run folder as the report sees it."""

    path: Path
    label: str
    config: Record
    config_text: str
    manifest: Record
    metrics: Sequence[Record]
    audits: Sequence[AuditResult]

    @property
    def train(self) -> list[Record]:
        """The records of training steps, in order."""
        return [record for record in self.metrics if record.get("kind") == "train"]

    @property
    def validation(self) -> list[Record]:
        """The records of validation epochs, in order."""
        return [record for record in self.metrics if record.get("kind") == "validation"]

    def setting(self, *keys: str) -> Any:
        """A nested value of the resolved config; None where it is absent."""
        value: Any = self.config
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    @property
    def noise_std(self) -> float | None:
        """The noise of the first channel that has any."""
        channels = self.config.get("channel") or []
        channels = [channels] if isinstance(channels, Mapping) else channels
        return next((item["noise_std"] for item in channels if "noise_std" in item), None)

    @property
    def surrogate(self) -> str:
        """The surrogate's name, with its variant where it has one, and what defends beside it."""
        name, variant = self.setting("surrogate", "name"), self.setting("surrogate", "variant")
        further = [str(penalty["name"]).replace("_", " ") for penalty in self.config.get("penalties") or []]
        further += [key.replace("_", " ") for key in ("sparse_coding", "pruning") if self.setting("model", key)]
        return " + ".join([f"{name} ({variant})" if variant else str(name or "none"), *further])


@dataclass(frozen=True)
class Entry:
    """One audit with the run it belongs to; ``color`` is the run's place in the palette."""

    run: Run
    audit: AuditResult
    label: str
    color: int


def load_runs(paths: Sequence[Path]) -> list[Run]:
    """Read the run folders and give each a label of its own."""
    if not paths:
        raise RunError("a report needs at least one run folder")
    runs = [load_run(path) for path in paths]
    counts = Counter(run.label for run in runs)
    runs = [replace(run, label=f"{run.label} ({run.path.name})") if counts[run.label] > 1 else run for run in runs]
    seen: Counter[str] = Counter()
    unique = []
    for run in runs:
        seen[run.label] += 1
        unique.append(replace(run, label=f"{run.label} #{seen[run.label]}") if seen[run.label] > 1 else run)
    return unique


def load_run(path: Path) -> Run:
    """Read one run folder; RunError names what is missing or damaged."""
    path = path.resolve()
    if not path.is_dir():
        raise RunError(f"{path}: no such run folder")
    text = _text(path / "config.yaml")
    config = _yaml(path / "config.yaml", text)
    manifest = _json(path / "manifest.json")
    label = str(manifest.get("name") or config.get("name") or path.name)
    return Run(path, label, config, text, manifest, _metrics(path / "metrics.jsonl"), _audits(path / "audits"))


def entries(runs: Sequence[Run]) -> list[Entry]:
    """All audits of all runs, in order, each with a label of its own."""
    found = []
    for color, run in enumerate(runs):
        for audit in run.audits:
            label = run.label if len(run.audits) == 1 else f"{run.label} · {audit.suite} · {audit.threat.name}"
            found.append(Entry(run, audit, label, color))
    return found


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RunError(f"{file}: missing; is this a run folder of attncem?") from None
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{file}: cannot be read: {error}") from error


def _yaml(file: Path, text: str) -> Record:
    try:
        config = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RunError(f"{file}: damaged, not YAML: {error}") from error
    if not isinstance(config, dict):
        raise RunError(f"{file}: damaged, holds no settings")
    return config


def _json(file: Path) -> dict[str, Any]:
    try:
        data = json.loads(_text(file))
    except json.JSONDecodeError as error:
        raise RunError(f"{file}: damaged, not JSON: {error}") from error
    if not isinstance(data, dict):
        raise RunError(f"{file}: damaged, not a JSON object")
    version = data.get("schema_version", SCHEMA_VERSION)
    if not isinstance(version, int):
        raise RunError(f"{file}: damaged, schema_version is {version!r}")
    if version > SCHEMA_VERSION:
        raise RunError(
            f"{file}: written by a newer attncem (schema_version {version}; this one reads up to {SCHEMA_VERSION}): "
            "upgrade attncem"
        )
    return data


def _metrics(file: Path) -> list[Record]:
    """Read metrics.jsonl; a torn last line is what a killed run leaves, and is dropped."""
    if not file.exists():
        return []
    lines = _text(file).splitlines()
    records: list[Record] = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):
                break
            raise RunError(f"{file}: damaged in line {number}: {error}") from error
        if isinstance(record, dict):
            records.append(record)
    return records


def _audits(folder: Path) -> list[AuditResult]:
    """Read the audits on test images; of one suite and threat model only the newest is kept.

    Audits on validation images serve to choose a model and are no result. Newest: the highest suite version,
    then the last written (NAME.json, NAME-2.json … NAME-10.json).
    """
    newest: dict[tuple[str, str], AuditResult] = {}
    for file in sorted(folder.glob("[!.]*.json"), key=lambda file: (len(file.name), file.name)):
        audit = load_audit(file)
        key = (audit.suite, audit.threat.name)
        if audit.evaluation != "test":
            continue
        if key not in newest or audit.suite_version >= newest[key].suite_version:
            newest[key] = audit
    return list(newest.values())


def load_audit(file: Path) -> AuditResult:
    """Read one audit; RunError names the file and what is wrong with it."""
    data = _json(file)
    try:
        audit = audit_from_dict(data)
        means = [audit.accuracy.mean, *(row.mse.mean for row in audit.attacks)]
        strongest = {row.name for row in audit.attacks} & {audit.strongest}
    except (KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{file}: damaged, not an audit: {error!r}") from error
    if not strongest:
        raise RunError(f"{file}: damaged, its strongest attack {audit.strongest!r} is none of its rows")
    if not all(isinstance(mean, int | float) for mean in means):
        raise RunError(f"{file}: damaged, accuracy and MSE must be numbers")
    return audit
