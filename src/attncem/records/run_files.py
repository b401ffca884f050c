"""Contents of the JSON files in a run's folder: its manifest, its checkpoints' facts, the lines of its logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from attncem.base.plugins import PluginUse
from attncem.base.record import Record
from attncem.records.client_costs import ClientCosts
from attncem.records.selection import Selection

LEFT_BEHIND = "encoder_sha256"
"""Manifest entry of a run that was exported as results only: the hash of its best encoder, which was not exported."""
DECISION = "release_decision"
"""Manifest entry of such a run whose client has a head: the threshold, and the hash of the head."""


class Best(Record):
    """The name of the best checkpoint: best.json."""

    checkpoint: str


class BestFacts(Best, kw_only=True):
    """The best checkpoint, and the criterion."""

    epoch: int
    validation_accuracy: float


class CheckpointFacts(Record):
    """Required contents of checkpoint.json."""

    epoch: int
    sha256: dict[str, str]
    step: int = 0
    best: Best | None = None
    offsets: dict[str, int] = field(default_factory=dict)
    seal: str = ""
    release: Selection | None = None


class SplitFacts(Record):
    """Sizes of the data splits, and a hash of their images."""

    train: int | None = None
    sha256: str | None = None


class Manifest(ClientCosts):
    """Contents of manifest.json; all but the status may be missing in older or unfinished runs."""

    status: str
    config_sha256: str | None = None
    name: str = ""
    custom_network: bool = False
    on_device: bool = False
    architecture: str = ""
    cut: str = ""
    data: Any = None
    noise_scheme: int = 0
    init_from: dict[str, Any] | None = None
    versions: dict[str, str] = field(default_factory=dict)
    split: SplitFacts | None = None
    device: str = ""
    best: BestFacts | None = None
    training_seconds: float = 0.0
    peak_memory_bytes: int | None = None
    peak_memory_of: str = ""
    """What was counted: the training, or its process since its start; runs of 0.2 do not say."""
    client_macs: int | None = None
    server_macs: int | None = None
    client_parameters: int | None = None
    server_parameters: int | None = None
    bytes_per_query: int | None = None
    steps: str | None = None
    cautions: list[str] = field(default_factory=list)
    onnx: dict[str, dict[str, str]] = field(default_factory=dict)
    onnx_problem: str = ""
    encoder_sha256: str = ""
    release_decision: dict[str, Any] | None = None
    plugins: list[PluginUse] = field(default_factory=list)


class Line(Record):
    """Fields that every line of metrics.jsonl may have."""

    kind: str = ""
    step: int = 0
    epoch: float = 0.0


class ValidationLine(Line, kw_only=True):
    """A validation."""

    accuracy: float


class WarningLine(Line, kw_only=True):
    """A warning that begins or ends."""

    epoch: float
    cause: str
    begins: bool
    text: str


class TimingLine(Record):
    """An epoch's time."""

    seconds: float


_LINES: Mapping[str, type[Line]] = {"validation": ValidationLine, "warning": WarningLine}


def line_kind(file: str, line: Mapping[str, Any]) -> type[Record]:
    """The record class of a line of a log."""
    return TimingLine if file == "timing.jsonl" else _LINES.get(str(line.get("kind")), Line)
