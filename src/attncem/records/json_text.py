"""JSON as plain data, stricter than the standard library: only what can be written again."""

from __future__ import annotations

import json
import math
from typing import Any


def parse_json(data: bytes, *, in_log: bool = False) -> Any:
    """Plain data; ValueError for invalid JSON, and for a number or a text that could not be written again.

    In a log, NaN and Infinity, which are not JSON, become missing values.
    """
    text = data.decode("utf-8-sig")
    odd = _no_value if in_log else _refuse
    parsed = json.loads(text, parse_constant=odd, parse_int=_whole, parse_float=_finite)
    if "\\ud" in text.lower():
        json.dumps(parsed, ensure_ascii=False).encode()  # half a surrogate pair has no bytes
    return parsed


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _no_value(_: str) -> None:
    return None


def _whole(digits: str) -> int:
    value = int(digits)
    return value if value.bit_length() < 64 else int(_refuse(f"{digits[:20]}…"))


def _finite(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _refuse(digits[:20])
