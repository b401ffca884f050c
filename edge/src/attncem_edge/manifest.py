"""The manifest of a bundle: all that a client and a server must know of an exported model, as one JSON file.

bundle/manifest.json   this
bundle/client.onnx     image [B, C, H, W] float32 in [0, 1] → z [B, …] float32; with a head also answers [B, classes]
bundle/server.onnx     z [B, …] → logits [B, classes]; a device does not need it
bundle/card.json, card.md, README.md

The client file holds the front end, the encoder and the head. It holds neither the channel nor the decision: these are
data of the manifest, and whoever runs the client applies them. ``identity`` is a hash of the manifest, which holds the
hashes of the files, so one number names the whole bundle. It detects damage and mix-ups; whoever changes a bundle on
purpose can compute it again.

A request by the Open Inference Protocol goes to the model ``name``: input `z` FP32 [B, …], output `logits` FP32
[B, classes], and the parameter `fingerprint` of the request holds that of the manifest.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable
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
IMAGE, FEATURE, LOGITS, ANSWERS = "image", "z", "logits", "answers"
"""Names of the tensors of both files and of requests."""
_LARGEST_NUMBER = 3e38
_MOST_VALUES = 1 << 26
"""Values of an image or of z at most."""


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
    its stages in order, each with ``noise_std`` where it adds noise and ``grid`` where it rounds to multiples of it.
    ``nats`` are the audited upper limits of the leakage by the number of releases of one image; ``audits`` say what was
    audited (``audited``: anything), ``checked`` how exported and audited model were compared.
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
    audited: bool = False
    audits: list[dict[str, Any]] = field(default_factory=list)
    checked: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    bundle: int = VERSION

    @property
    def facts(self) -> dict[str, Any]:
        """All facts as plain data."""
        return asdict(self)

    @property
    def identity(self) -> str:
        """SHA-256 of all facts."""
        text = json.dumps(self.facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def keyed(self) -> bool:
        """Whether a stage of the channel derives its noise from a key."""
        return any(stage.get("noise") == "keyed" for stage in self.channel)

    def to_text(self) -> str:
        """The content of the file."""
        return json.dumps({**self.facts, "identity": self.identity}, indent=1, allow_nan=False) + "\n"


_PARTS = {"image": ImageFacts, "feature": FeatureFacts, "decision": DecisionFacts}


def read_manifest(folder: str | Path) -> Manifest:
    """The manifest of a bundle, unchanged since its export; BundleError where it is missing, damaged or changed."""
    file = Path(folder) / NAME
    if not file.is_file():
        raise BundleError(f"{file} is missing: {folder} is no bundle; attncem export RUN --out {folder} makes one")
    if file.stat().st_size > LARGEST:
        raise BundleError(f"{file} has more than {LARGEST} bytes: it is no manifest")
    try:
        return _made(json.loads(file.read_text(encoding="utf-8")), file)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise BundleError(f"{file} is damaged: {error}; export the bundle again") from error


def _made(facts: Any, file: Path) -> Manifest:
    if not isinstance(facts, dict) or type(facts.get("bundle")) is not int:
        raise BundleError(
            f"{file} belongs to no bundle: it has no version; attncem export RUN --out FOLDER makes a bundle of a run"
        )
    if facts["bundle"] != VERSION:
        raise BundleError(f"{file} has version {facts['bundle']} of the format, and this program reads {VERSION}")
    identity = facts.pop("identity", "")
    if unknown := facts.keys() - {it.name for it in fields(Manifest)}:
        raise ValueError(f"unknown keys {', '.join(sorted(unknown))}")
    parts = {key: kind(**facts[key]) for key, kind in _PARTS.items() if facts.get(key) is not None}
    manifest = Manifest(**{**facts, **parts})
    if wrong := problem_of(manifest):
        raise ValueError(wrong)
    if manifest.identity != identity:
        raise BundleError(
            f"{file} was changed after the export: its content does not fit its identity; export it again"
        )
    return manifest


def check_files(folder: str | Path, manifest: Manifest, names: Iterable[str]) -> None:
    """BundleError where one of these files of a bundle is missing or is not the one that was exported."""
    for name in names:
        read_file(folder, manifest, name)


def read_file(folder: str | Path, manifest: Manifest, name: str) -> bytes:
    """The bytes of a file of a bundle; BundleError where it is missing or is not the one that was exported."""
    file, expected = Path(folder) / name, manifest.files.get(name)
    if expected is None or not file.is_file():
        raise BundleError(f"{file} is missing: export the bundle again")
    data = file.read_bytes()
    if hashlib.sha256(data).hexdigest() != expected:
        raise BundleError(f"{file} was changed after the export: its SHA-256 is not the recorded one")
    return data


# the values of a manifest: whoever changes a bundle can compute its identity again


def problem_of(manifest: Manifest) -> str:
    """The first key whose value cannot be; empty where all can."""
    return next((f"the value of {key} cannot be" for key, right in _RIGHT.items() if not right(manifest)), "")


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def is_number(value: Any) -> bool:
    """Whether a value is a finite number that float32 can hold; True and False are none."""
    return type(value) in (int, float) and abs(value) <= _LARGEST_NUMBER


def _is_share(value: Any) -> bool:
    return is_number(value) and 0 <= value <= 1


def _is_size(values: Iterable[Any]) -> bool:
    sizes = list(values)
    return bool(sizes) and all(type(it) is int and it > 0 for it in sizes) and math.prod(sizes) <= _MOST_VALUES


def _is_list(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(it, kind) for it in value)


def _is_table(value: Any, right: Callable[[Any], bool] = lambda _: True) -> bool:
    return isinstance(value, dict) and all(right(it) for it in value.values())


def _is_range(low: Any, high: Any) -> bool:
    ends = [it for it in (low, high) if it is not None]
    return all(map(is_number, ends)) and ends == sorted(ends)


_RIGHT: dict[str, Callable[[Manifest], bool]] = {
    "name": lambda it: isinstance(it.name, str) and re.fullmatch(r"[\w-][\w.-]{0,99}", it.name, re.ASCII) is not None,
    "fingerprint": lambda it: _is_hash(it.fingerprint),
    "image": lambda it: isinstance(it.image, ImageFacts) and _is_size(it.image.shape) and it.image.channels in (1, 3),
    "feature": lambda it: (
        isinstance(it.feature.shape, list) and _is_size(it.feature.shape) and _is_range(it.feature.low, it.feature.high)
    ),
    "labels": lambda it: _is_list(it.labels, str) and 0 < len(it.labels) == len(set(it.labels)),
    "channel": lambda it: (
        _is_list(it.channel, dict) and all(isinstance(stage.get("name"), str) for stage in it.channel)
    ),
    "files": lambda it: _is_table(it.files, _is_hash),
    "noise_scheme": lambda it: type(it.noise_scheme) is int,
    "front_end": lambda it: _is_table(it.front_end),
    "decision": lambda it: it.decision is None or (_is_share(it.decision.threshold) and _is_share(it.decision.share)),
    "nats": lambda it: (
        _is_table(it.nats, lambda value: is_number(value) and value >= 0) and all(map(str.isdecimal, it.nats))
    ),
    "audits": lambda it: _is_list(it.audits, dict),
    "audited": lambda it: it.audited is bool(it.audits),
    "checked": lambda it: _is_table(it.checked),
    "versions": lambda it: _is_table(it.versions, lambda value: isinstance(value, str)),
}
"""What each value must be."""
