"""The committed numbers, keys and pixels that several tests use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text())
SECRET, KEY = bytes(range(32)), bytes(range(32, 64))


def pattern(height: int, width: int, channels: int) -> Any:
    """Pixels that follow from their places, smooth with edges."""
    y, x, c = np.ogrid[:height, :width, :channels]
    return ((7 * y + 3 * x + 61 * c + (y * x) // 9 + 90 * ((x // 11 + y // 7) % 2)) % 256).astype(np.uint8)
