"""Time of `noise.draw` relative to torch's generator, for one million numbers on one CPU core.

python scripts/noise_speed.py results/noise_speed.json
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from attncem.models.channels import FILLS
from attncem_edge import noise

COUNT = 1_000_000
ROUNDS = 31
LAWS: tuple[noise.Law, ...] = ("normal", "laplace", "uniform")


def seconds(work: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def ratio(law: noise.Law) -> float:
    """The median over rounds of our time divided by torch's, each pair measured in succession."""
    numbers, generator, secret = torch.empty(COUNT), torch.Generator().manual_seed(0), noise.fresh_secret()
    pairs = [
        (seconds(lambda: noise.draw(secret, law, COUNT)), seconds(lambda: FILLS[law](numbers, generator)))
        for _ in range(ROUNDS)
    ]
    return statistics.median(ours / torchs for ours, torchs in pairs)


def measure() -> dict[str, Any]:
    """The ratio of every distribution."""
    torch.set_num_threads(1)
    return {
        "command": "python scripts/noise_speed.py results/noise_speed.json",
        "numbers": COUNT,
        "rounds": ROUNDS,
        "cpu_cores": 1,
        "torch": torch.__version__,
        "times_as_long_as_torch": {law: round(ratio(law), 1) for law in LAWS},
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(measure(), indent=1) + "\n", encoding="utf-8")
