"""What a page shows of a bundle: its audited decoders, example pictures and blind guesses, in `live.json` beside it.

bundle/live.json         this; a bundle without it was not prepared for a page, and shows no attack
bundle/decoder-N.onnx    z [B, …], the mean of N releases → image [B, C, H, W]: the audited attack
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from attncem.base.record import Record, read
from attncem.base.types import RunError
from attncem.records.files import read_bytes
from attncem.records.json_text import parse_json
from attncem.records.judgement import Judgement
from attncem.records.ledger import STOPS
from attncem_edge.manifest import Manifest, check_files, read_manifest

NAME = "live.json"
IMAGE = "image"
"""Name of a decoder's output; its input has the name of the feature."""
State = Literal["shown", "not_audited", "not_kept", "not_exported"]


class Stronger(Record):
    """An audited attack with as many releases that is stronger and cannot be shown on a page."""

    row: str
    mse: float


class Stop(Record):
    """One number of averaged releases: the audited attack that the page shows, or why it shows none.

    ``mse`` is its audited error on ``images`` test images with its 95 % interval, ``blind`` that of the best blind
    guess, the row ``floor`` of the method ``guess``. ``checked`` images were rebuilt again here, with the error
    ``reproduced``. ``command`` makes what is missing.
    """

    releases: int
    state: State
    row: str = ""
    mse: float = 0.0
    low: float = 0.0
    high: float = 0.0
    images: int = 0
    floor: str = ""
    guess: str = ""
    blind: float | None = None
    reliable: bool = True
    stronger: Stronger | None = None
    checked: int = 0
    reproduced: float = 0.0
    command: str = ""

    @property
    def file(self) -> str:
        """The name of its decoder."""
        return f"decoder-{self.releases}.onnx"


class Example(Record):
    """A test image: its place in the set, its label, and a PNG file in base64."""

    index: int
    label: int
    png: str


class LiveFacts(Record):
    """All that a page knows beyond the bundle of this ``identity``.

    ``source`` names whose pictures the examples are. ``mean`` and ``class_means`` are the blind guesses as bytes of
    pixels in base64, each [C, H, W]. ``threat`` and ``audits`` name what was audited; empty: nothing. ``files`` are the
    SHA-256 of the decoders.
    """

    identity: str
    dataset: str
    examples: list[Example]
    stops: list[Stop]
    source: str = ""
    mean: str = ""
    class_means: list[str] = field(default_factory=list)
    threat: str = ""
    audits: list[str] = field(default_factory=list)
    judgement: Judgement | None = None
    files: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Shown:
    """A bundle ready for a page: its folder, its manifest, and its facts, if it was prepared for one."""

    folder: Path
    manifest: Manifest
    facts: LiveFacts

    @property
    def files(self) -> dict[str, bytes]:
        """The decoders by file name, unchanged since they were written."""
        return {name: _checked(self.folder, name, mark) for name, mark in self.facts.files.items()}


def open_shown(folder: Path) -> Shown:
    """A bundle with what a page shows of it; errors where a file is missing or was changed."""
    manifest = read_manifest(folder)
    check_files(folder, manifest, manifest.files)
    file = folder / NAME
    facts = _read(file, manifest.identity) if file.is_file() else without_audit(manifest)
    return Shown(folder, manifest, facts)


def without_audit(manifest: Manifest, *, dataset: str = "", command: str = "") -> LiveFacts:
    """The facts of a bundle that nothing was prepared for: no example, no attack."""
    stops = [Stop(releases, "not_audited", command=command) for releases in STOPS]
    return LiveFacts(manifest.identity, dataset, [], stops)


def _read(file: Path, identity: str) -> LiveFacts:
    try:
        facts = read(LiveFacts, parse_json(read_bytes(file)), file)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{file} is damaged: {error}; make the folder again") from error
    if facts.identity != identity:
        raise RunError(f"{file} belongs to another bundle: make the folder again, by attncem live RUN --pack FOLDER")
    return facts


def _checked(folder: Path, name: str, mark: str) -> bytes:
    if Path(name).name != name:
        raise RunError(f"{folder / NAME} is damaged: {name!r} is no file name")
    data = read_bytes(folder / name)
    if hashlib.sha256(data).hexdigest() != mark:
        raise RunError(f"{folder / name} was changed after it was written: make the folder again")
    return data


def to_text(facts: LiveFacts) -> str:
    """The content of the file."""
    return json.dumps(facts.to_dict(), indent=1, allow_nan=False) + "\n"
