"""Clusters of all classes at once, for the refits of ``kmeans`` and ``gmm``.

The samples of R classes are in a padded table x [R, M, D]; mask [R, M] marks the real ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

SHRINKAGE_FACTOR = 10.0
SHRINKAGE_LIMIT = 0.99
"""The baseline's a = 10 n / (π N), replaced by 0.99 when it reaches 1."""
ROUNDING = 1e-5
"""How far below 1 the ratio may be and still count as 1."""
SEED = 0
"""Seed of the first centres: the same features give the same centres on every device."""
CHECK_EVERY = 5
"""Lloyd iterations between two reads from a GPU of whether a label has changed."""
CHUNK_ELEMENTS = 2**27
"""Padded feature values that one refit step holds at most (512 MB in float32)."""
PIECES = 8
"""Number of parts of a sum over many samples of a class: one product would leave most of a GPU idle."""
MANY_SAMPLES = 1024
"""Smallest number of samples of a class whose sums are taken in parts."""


def shrinkage(hits: Tensor, share: Tensor, class_counts: Tensor) -> Tensor:
    """The baseline's a [G, K]: hits and share π [G, K], features N of the class [G]."""
    expected = fitted_samples(share, class_counts)
    ratio = SHRINKAGE_FACTOR * hits / expected.clamp_min(torch.finfo(share.dtype).tiny)
    # π N is a count stored as a share: rounding must not move the ratio across 1.
    return torch.where(ratio >= 1 - ROUNDING, SHRINKAGE_LIMIT, ratio)


def pooled_variance(within: Tensor, around_mean: Tensor, hits: Tensor) -> Tensor:
    """Variance of a class's samples around the true means of their clusters, [R, …].

    From the squares of the class's N samples around K fitted centres (``within`` [R, …]), which have N − K degrees of
    freedom, and around the class mean. The whole class adds one more degree: so there is a value, that of the class,
    even where every cluster has a single sample. ``hits`` [R, K].
    """
    counts, used = (number.view(-1, *[1] * (within.dim() - 1)) for number in (hits.sum(1), hits.clamp_max(1).sum(1)))
    return (within + around_mean / (counts - 1).clamp_min(1)) / (counts - used + 1)


def missing_variance(pooled: Tensor, samples: Tensor) -> Tensor:
    """The variance that n samples around their own centre lack, pooled / n: pooled [G, …], samples [G].

    Two samples show half of the variance, one shows none. Exact for one Gaussian that was cut into clusters.
    """
    return pooled / samples.clamp_min(1).view(-1, *[1] * (pooled.dim() - 1))


def fitted_samples(share: Tensor, class_counts: Tensor) -> Tensor:
    """Number of samples that each cluster was fitted to, [G, K]: share π [G, K], features N of the class [G]."""
    return share * class_counts.unsqueeze(1).to(share.dtype)


def add_pooled(state: dict[str, Any], prefix: str, like: Tensor) -> None:
    """Add the missing state of a run from before the correction: 0, so that nothing is corrected."""
    state.setdefault(f"{prefix}pooled", torch.zeros_like(like))


def collect(pairs: Iterable[tuple[Tensor, Tensor]], num_classes: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """The features [N, D] and labels [N] of (z, y) pairs, in the precision and on the device of ``like``."""
    pairs = list(pairs)
    if not pairs:
        raise ValueError("refresh: expected at least one (z, y) pair, got none")
    x = torch.cat([z.detach().flatten(1).to(like.device) for z, _ in pairs]).to(like.dtype)
    y = torch.cat([y.to(like.device) for _, y in pairs]).long()
    if not bool(x.isfinite().all()):
        raise ValueError("refresh: the features hold NaN or infinity")
    if bool(((y < 0) | (y >= num_classes)).any()):
        raise ValueError(f"refresh: expected labels from 0 to {num_classes - 1}, got {y.min()} to {y.max()}")
    return x, y


def padded_classes(x: Tensor, y: Tensor, counts: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Chunks of classes as (rows [R], x [R, M, D], mask [R, M]); ``counts`` [num_classes] features per class."""
    order = y.argsort(stable=True)
    first = counts.cumsum(0) - counts
    longest = int(counts.max())
    longest += -longest % _num_pieces(longest)
    chunk = max(1, CHUNK_ELEMENTS // (longest * x.shape[1]))
    slots = torch.arange(longest, device=x.device)
    for start in range(0, len(counts), chunk):
        rows = torch.arange(start, min(start + chunk, len(counts)), device=x.device)
        mask = slots < counts[rows].unsqueeze(1)
        index = order[(first[rows].unsqueeze(1) + slots).clamp_max(len(y) - 1)]
        yield rows, x[index], mask


def centred(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Features minus the mean of their class, zeros where padded, and the means [R, 1, D].

    Centred, the expanded square of a distance loses nothing.
    """
    members = mask.to(x.dtype).unsqueeze(2)
    mean = (x * members).sum(1, keepdim=True) / members.sum(1).unsqueeze(1).clamp_min(1)
    return (x - mean) * members, mean


def around_class_means(x: Tensor, y: Tensor, counts: Tensor) -> Tensor:
    """The features [N, D] minus the mean of their class; ``counts`` [num_classes] features per class."""
    means = x.new_zeros(len(counts), x.shape[1])
    for rows, padded, mask in padded_classes(x, y, counts):
        means[rows] = centred(padded, mask)[1].squeeze(1)
    return x - means[y]


def store(buffer: Tensor, rows: Tensor, present: Tensor, value: Tensor) -> None:
    """Write the rows of the classes that are present, [R]; the others do not change."""
    present = present.view(-1, *[1] * (buffer.dim() - 1))
    buffer[rows] = torch.where(present, value.to(buffer.dtype), buffer[rows])


def first_centres(x: Tensor, mask: Tensor, stored: Tensor, known: Tensor) -> Tensor:
    """Initial centres of Lloyd's iterations: stored ones [R, K, D] of the classes known [R], seeds for the others."""
    if bool(known.all()):
        return stored
    return torch.where(known.view(-1, 1, 1), stored, seed_centres(x, mask, stored.shape[1]))


def seed_centres(x: Tensor, mask: Tensor, num_clusters: int) -> Tensor:
    """First centres [R, K, D]: samples drawn one by one with probability ∝ distance to the nearest one drawn.

    (k-means++ draws ∝ squared distance; the baseline does not.) With fewer distinct samples than clusters,
    some centres coincide.
    """
    generator = torch.Generator().manual_seed(SEED)
    distance = torch.where(mask, 1.0, 0.0).to(x.dtype)
    centres: list[Tensor] = []
    for _ in range(num_clusters):
        # A race of exponential clocks: the first to ring is sample m with probability ∝ distance_m.
        clock = torch.empty(mask.shape, dtype=torch.float64).exponential_(generator=generator).to(x)
        winner = torch.where(mask, clock / distance, torch.inf).argmin(1)
        centre = x.gather(1, winner.view(-1, 1, 1).expand(-1, 1, x.shape[2]))
        to_centre = (x - centre).square().sum(2).sqrt()
        distance = torch.minimum(distance, to_centre) if centres else to_centre
        centres.append(centre)
    return torch.cat(centres, 1)


def lloyd(x: Tensor, mask: Tensor, centres: Tensor, max_iterations: int) -> tuple[Tensor, Tensor]:
    """Lloyd's iterations in all classes at once, until no label changes: centres [R, K, D], labels [R, M].

    A cluster without samples keeps its centre. Further iterations without a label change have no effect, so a GPU is
    read only now and then.
    """
    every = CHECK_EVERY if x.is_cuda else 1
    labels = _nearest_centre(x, centres)
    for iteration in range(1, max_iterations + 1):
        chosen = one_hot(labels, mask, centres)
        hits = chosen.sum(1).unsqueeze(2)
        centres = torch.where(hits > 0, sums(chosen, x) / hits, centres)
        before, labels = labels, _nearest_centre(x, centres)
        if iteration % every == 0 and bool(((labels == before) | ~mask).all()):
            break
    return centres, labels


def _nearest_centre(x: Tensor, centres: Tensor) -> Tensor:
    """The argmin over k of |c_k|² − 2 x·c_k, [R, M]; x is centred on its class."""
    squares = centres.square().sum(2).unsqueeze(1)
    return torch.baddbmm(squares, x, centres.transpose(1, 2), alpha=-2).argmin(2)


def sums(weights: Tensor, x: Tensor) -> Tensor:
    """Sums of x [R, M, D] over the samples, weighted by each column of the weights [R, M, K]: [R, K, D]."""
    pieces = math.gcd(x.shape[1], _num_pieces(x.shape[1]))
    weights, x = (table.unflatten(1, (pieces, -1)) for table in (weights, x))
    return (weights.transpose(2, 3) @ x).sum(1)


def _num_pieces(samples: int) -> int:
    return PIECES if samples >= MANY_SAMPLES else 1


def one_hot(labels: Tensor, mask: Tensor, centres: Tensor) -> Tensor:
    """The nearest of the centres [R, K, D] to each sample as one-hot [R, M, K]; zeros for padding."""
    members = mask.unsqueeze(2).to(centres.dtype)
    return centres.new_zeros(*labels.shape, centres.shape[1]).scatter_(2, labels.unsqueeze(2), members)
