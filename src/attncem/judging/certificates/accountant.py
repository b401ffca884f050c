"""The query accountant: the leakage of k releases of one image together, and how many releases a budget allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from attncem.config.options.certificates import AccountantOptions
from attncem.judging.certificates.leakage import ground_of
from attncem.judging.certificates.making import certain
from attncem.judging.certificates.passage import noise_of
from attncem.judging.judges import Certificate
from attncem.records.bounds import Bound

if TYPE_CHECKING:
    from attncem.judging.case import Case

MOST_RELEASES = 2**20
"""Largest number of releases that is checked against a budget."""


class Accountant(Certificate):
    """I_k ≤ H(J) + Σ_j p_j ½ Σ_i log(1 + k v_ij/σ²): with fresh noise the mean of k releases has σ/√k.

    For each number of releases it is the bound `leakage` of an adversary that sees so many.

    Keyed noise: k releases of the same pixels leak as much as one. Laplace noise: the part inside cells counts k times.
    Fresh draws before the noise: the leakage of one release counts k times.
    """

    options_type = AccountantOptions
    options: AccountantOptions

    def bound(self, case: Case, *, seed: int) -> Mapping[str, Bound]:
        """`leakage@K` for each number of releases, and `releases`, the number that the budget allows."""
        made = {f"leakage@{count}": _leakage(case, count) for count in sorted(set(self.options.releases))}
        return made if noise_of(case.model.channel).repeats else {**made, "releases": self._allowed(case)}

    def _allowed(self, case: Case) -> Bound:
        """The largest number of releases whose leakage stays within the budget."""
        once = _leakage(case, 1)
        budget = self.options.budget or 2 * once.claim
        count = most_within(lambda releases: _leakage(case, releases).claim <= budget, MOST_RELEASES)
        made = certain(count, "releases", "releases", once.assumptions)
        return replace(
            made, limit=float(count), vacuous=count == 0, ceiling=float(MOST_RELEASES), by=f"{budget:.4g} nats"
        )


def _leakage(case: Case, releases: int) -> Bound:
    """The leakage of this many releases of one image."""
    seen = case.seeing(releases)
    return ground_of(seen).bound(seen)


def most_within(holds: Callable[[int], bool], most: int) -> int:
    """The largest count up to `most` for which `holds` is true, given that it is then true for all below; else 0."""
    low, high = 0, 1
    while high <= most and holds(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
