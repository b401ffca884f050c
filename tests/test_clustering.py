"""Clustering without labels: what it finds, what chance is, and what no label may change."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import mutual_info_score
from torch import Tensor, nn

from attncem.base.progress import silent
from attncem.base.texts import speaking
from attncem.config.options.attacks import GreyOptions
from attncem.config.options.probes import ClusteringOptions, LabelLeakageOptions
from attncem.config.options.suites import Suite, load_suite
from attncem.config.threats import THREATS, ThreatModel
from attncem.data.batches import DeviceData
from attncem.judging.auditing import Case, audit, measure
from attncem.judging.probes import clustering
from attncem.judging.probes.clustering import Clustering, chance_scores, components, information, matched
from attncem.records.audit import Row
from attncem.reporting.runs.tables import other_numbers
from attncem.training.build import RunData
from probing import DATA, LEAKY, NUM_CLASSES, PARTS, Constant, pictures, subject

METHODS = ("kmeans", "mixture")


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def separated(count: int, seed: int) -> DeviceData:
    """Pictures that are a pattern of their class and a little noise."""
    patterns = 255 * torch.rand(NUM_CLASSES, 1, 12, 12, generator=torch.Generator().manual_seed(77))
    noise = 8 * torch.randn(count, 1, 12, 12, generator=torch.Generator().manual_seed(seed))
    y = torch.arange(count) % NUM_CLASSES
    return DeviceData((patterns[y] + noise).clamp(0, 255).byte(), y)


SEPARATED = replace(DATA, train=separated(160, 0), test=separated(120, 1))


def row_of(
    encoder: nn.Module,
    options: Any = None,
    *,
    data: RunData = SEPARATED,
    noise_std: float = 0.0,
    threat: ThreatModel = THREATS["train"],
    seed: int = 0,
) -> Row:
    case = Case(subject(encoder, noise_std, data=data), threat)
    return measure(case, "clustering", options or ClusteringOptions(), seed=seed).row


# what it finds


def test_the_identity_on_separated_classes_shows_all_of_them() -> None:
    row = row_of(LEAKY, noise_std=0.1)
    for method in METHODS:
        assert row.scores[f"{method}_accuracy"].mean == 1
        assert row.scores[f"{method}_nats"].mean == pytest.approx(math.log(NUM_CLASSES))
        assert row.scores[f"{method}_accuracy"].per_class == [1.0] * NUM_CLASSES
    assert row.findings == []


def test_constant_releases_give_exactly_chance() -> None:
    row = row_of(Constant())
    for method in METHODS:
        assert row.scores[f"{method}_accuracy"].mean == row.chance[f"{method}_accuracy"] == 1 / NUM_CLASSES
        assert row.scores[f"{method}_nats"].mean == row.chance[f"{method}_nats"] == 0
    assert "[0.00, 0.00] nats (chance 0.00)" in "; ".join(other_numbers(row))


@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_is_not_above_chance(seed: int) -> None:
    row = row_of(Constant(), noise_std=1.0, seed=seed)
    for name, chance in row.chance.items():
        assert row.scores[name].low <= chance, name


def test_without_labels_it_finds_what_one_label_per_class_finds() -> None:
    """The few labels only name the clusters."""
    few = row_of(LEAKY, LabelLeakageOptions(labels=(1,), draws=2), noise_std=0.1)
    assert few.scores["accuracy@1"].mean == 1
    assert row_of(LEAKY, noise_std=0.1).scores["kmeans_accuracy"].mean == 1


class TwoValues(nn.Module):
    """Only whether the class is one of the first two."""

    def forward(self, x: Tensor) -> Tensor:
        return ((10 * x[:, 0, 0, 0]).round() < 2).float().view(-1, 1, 1, 1).expand(-1, 4, 3, 3)


def test_two_values_are_two_clusters_of_four_classes() -> None:
    row = row_of(TwoValues(), data=DATA)
    for method in METHODS:
        assert row.scores[f"{method}_accuracy"].mean == 0.5
        assert row.scores[f"{method}_nats"].mean == pytest.approx(math.log(2))


def test_the_mixture_finds_clusters_that_are_long_in_one_direction() -> None:
    """They are longer than their distance: k-means cuts some of them across."""
    labels = np.arange(1200) % 5
    long = np.stack([rng().normal(0, 3, 1200), 3 * labels + rng(1).normal(0, 0.4, 1200)], 1)
    right = {
        name: matched(clustering.fitted(fit, long, np.arange(1200), 5, 10, 0), labels).mean()
        for name, fit in clustering._METHODS.items()
    }
    assert right["mixture"] > 0.99
    assert right["kmeans"] < 0.8


# the score and its chance level


def test_the_matching_is_the_best_of_all() -> None:
    labels, clusters = rng().integers(0, 4, 200), rng(1).integers(0, 4, 200)
    clusters[:80] = (labels[:80] + 1) % 4
    best = max((np.array(order)[clusters] == labels).mean() for order in permutations(range(4)))
    assert matched(clusters, labels).mean() == best > 0.4


@pytest.mark.parametrize("clusters", [1, 2, 7])
def test_other_numbers_of_clusters_are_matched_too(clusters: int) -> None:
    labels = rng().integers(0, 4, 300)
    of_each = rng(1).integers(0, clusters, 300)
    assert 0 < matched(of_each, labels).mean() < 0.5
    assert information(of_each, labels).mean() == pytest.approx(mutual_info_score(labels, of_each))


def test_chance_is_the_mean_over_labels_that_know_nothing() -> None:
    clusters = rng(5).choice(4, 120, p=[0.4, 0.3, 0.2, 0.1])
    blind = [rng(seed).permutation(np.arange(120) % 4) for seed in range(1000, 3000)]
    scores = [(matched(clusters, labels).mean(), information(clusters, labels).mean()) for labels in blind]
    mean, spread = np.mean(scores, 0), np.std(scores, 0)
    chance = chance_scores(clusters, np.arange(120) % 4, seed=1)
    assert np.abs(chance - mean).max() < 1 and (np.abs(chance - mean) < 0.4 * spread).all(), "four standard errors"
    assert chance[0] > 0.28, "the matching is fitted: more than 1 / classes"
    assert chance[1] == pytest.approx(9 / 240, rel=0.2), "the bias of mutual information, (k - 1)² / 2n"


# what the adversary has


def test_no_label_changes_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    clusters: list[Any] = []

    def watched(of_each: Any, labels: Any) -> Any:
        clusters.append(of_each)
        return matched(of_each, labels)

    monkeypatch.setattr(clustering, "matched", watched)
    monkeypatch.setattr(clustering, "chance_scores", lambda *_: (0.0, 0.0))
    test = SEPARATED.test
    other = test.labels[torch.randperm(len(test.labels), generator=torch.Generator().manual_seed(1))]
    row_of(LEAKY, noise_std=0.1)
    row_of(LEAKY, noise_std=0.1, data=replace(SEPARATED, test=DeviceData(test.images, other)))
    assert len(clusters) == 4
    assert all((first == second).all() for first, second in zip(clusters[:2], clusters[2:], strict=True))


def test_an_observer_without_images_and_queries_gets_the_same() -> None:
    observer = ThreatModel("observer", knows_encoder=False, knows_channel=False, auxiliary="none", may_query=False)
    full, least = (row_of(LEAKY, noise_std=2.0, threat=threat) for threat in (THREATS["train"], observer))
    assert least.ok
    assert full.scores == least.scores


def test_the_same_seed_gives_the_same_numbers_and_threads_stay() -> None:
    threads = torch.get_num_threads()
    first, again, other = (row_of(LEAKY, noise_std=3.0, seed=seed) for seed in (4, 4, 5))
    assert (first.scores, first.chance) == (again.scores, again.chance)
    assert first.chance != other.chance
    assert torch.get_num_threads() == threads


def test_one_class_has_no_division() -> None:
    test = SEPARATED.test
    one = DeviceData(test.images, torch.zeros_like(test.labels))
    row = row_of(LEAKY, data=replace(SEPARATED, test=one))
    assert (row.outcome, row.scores) == ("not_applicable", {})
    assert "of one class" in row.reason


# the fit


def test_many_releases_are_fitted_in_part_and_all_assigned() -> None:
    row = row_of(LEAKY, ClusteringOptions(fitted=60), noise_std=0.1)
    assert row.num_images == PARTS["test"]
    assert row.scores["kmeans_accuracy"].mean == 1
    assert [(item.code, dict(item.values)) for item in row.findings] == [
        ("clusters_of_part", {"fitted": 60, "count": 120})
    ]


def test_the_best_start_counts() -> None:
    features = rng().normal(size=(300, 5))
    one = min(clustering._kmeans(features, 12, 1, seed).inertia_ for seed in range(3))
    assert clustering._kmeans(features, 12, 30, 0).inertia_ < one
    one = max(clustering._mixture(features, 12, 1, seed).lower_bound_ for seed in range(3))
    assert clustering._mixture(features, 12, 30, 0).lower_bound_ > one


def test_components_keep_the_directions_of_most_variance_and_no_rounding() -> None:
    strong = torch.from_numpy(rng().normal(size=(400, 2)))
    mixed = strong @ torch.from_numpy(rng(1).normal(size=(2, 30)))
    everything = np.arange(400)
    assert components(mixed, everything, 20, 0).shape == (400, 2), "the other directions are rounding"
    assert components(torch.full((400, 30), 0.3), everything, 20, 0).shape == (400, 0)
    noisy = mixed + torch.from_numpy(rng(2).normal(size=mixed.shape))
    assert components(noisy, everything, 20, 0).shape == (400, 20)
    assert components(noisy, everything[:9], 20, 0).shape[1] <= 9


def test_ten_thousand_releases_take_seconds() -> None:
    seen = torch.randn(10_000, 128, generator=torch.Generator().manual_seed(0))
    started = time.process_time()
    clusters = Clustering()._clusters(seen, 10, 0)
    assert time.process_time() - started < 10
    assert all(len(of_each) == 10_000 for of_each in clusters.values())


# audits


def test_it_is_a_row_of_full_alone() -> None:
    for name in ("quick", "standard", "certificates"):
        assert "clustering" not in load_suite(name).suite.rows
    assert load_suite("full").suite.rows["clustering"] == ClusteringOptions()


def test_an_audit_says_it_in_words_and_does_not_call_it_a_leak(tmp_path: Path) -> None:
    """The server is meant to learn the class, and an observer without labels does not know its name."""
    suite = Suite(name="own", version=1, meaning="", rows={"grey": GreyOptions(), "clustering": ClusteringOptions()})
    data = replace(SEPARATED, test=separated(400, 1), train=pictures(1200, 2))
    result = audit(subject(LEAKY, 0.1, data=data), suite, out=tmp_path, progress=silent)
    row = result.rows[1]
    assert "label" not in result.judgement.answers
    words = "; ".join(other_numbers(row))
    assert "k-means clusters matched to the classes: 100.0 [100.0, 100.0] % right (chance 2" in words
    assert "cluster and label share 1.39 [1.39, 1.39] nats (chance 0.01)" in words
    with speaking("zh"):
        assert "k 均值" in "; ".join(other_numbers(row))
