"""Names of a campaign's cells, which are those of their run folders."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

_LONGEST = 80
"""Largest length of a cell's name without its hash: it names a folder, and run configurations allow 100."""
_ODD = re.compile(r"[^A-Za-z0-9._-]+")


def cell_id(arm: str, point: Mapping[str, Any], seed: int) -> str:
    """A valid folder name: the arm, the values of the point by the last word of their keys, the seed.

    It depends on nothing else in the campaign, so a cell keeps its name when others are added or removed. Where values
    have characters that a name cannot have, or the name would be long, a hash makes it unique.
    """
    last = Counter(key.rpartition(".")[2] for key in point)
    words = {key: short if last[short := key.rpartition(".")[2]] == 1 else key for key in point}
    parts = [f"{words[key]}-{value if isinstance(value, str) else json.dumps(value)}" for key, value in point.items()]
    whole = "_".join([arm, *parts])
    plain = _ODD.sub("-", whole)[:_LONGEST]
    digest = "" if plain == whole else f"-{hashlib.sha256(whole.encode()).hexdigest()[:6]}"
    return f"{plain}{digest}-s{seed}"
