"""One seed, many named streams: every random draw comes from a generator derived here.

Words and numbers name a stream, e.g. ("noise", epoch). Streams are derived again at the start of every epoch, so a
resumed run needs no generator state and draws the same numbers as an uninterrupted one.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def derive_seed(seed: int, *stream: str | int) -> int:
    """A 63-bit seed for the named stream: SHA-256 of seed and name."""
    text = "/".join(str(part) for part in (seed, *stream))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def make_generator(device: torch.device | str, seed: int, *stream: str | int) -> torch.Generator:
    """A torch generator on `device`, seeded for the named stream."""
    import torch

    return torch.Generator(device=device).manual_seed(derive_seed(seed, *stream))
