"""Label leakage, or model completion: what a few labelled releases are worth to an attacker without the server half."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from attncem.base.seeding import derive_seed, make_generator
from attncem.config.options.probes import LabelLeakageOptions
from attncem.judging.attacks.forecast import Seconds, eigenvectors, products, timed
from attncem.judging.judges import Probe
from attncem.judging.probes.base import Numbers, Standardised, balanced_values, class_means, fit_head
from attncem.records.findings import finding

if TYPE_CHECKING:
    from attncem.judging.case import Case

_TRIED = 50
"""Number of images whose release is timed."""
_UNLABELLED = 2000
"""Number of the attacker's images without labels whose releases standardise the features."""


class LabelLeakage(Probe):
    """A linear head in closed form on a few labelled releases per class, judged on the evaluation images.

    The releases are of the attacker's images; the server is not queried. Every choice of labelled images is contained
    in the next larger one, as its beginning.
    """

    options_type = LabelLeakageOptions
    options: LabelLeakageOptions
    needs = frozenset({"images", "queries", "labels"})

    def score(self, case: Case, *, seed: int) -> Mapping[str, Numbers]:
        """For each number of labels: the share of the random choices after which the head is right about an image."""
        oracle = case.oracle(self, seed)
        y = oracle.auxiliary()[1]
        noise = make_generator(y.device, seed, "labels")
        sample = _shuffled(len(y), derive_seed(seed, "unlabelled"))[:_UNLABELLED].to(y.device)
        standardised = Standardised(oracle.release_auxiliary(sample, generator=noise))
        seen = torch.cat([standardised(part).float() for part in case.seen_by(self, len(case.x))])
        budgets = self._budgets(y)
        right = {count: torch.zeros(len(seen), dtype=torch.float64, device=seen.device) for count in budgets}
        for draw in range(self.options.draws):
            self.progress("label leakage", draw, self.options.draws, {})
            index, place = first_of_each(y, max(budgets), derive_seed(seed, "labels", draw))
            features = standardised(oracle.release_auxiliary(index, generator=noise))
            for count in budgets:
                chosen = place < count
                said = classify(features[chosen], y[index][chosen], seen)
                right[count] += said == case.y
        return self._scores(case, {count: found.cpu().numpy() / self.options.draws for count, found in right.items()})

    def forecast(self, case: Case) -> Seconds:
        """From the sizes of the heads' matrices, and the time to release a few images."""
        oracle = case.oracle(self, 0)
        index = torch.arange(min(_TRIED, oracle.num_auxiliary), device=oracle.device)
        inputs, draws = oracle.release_auxiliary(index[:1]).numel(), self.options.draws
        rows = [count * case.subject.spec.num_classes for count in self.options.labels]
        released = min(_UNLABELLED, oracle.num_auxiliary) + draws * max(rows)
        release = timed(lambda: oracle.release_auxiliary(index)).times(released / len(index))
        like = torch.zeros((), dtype=torch.float64)
        work = products(draws * sum(6 * count * inputs * min(count, inputs) for count in rows), like)
        for count in rows:
            work += eigenvectors(min(count, inputs), like).times(draws)
        return release + work

    def _budgets(self, y: Tensor) -> list[int]:
        """The numbers of labels that at least one class has; adds a finding if some class has fewer."""
        counts = torch.unique(y, return_counts=True)[1]
        wanted, least, most = sorted(set(self.options.labels)), int(counts.min()), int(counts.max())
        if least < wanted[-1]:
            self.findings.append(finding("few_labels", least=least, wanted=wanted[-1]))
        return [count for count in wanted if count <= most] or [most]

    def _scores(self, case: Case, right: Mapping[int, Numbers]) -> dict[str, Numbers]:
        labels = case.y.cpu().numpy()
        counts = np.unique(labels, return_counts=True)[1]
        values: dict[str, Numbers] = {}
        for count, found in right.items():
            values |= {f"accuracy@{count}": found, f"balanced@{count}": balanced_values(found, labels)}
            blind = {f"accuracy@{count}": counts.max() / counts.sum(), f"balanced@{count}": 1 / len(counts)}
            self.chance |= {name: float(chance) for name, chance in blind.items()}
        return values


def classify(features: Tensor, labels: Tensor, seen: Tensor) -> Tensor:
    """Labels of `seen` from labelled features, by the rule with the best leave-one-out accuracy."""
    return answers(features, labels, seen)[0]


def answers(features: Tensor, labels: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Labels of `seen` by the rule with the best leave-one-out accuracy, and by that with the best balanced accuracy.

    The rules are the highest score of the head, the nearest class mean, and the nearest mean score: the highest score
    misses classes that lie between others (Hastie et al. 1994). With one label per class the first rule is used,
    because none can be left out.
    """
    known, number = labels.unique(return_inverse=True)
    features = features.double()
    member = torch.nn.functional.one_hot(number, len(known)).double()
    head, means = fit_head(features, member), class_means(features, member)
    scores = class_means(head(features), member)
    ways: list[tuple[Tensor, Callable[[Tensor], Tensor]]] = [
        (head.left_out.argmax(1), lambda z: head(z).argmax(1)),
        (left_out_distances(features, means, member).argmin(1), lambda z: torch.cdist(z, means).argmin(1)),
        (torch.cdist(head.left_out, scores).argmin(1), lambda z: torch.cdist(head(z), scores).argmin(1)),
    ]
    alone = len(labels) == len(known)
    weight = 1 / member.sum(0)[number]
    plain = ways[0] if alone else max(ways, key=lambda pair: int((pair[0] == number).sum()))
    even = ways[0] if alone else max(ways, key=lambda pair: float(weight[pair[0] == number].sum()))
    said = [known[torch.cat([way(part.double()) for part in seen.split(1000)])] for _, way in (plain, even)]
    return said[0], said[1]


def left_out_distances(features: Tensor, means: Tensor, member: Tensor) -> Tensor:
    """Distances to the class means, the image's own class mean taken without the image; infinite if it is alone."""
    count = member.sum(0)
    return torch.cdist(features, means) * torch.where(member > 0, count / (count - 1), 1)


def first_of_each(labels: Tensor, most: int, seed: int) -> tuple[Tensor, Tensor]:
    """Indices of at most `most` random images of each class, and the position of each within its class."""
    order = _shuffled(len(labels), seed).to(labels.device)
    order = order[torch.argsort(labels[order], stable=True)]
    counts = torch.unique(labels, return_counts=True)[1]
    place = torch.arange(len(labels), device=labels.device) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    return order[place < most], place[place < most]


def _shuffled(count: int, seed: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))
