"""Membership: whether a release reveals that its image was a training image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attncem.base.seeding import derive_seed
from attncem.base.texts import Sentence, written
from attncem.base.texts.titles import threat_word
from attncem.base.types import NotApplicable
from attncem.config.options.probes import MembershipOptions
from attncem.config.threats import ThreatModel
from attncem.judging.judges import Probe
from attncem.judging.probes.base import Head, Numbers, Standardised, area_values, class_means, fit_head
from attncem.judging.selecting import look_at

if TYPE_CHECKING:
    from attncem.judging.case import Case
    from attncem.judging.oracle import Oracle

_FEWEST = 20
"""With fewer pairs the probe is not applicable."""


class Membership(Probe):
    """A distinguisher between releases of training images and of evaluation images, learned on one half of them.

    Each evaluation image is paired with a training image of its class, neither of them augmented, both released by the
    true client. Two halves of the pairs judge each other, so that no pair judges itself.
    """

    options_type = MembershipOptions
    options: MembershipOptions
    needs = frozenset({"images", "queries", "labels"})

    def score(self, case: Case, *, seed: int) -> Mapping[str, Numbers]:
        """For each pair, named by its evaluation image: its part in the AUC, and its share of right answers."""
        if lacking := _lacking(case.threat):
            raise NotApplicable(written("threat.lacks", name=threat_word(case.threat.name), what=lacking))
        oracle, train = case.oracle(self, seed), case.subject.data.train
        if case.looked is not None:  # only what is sent can be observed, of members too
            train = train.at(torch.from_numpy(look_at(case.model, train.in_parts).places).to(train.images.device))
        member, other = matched(train.labels.cpu().numpy(), case.y.cpu().numpy(), self.options.pairs, seed)
        if len(member) < _FEWEST:
            raise NotApplicable(written("reason.few_pairs", wanted=_FEWEST, count=len(member)))
        inside = case.seen_of(train.get(torch.from_numpy(member))[0], "members", seed)
        outside = torch.cat(list(case.seen_by(self, len(case.x))))[torch.from_numpy(other)]
        labels = case.y[torch.from_numpy(other).to(case.y.device)]
        area, right = np.empty(len(other)), np.empty(len(other))
        for learned, judged in _halves(len(other)):
            found = _Distinguisher(inside[learned], outside[learned], labels[learned], oracle)
            scores = found(inside[judged]), found(outside[judged])
            area[judged], right[judged] = area_values(*scores), pairs_right(*scores)
        order = np.argsort(other)
        self.index = other[order]
        self.chance = {"auc": 0.5, "balanced_accuracy": 0.5}
        return {"auc": area[order], "balanced_accuracy": right[order]}


def _lacking(threat: ThreatModel) -> Sentence | None:
    """What the adversary lacks: all training images, and a release of each; None: nothing."""
    if threat.auxiliary != "train":
        return written("threat.lacks.members")
    if threat.images is not None:
        return written("threat.lacks.some_members", count=threat.images)
    return None if threat.queries is None else written("threat.lacks.more_queries", count=threat.queries)


class _Distinguisher:
    """A ridge on the standardised release, on a few numbers of it, or on both, by the lowest leave-one-out error."""

    def __init__(self, inside: Tensor, outside: Tensor, labels: Tensor, oracle: Oracle) -> None:
        released = torch.cat([inside, outside])
        self._oracle = oracle
        self._standardised = Standardised(released)
        flat = self._standardised(released)
        self._means = class_means(flat, torch.nn.functional.one_hot(labels.repeat(2), oracle.num_classes).to(flat))
        self._scale = _Scale(self._numbers(released, flat))
        target = torch.cat([torch.ones(len(inside)), -torch.ones(len(outside))]).to(flat)[:, None]
        heads = {name: fit_head(features, target) for name, features in self._features(released).items()}
        self._best = min(heads, key=lambda name: heads[name].error)
        self._head: Head = heads[self._best]

    def __call__(self, released: Tensor) -> Numbers:
        """A score that is higher for likely members."""
        return np.asarray(self._head(self._features(released)[self._best])[:, 0].cpu().numpy())

    def _features(self, released: Tensor) -> dict[str, Tensor]:
        flat = self._standardised(released)
        numbers = self._scale(self._numbers(released, flat))
        return {"numbers": numbers, "release": flat, "both": torch.cat([numbers, flat / flat.shape[1] ** 0.5], 1)}

    def _numbers(self, released: Tensor, flat: Tensor) -> Tensor:
        """Norm, distances to the nearest class means and, if there is a server, its confidence."""
        away = torch.cdist(flat, self._means)
        nearest = away.sort(1).values
        columns = [flat.norm(dim=1), nearest[:, 0], nearest[:, min(1, away.shape[1] - 1)]]
        if self._oracle.has_server:
            sure = self._oracle.predict(released).double().log_softmax(1)
            best, label = sure.max(1)
            columns += [away.gather(1, label[:, None])[:, 0], best, -(sure.exp() * sure).sum(1)]
        return torch.stack(columns, 1)


class _Scale:
    """Centres and scales columns by those of the training data; columns that vary only by rounding stay small."""

    def __init__(self, columns: Tensor) -> None:
        self._mean = columns.mean(0)
        self._std = columns.std(0).clamp_min(1e-12).maximum(1e-5 * columns.square().mean(0).sqrt())

    def __call__(self, columns: Tensor) -> Tensor:
        return (columns - self._mean) / self._std


def matched(
    train: NDArray[np.int64], evaluation: NDArray[np.int64], most: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of training and evaluation images in pairs of one class, in random order."""
    rng, pairs = np.random.default_rng(derive_seed(seed, "pairs")), []
    for label in np.unique(evaluation):
        sides = [rng.permutation(np.flatnonzero(side == label)) for side in (train, evaluation)]
        count = min(map(len, sides))
        pairs.append(np.stack([side[:count] for side in sides]))
    joined = np.concatenate(pairs, 1)
    chosen = joined[:, rng.permutation(joined.shape[1])[:most]]
    return chosen[0], chosen[1]


def _halves(count: int) -> list[tuple[slice, slice]]:
    first, second = slice(0, count // 2), slice(count // 2, count)
    return [(first, second), (second, first)]


def pairs_right(inside: Numbers, outside: Numbers) -> Numbers:
    """Share of each pair that the median classifies correctly as a threshold: half of the judged images are members."""
    middle = np.median(np.concatenate([inside, outside]))
    right: Numbers = 0.5 + 0.25 * (np.sign(inside - middle) - np.sign(outside - middle))
    return right
