"""What the JSON files of a run's folder must hold: its manifest, its checkpoints' facts, the lines of its logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from attncem.base.record import Record

LEFT_BEHIND = "encoder_sha256"
"""Entry of the manifest of a run that travelled as results alone: the hash of its best encoder, which stayed behind."""


class Best(Record):
    """Which checkpoint is the best: best.json."""

    checkpoint: str


class BestFacts(Best, kw_only=True):
    """The best checkpoint, and by what it is the best."""

    epoch: int
    validation_accuracy: float


class CheckpointFacts(Record):
    """What checkpoint.json must hold."""

    epoch: int
    sha256: dict[str, str]
    step: int = 0
    best: Best | None = None
    offsets: dict[str, int] = field(default_factory=dict)


class SplitFacts(Record):
    """Sizes of the parts of the data, and a hash of which images they are."""

    sha256: str | None = None


class Manifest(Record):
    """What manifest.json must hold; all but the status may be missing in older or unfinished runs."""

    status: str
    config_sha256: str | None = None
    name: str = ""
    custom_network: bool = False
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
    peak_memory_bytes: int = 0
    cautions: list[str] = field(default_factory=list)
    onnx: dict[str, dict[str, str]] = field(default_factory=dict)
    onnx_problem: str = ""
    encoder_sha256: str = ""


class Line(Record):
    """What every line of metrics.jsonl may hold."""

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
    """What a line of a log must hold."""
    return TimingLine if file == "timing.jsonl" else _LINES.get(str(line.get("kind")), Line)
