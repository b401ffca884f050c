"""Fano's bound on re-identification: how often an attacker can identify the right one of N candidates at most."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from attncem.config.options.certificates import FanoOptions
from attncem.judging.certificates.leakage import upper_leakage
from attncem.judging.certificates.making import certain
from attncem.judging.judges import Certificate
from attncem.records.bounds import Bound

if TYPE_CHECKING:
    from attncem.judging.case import Case

_STEPS = 200


class Fano(Certificate):
    """For N candidates drawn at random as images are, all equally likely: ln N − I ≤ h(P) + (1 − P) ln(N − 1)."""

    options_type = FanoOptions
    options: FanoOptions

    def bound(self, case: Case, *, seed: int) -> Mapping[str, Bound]:
        """`rank_1@N`, the largest share of images that can rank first, for each number of candidates."""
        upper = upper_leakage(case)
        found = {}
        for count in self.options.candidates:
            value, limit = (largest_hit_rate(nats, count) for nats in (upper.value, upper.claim))
            made = certain(value, "share", "rank_1", [*upper.assumptions, "candidates_by_lot"])
            found[f"rank_1@{count}"] = replace(made, high=limit, limit=limit, vacuous=limit >= 1)
        return found


def largest_hit_rate(nats: float, candidates: int) -> float:
    """The largest P with ln N − I ≤ h(P) + (1 − P) ln(N − 1), h the binary entropy; at most (I + ln 2)/ln N."""
    if nats >= math.log(candidates):
        return 1.0

    def lacking(hit: float) -> float:
        return hit * math.log(hit * candidates) + (1 - hit) * _log_of_miss(hit, candidates) - nats

    low, high = 1 / candidates, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if lacking(middle) < 0 else (low, middle)
    return high


def _log_of_miss(hit: float, candidates: int) -> float:
    return math.log((1 - hit) * candidates / (candidates - 1)) if hit < 1 else 0.0
