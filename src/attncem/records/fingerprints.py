"""The fingerprint of a client: one hash of its front end's options, its encoder's weights and its channel's options.

Audits, explanations, keyed noise, certificates and exports identify the client by it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any


def fingerprint(
    encoder_sha256: str,
    channel: Sequence[Mapping[str, Any]],
    front_end: Mapping[str, Any] | None = None,
    release: Mapping[str, Any] | None = None,
) -> str:
    """SHA-256 over the hash of the encoder's weights as a .safetensors file and the options of every stage.

    The front end's options are included in addition to its weights; `none` is left out, so older fingerprints stay
    valid. ``release`` is the decision of a client with a head (`release_of`); None: every image is sent.
    """
    facts: dict[str, Any] = {"encoder": encoder_sha256, "channel": [dict(stage) for stage in channel]}
    if front_end is not None and front_end["name"] != "none":
        facts["front_end"] = dict(front_end)
    if release:
        facts["release"] = dict(release)
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def release_of(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """What decides whether an image is sent, from a checkpoint's facts: threshold and head; empty: every image is."""
    if not checkpoint.get("release"):
        return {}
    head = checkpoint["sha256"].get("head.safetensors", "")
    return {"threshold": float(checkpoint["release"]["threshold"]), "head": head}
