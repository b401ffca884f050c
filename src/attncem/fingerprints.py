"""The fingerprint of a client: one name for its encoder's weights and its channel's options together.

Audits, explanations, keyed noise, certificates and exports name the client by it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any


def fingerprint(encoder_sha256: str, channel: Sequence[Mapping[str, Any]]) -> str:
    """SHA-256 over the hash of the encoder's weights as a .safetensors file and the options of every stage."""
    facts = {"encoder": encoder_sha256, "channel": [dict(stage) for stage in channel]}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
