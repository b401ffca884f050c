"""Re-identification: the rank of the true image among candidates, given a release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from attncem.base.seeding import derive_seed, make_generator
from attncem.config.options.probes import ReidentificationOptions
from attncem.judging.attacks.forecast import Seconds, timed
from attncem.judging.judges import Probe
from attncem.judging.probes.base import Numbers

if TYPE_CHECKING:
    from attncem.judging.case import Case
    from attncem.judging.oracle import Oracle


class Reidentification(Probe):
    """Ranks candidates by the likelihood that each gives the release, under noise of one deviation per entry.

    The candidates are evaluation images, the true one among them. The adversary gets them and has each released a few
    times, so it needs queries and no images of its own.
    """

    options_type = ReidentificationOptions
    options: ReidentificationOptions
    needs = frozenset({"queries"})

    def score(self, case: Case, *, seed: int) -> Mapping[str, Numbers]:
        """Rank of the true image, its reciprocal, and whether it is 1; ties count as if broken at random."""
        oracle = case.oracle(self, seed)
        seen = torch.cat(list(case.seen_by(self, len(case.x))))
        size = min(self.options.candidates, len(seen))
        noise = make_generator(case.x.device, seed, "candidates")
        parts = [torch.empty(len(seen), dtype=torch.float64, device=seen.device) for _ in range(3)]
        for done, (judged, candidates) in enumerate(groups(len(seen), size, seed, seen.device)):
            self.progress("re-identification", done * size, len(seen), {})
            means, scale = self._expected(oracle, case.x[candidates], noise)
            away = torch.cdist(seen[judged].flatten(1) / scale, means / scale, compute_mode=EXACT)
            for part, found in zip(parts, true_ranks(away), strict=True):
                part[judged] = found
        self.chance = rank_chance(size)
        return {name: part.cpu().numpy() for name, part in zip(self.chance, parts, strict=True)}

    def forecast(self, case: Case) -> Seconds:
        """Time of the releases of all candidates, and of their distances."""
        oracle, x, size = case.oracle(self, 0), case.x[:_TRIED], min(self.options.candidates, len(case.x))
        z = oracle.release(x).flatten(1).float()
        candidates = z[:1].expand(size, -1).contiguous()
        releases = timed(lambda: oracle.release(x)).times(self.options.num_releases * -(-len(case.x) // size) * size)
        distances = timed(lambda: torch.cdist(z, candidates, compute_mode=EXACT)).times(len(case.x))
        return (releases + distances).times(1 / len(x))

    def _expected(self, oracle: Oracle, x: Tensor, noise: torch.Generator) -> tuple[Tensor, Tensor]:
        """The mean of several own releases of each image, and the deviation of the noise in each entry."""
        count = self.options.num_releases
        first = oracle.release(x, generator=noise).flatten(1).float()
        total, squares = torch.zeros_like(first), torch.zeros_like(first)
        for _ in range(count - 1):
            moved = oracle.release(x, generator=noise).flatten(1).float() - first
            total, squares = total + moved, squares + moved.square()
        mean = total / count
        variance = (squares - count * mean.square()).clamp_min(0).sum(0) / (max(1, count - 1) * len(x))
        return first + mean, _scale(variance.sqrt())


_TRIED = 100
"""Images of a trial."""
EXACT = "donot_use_mm_for_euclid_dist"
"""Equal releases have distance 0, and ties stay ties."""


def _scale(noise: Tensor) -> Tensor:
    """The unit of distances; an entry that hardly varies counts as a tenth of the mean, or as 1 if none varies."""
    mean = float(noise.mean())
    return noise.clamp_min(0.1 * mean) if mean > 0 else torch.ones_like(noise)


def groups(count: int, size: int, seed: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Judged images, and the candidates that they share, which begin with the judged images."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(derive_seed(seed, "groups"))).to(device)
    for judged in order.split(size):
        yield judged, torch.cat([judged, order[: size - len(judged)]])


def true_ranks(away: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Expected hit, reciprocal rank and rank of the true candidate, image i's i-th, with ties broken at random."""
    true = away.diagonal()[:, None]
    closer, equal = (away < true).sum(1).double(), (away == true).sum(1).double()
    hit = (closer == 0) / equal
    terms = 1 / torch.arange(1, away.shape[1] + 1, dtype=torch.float64, device=away.device)
    sums = torch.cat([terms.new_zeros(1), terms.cumsum(0)])
    reciprocal = (sums[(closer + equal).long()] - sums[closer.long()]) / equal
    return hit, reciprocal, closer + (equal + 1) / 2


def rank_chance(size: int) -> dict[str, float]:
    """The scores of an adversary that sees nothing, by measure."""
    reciprocal = float(np.mean(1 / np.arange(1, size + 1)))
    return {"rank_1": 1 / size, "reciprocal_rank": reciprocal, "rank": (size + 1) / 2}
