"""The manifest of a bundle: all that a client and a server must know of an exported model, as one JSON file.

bundle/manifest.json   this
bundle/client.onnx     image [B, C, H, W] float32 in [0, 1] → z [B, …] float32; with a head also answers [B, classes]
bundle/server.onnx     z [B, …] → logits [B, classes]; a device does not need it
bundle/card.json, card.md, README.md

The client file holds the front end, the encoder and the head. It holds neither the channel nor the decision: these are
data of the manifest, and whoever runs the client applies them. ``identity`` is a hash of the manifest, which holds the
hashes of the files, so one number names the whole bundle.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from attncem_edge.errors import BundleError

VERSION = 1
"""Version of the format of bundles."""
NAME = "manifest.json"
CLIENT, SERVER, CARD = "client.onnx", "server.onnx", "card.json"
LARGEST = 1 << 20
"""Bytes of a manifest at most: a larger file is none."""


@dataclass(frozen=True)
class ImageFacts:
    """The input of the client; ``squash``: the whole picture is scaled, otherwise its middle is cut out first."""

    channels: int
    height: int
    width: int
    squash: bool = False

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        return self.channels, self.height, self.width


@dataclass(frozen=True)
class FeatureFacts:
    """The clean feature z of one image; ``low`` and ``high`` are limits that no image exceeds (None: not known)."""

    shape: list[int]
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class DecisionFacts:
    """An image is sent if the head's largest probability is at most ``threshold``; ``share`` is that of validation."""

    threshold: float
    share: float


@dataclass(frozen=True)
class Manifest:
    """Facts of a bundle.

    ``fingerprint`` names front end, client weights, channel and decision, as audits do. ``channel`` are the options of
    its stages in order. ``nats`` are the audited upper limits of the leakage by the number of releases of one image;
    ``audits`` say what was audited, ``checked`` how exported and audited model were compared.
    """

    name: str
    fingerprint: str
    image: ImageFacts
    feature: FeatureFacts
    labels: list[str]
    channel: list[dict[str, Any]]
    files: dict[str, str]
    noise_scheme: int = 1
    front_end: dict[str, Any] = field(default_factory=dict)
    decision: DecisionFacts | None = None
    nats: dict[str, float] = field(default_factory=dict)
    audits: list[dict[str, Any]] = field(default_factory=list)
    checked: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    bundle: int = VERSION

    @property
    def identity(self) -> str:
        """SHA-256 of all facts."""
        text = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def keyed(self) -> bool:
        """Whether a stage of the channel derives its noise from a key."""
        return any(stage.get("noise") == "keyed" for stage in self.channel)

    def to_text(self) -> str:
        """The content of the file."""
        return json.dumps({**asdict(self), "identity": self.identity}, indent=1, allow_nan=False) + "\n"


_PARTS = {"image": ImageFacts, "feature": FeatureFacts, "decision": DecisionFacts}


def read_manifest(folder: str | Path) -> Manifest:
    """The manifest of a bundle, unchanged since its export; BundleError where it is missing, damaged or changed."""
    file = Path(folder) / NAME
    if not file.is_file():
        raise BundleError(f"{file} is missing: {folder} is no bundle; attncem export RUN --out {folder} makes one")
    if file.stat().st_size > LARGEST:
        raise BundleError(f"{file} has more than {LARGEST} bytes: it is no manifest")
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
        return _made(facts, file)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BundleError(f"{file} is damaged: {error}; export the bundle again") from error


def _made(facts: Any, file: Path) -> Manifest:
    if not isinstance(facts, dict) or not isinstance(facts.get("bundle"), int):
        raise ValueError("it has no version")
    if facts["bundle"] != VERSION:
        raise BundleError(f"{file} has version {facts['bundle']} of the format, and this program reads {VERSION}")
    identity = facts.pop("identity", "")
    if unknown := facts.keys() - {it.name for it in fields(Manifest)}:
        raise ValueError(f"unknown keys {', '.join(sorted(unknown))}")
    parts = {key: kind(**facts[key]) for key, kind in _PARTS.items() if facts.get(key) is not None}
    manifest = Manifest(**{**facts, **parts})
    if manifest.identity != identity:
        raise BundleError(
            f"{file} was changed after the export: its content does not fit its identity; export it again"
        )
    return manifest


def check_files(folder: str | Path, manifest: Manifest, names: Mapping[str, str] | tuple[str, ...]) -> None:
    """BundleError where one of these files of a bundle is missing or is not the one that was exported."""
    for name in names:
        file, expected = Path(folder) / name, manifest.files.get(name)
        if expected is None or not file.is_file():
            raise BundleError(f"{file} is missing: export the bundle again")
        with file.open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != expected:
                raise BundleError(f"{file} was changed after the export: its SHA-256 is not the recorded one")
