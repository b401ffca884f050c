"""The parts of probes against their definitions, and probes in an audit and its report."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from rich.console import Console
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from torch import Tensor, nn

from attncem.base.progress import silent
from attncem.config.options.attacks import GreyOptions
from attncem.config.options.probes import LabelLeakageOptions, MembershipOptions, ReidentificationOptions
from attncem.config.options.suites import Suite, load_suite
from attncem.config.threats import THREATS, ThreatModel
from attncem.data.batches import DeviceData
from attncem.judging.auditing import Case, audit, measure
from attncem.judging.opening import OpenRun
from attncem.judging.probes import label_leakage, reidentification
from attncem.judging.probes.base import Standardised, area_values, balanced_values, class_means, fit_head
from attncem.judging.probes.label_leakage import classify, first_of_each, left_out_distances
from attncem.judging.probes.membership import matched, pairs_right
from attncem.judging.probes.reidentification import Reidentification, true_ranks
from attncem.records.audit import Row
from attncem.records.ledger import Ledger
from attncem.reporting import print_summary
from attncem.reporting.runs.tables import other_numbers
from probing import DATA, LEAKY, NUM_CLASSES, PARTS, Constant, pictures, subject


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def row_of(opened: OpenRun, options: Any, *, threat: ThreatModel = THREATS["train"], seed: int = 0) -> Row:
    return measure(Case(opened, threat), options.name, options, seed=seed).row


# statistics as means over images


def test_balanced_values_average_to_the_balanced_accuracy() -> None:
    labels = rng().choice(4, 300, p=[0.7, 0.2, 0.05, 0.05])
    said = np.where(rng(1).random(300) < 0.6, labels, 0)
    right = (said == labels).astype(float)
    values = balanced_values(right, labels)
    assert values.mean() == pytest.approx(balanced_accuracy_score(labels, said))
    assert values.mean() != pytest.approx(right.mean(), abs=0.05)
    groups = [right[labels == label] for label in range(4)]
    variance = sum(group.var() / len(group) for group in groups) / 16
    assert values.var() / 300 == pytest.approx(variance), "that of the mean of the class means"
    assert np.ptp(balanced_values(np.ones(300), labels)) == 0, "who is always right has no spread"


def test_area_values_average_to_the_area_under_the_curve() -> None:
    inside, outside = rng().normal(0.5, 1, 80).round(1), rng(1).normal(0, 1, 80).round(1)
    values = area_values(inside, outside)
    assert values.mean() == pytest.approx(roc_auc_score([1] * 80 + [0] * 80, [*inside, *outside]))
    above = (inside[:, None] > outside) + 0.5 * (inside[:, None] == outside)
    long = (above.mean(1).var(ddof=1) + above.mean(0).var(ddof=1)) / 80
    together = np.cov(above.mean(1), above.mean(0))[0, 1] * 2 / 80
    assert values.var(ddof=1) / 80 == pytest.approx(long + together), "DeLong's variance, of pairs"
    assert (area_values(np.zeros(5), np.zeros(5)) == 0.5).all()


def test_pairs_are_told_by_the_median() -> None:
    assert pairs_right(np.array([3.0, 4.0]), np.array([1.0, 2.0])).tolist() == [1, 1]
    assert pairs_right(np.array([1.0, 4.0]), np.array([3.0, 2.0])).tolist() == [0, 1]
    assert pairs_right(np.zeros(3), np.zeros(3)).tolist() == [0.5] * 3


# the head


@pytest.mark.parametrize("dims", [5, 60])
def test_the_head_is_ridge_and_leaving_one_out_is_exact(dims: int) -> None:
    features, targets, others = randn(30, dims), randn(30, 3, seed=1), randn(7, dims, seed=2)

    def solved(x: Tensor, y: Tensor, strength: float) -> tuple[Tensor, Tensor, Tensor]:
        centred, wanted = x - x.mean(0), y - y.mean(0)
        weights = torch.linalg.solve(centred.T @ centred + strength * torch.eye(dims), centred.T @ wanted)
        return x.mean(0), weights, y.mean(0)

    def said(parts: tuple[Tensor, Tensor, Tensor], x: Tensor) -> Tensor:
        return (x - parts[0]) @ parts[1] + parts[2]

    centred = features - features.mean(0)
    values = torch.linalg.eigvalsh(centred.T @ centred)
    strength = 0.3 * float(values[values > 1e-9].mean())
    head = fit_head(features, targets, (0.3,))
    torch.testing.assert_close(head(others), said(solved(features, targets, strength), others))
    rest = [[i for i in range(30) if i != one] for one in range(30)]
    errors = [
        (said(solved(features[keep], targets[keep], strength), features[one]) - targets[one]).square().mean()
        for one, keep in enumerate(rest)
    ]
    assert head.error == pytest.approx(float(torch.stack(errors).mean()))
    assert float((head.left_out - targets).square().mean()) == pytest.approx(head.error)


def test_the_strength_follows_the_noise() -> None:
    features, weights = randn(200, 50), randn(50, 1, seed=1)
    clean = fit_head(features, features @ weights)
    noisy = fit_head(features, features @ weights + 30 * randn(200, 1, seed=2))
    assert clean.error < 0.01
    assert float(noisy.weights.norm()) < 0.7 * float(weights.norm()) < float(clean.weights.norm())


def test_a_constant_feature_has_no_weight() -> None:
    head = fit_head(torch.full((20, 6), 0.3), randn(20, 2))
    assert float(head.weights.abs().max()) == 0
    assert torch.equal(head(torch.zeros(3, 6)), head.bias.expand(3, 2))


def test_rounding_is_not_blown_up() -> None:
    released = 0.3 + 1e-8 * randn(50, 6).float()
    assert float(Standardised(released)(released).abs().max()) < 0.1
    spread = randn(50, 6).float() * torch.tensor([1.0, 2, 3, 4, 5, 6])
    torch.testing.assert_close(Standardised(spread)(spread).std(0), torch.ones(6, dtype=torch.float64))


def test_classes_on_a_line_are_told_apart() -> None:
    """A score for each class alone would hide those in the middle."""
    labels = torch.arange(60) % 6
    said = classify(labels[:, None] + 0.01 * randn(60, 1), labels, torch.arange(6)[:, None].double())
    assert said.tolist() == list(range(6))


def test_with_one_label_the_highest_score_counts() -> None:
    features, others = randn(5, 8), randn(40, 8, seed=1)
    labels = torch.tensor([7, 1, 4, 2, 9])
    head = fit_head(features, torch.eye(5))
    assert torch.equal(classify(features, labels, others), labels[head(others).argmax(1)])
    near = features + 0.01 * randn(5, 8, seed=2)
    assert torch.equal(classify(features, labels, near), labels)


def test_distances_without_the_image_itself() -> None:
    features, member = randn(9, 4), torch.eye(3, dtype=torch.float64)[[0, 0, 0, 0, 1, 1, 1, 1, 2]]
    found = left_out_distances(features, class_means(features, member), member)
    others = features[[1, 2, 3]].mean(0)
    assert float(found[0, 0]) == pytest.approx(float((features[0] - others).norm()))
    assert float(found[0, 1]) == pytest.approx(float((features[0] - features[4:8].mean(0)).norm()))
    assert not torch.isfinite(found[8, 2]), "it is alone"


def test_the_way_that_suits_is_taken() -> None:
    """The difference of two entries tells the class: the nearest mean does not see it, the head does."""
    labels, shared = torch.arange(200) % 2, 3 * randn(200)
    features = torch.stack([shared + labels, shared], 1) + 0.1 * randn(200, 2, seed=1)
    assert (classify(features[:100], labels[:100], features[100:]) == labels[100:]).all()
    means = torch.stack([features[:100][labels[:100] == label].mean(0) for label in (0, 1)])
    nearest = torch.cdist(features[100:], means).argmin(1)
    assert float((nearest == labels[100:]).double().mean()) < 0.8


def test_a_class_that_was_never_seen_is_never_said() -> None:
    labels = torch.tensor([1, 3, 3, 1])
    assert set(classify(randn(4, 5), labels, randn(100, 5, seed=1)).tolist()) == {1, 3}


# re-identification


def expected_over_lots(away: Tensor) -> tuple[float, float, float]:
    """Hit, reciprocal rank and rank of candidate 0, over many ways to break ties."""
    lots = rng().random((4000, len(away)))
    order = np.lexsort((lots, np.broadcast_to(away.numpy(), lots.shape)))
    ranks = np.argmax(order == 0, axis=1) + 1
    return float((ranks == 1).mean()), float((1 / ranks).mean()), float(ranks.mean())


@pytest.mark.parametrize("away", [[1.0, 2, 3], [3.0, 2, 1], [1.0, 1, 1, 1], [2.0, 1, 2, 2, 3], [1.0, 1, 5]])
def test_ranks_with_ties_are_what_lots_give(away: list[float]) -> None:
    found = true_ranks(torch.tensor([away]))
    assert [float(part) for part in found] == pytest.approx(expected_over_lots(torch.tensor(away)), abs=0.06)


@pytest.mark.parametrize(("count", "size"), [(100, 10), (100, 30), (7, 7), (10, 9)])
def test_every_image_is_judged_once_among_as_many_candidates(count: int, size: int) -> None:
    groups = list(reidentification.groups(count, size, 0, torch.device("cpu")))
    assert sorted(torch.cat([judged for judged, _ in groups]).tolist()) == list(range(count))
    for judged, candidates in groups:
        assert len(candidates) == len(candidates.unique()) == size
        assert torch.equal(candidates[: len(judged)], judged)


def test_chance_is_that_of_the_candidates_that_there_are() -> None:
    row = row_of(subject(Constant()), ReidentificationOptions(candidates=1000))
    number = PARTS["test"]
    assert row.chance == pytest.approx({"rank_1": 1 / 120, "reciprocal_rank": 0.0447, "rank": 60.5}, rel=1e-2)
    assert row.scores["rank_1"].mean == pytest.approx(1 / number), "all candidates are equal"
    assert row.scores["rank"].median == 60.5


class Loud(nn.Module):
    """A channel whose noise drowns half of the feature."""

    takes_context = True

    def forward(self, z: Tensor, x: Tensor | None = None, generator: torch.Generator | None = None) -> Tensor:
        std = torch.where(torch.arange(z.shape[1]) < z.shape[1] // 2, 5.0, 0.2)[:, None, None]
        return z + std * torch.randn(z.shape, generator=generator)


def test_entries_count_by_their_noise() -> None:
    opened = subject(LEAKY)
    opened.model.channel = Loud()
    row = row_of(opened, ReidentificationOptions(candidates=120, num_releases=4))
    plain = row_of(opened, ReidentificationOptions(candidates=120, num_releases=1))
    assert row.scores["rank_1"].mean > 0.6
    assert plain.scores["rank_1"].mean < 0.2, "one release tells no deviation"


def test_keyed_noise_names_its_image_to_who_may_query() -> None:
    opened, options = subject(LEAKY, 5.0, noise="keyed"), ReidentificationOptions(candidates=120)
    assert row_of(opened, options).scores["rank_1"].mean == 1, "equal questions have equal answers"
    alone = ThreatModel("no queries", knows_encoder=True, knows_channel=True, auxiliary="train", may_query=False)
    assert row_of(opened, options, threat=alone).scores["rank_1"].mean < 0.2
    assert row_of(subject(LEAKY, 5.0), options).scores["rank_1"].mean < 0.2


def test_candidates_own_releases_have_noise_of_their_own() -> None:
    case = Case(subject(LEAKY, 0.5), THREATS["train"])
    probe = Reidentification(num_releases=1)
    means, _ = probe._expected(case.oracle(probe, 0), case.x, torch.Generator().manual_seed(0))
    away = means - case.released.flatten(1)
    assert float(away.std()) == pytest.approx(0.5 * 2**0.5, rel=0.05)


# labels


def test_labelled_images_are_as_many_of_each_class_and_the_first_of_more() -> None:
    labels = torch.tensor([0] * 9 + [2] * 3 + [5] * 6)
    index, place = first_of_each(labels, 4, seed=1)
    assert labels[index].tolist() == [0] * 4 + [2] * 3 + [5] * 4
    assert place.tolist() == [0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3]
    fewer, _ = first_of_each(labels, 2, seed=1)
    assert torch.equal(fewer, index[place < 2])
    assert not torch.equal(first_of_each(labels, 4, seed=2)[0], index)


def test_each_head_learns_from_so_many_labels_of_own_images(monkeypatch: pytest.MonkeyPatch) -> None:
    learned: list[list[int]] = []

    def watched(features: Tensor, labels: Tensor, seen: Tensor) -> Tensor:
        assert len(features) == len(labels)
        learned.append(torch.bincount(labels).tolist())
        return classify(features, labels, seen)

    monkeypatch.setattr(label_leakage, "classify", watched)
    row_of(subject(LEAKY, 0.1), LabelLeakageOptions(labels=(16, 1, 4), draws=2))
    assert learned == [[count] * NUM_CLASSES for count in (1, 4, 16)] * 2


def test_labels_that_are_not_there_are_told() -> None:
    y = torch.tensor([0] * 50 + [1] * 50 + [2] * 10 + [3] * 3)
    data = replace(DATA, train=DeviceData(pictures(113, 9).images, y))
    row = row_of(subject(LEAKY, data=data), LabelLeakageOptions(labels=(1, 16, 80), draws=1))
    assert set(row.scores) == {"accuracy@1", "balanced@1", "accuracy@16", "balanced@16"}
    assert [(item.code, item.about) for item in row.findings] == [("few_labels", "label_leakage")]
    assert "only 3 images of one class" in row.findings[0].text


def test_chance_of_unequal_classes() -> None:
    test = DATA.test
    kept = (test.labels != 0) | (torch.arange(120) < 40)
    data = replace(DATA, test=DeviceData(test.images[kept], test.labels[kept]))
    row = row_of(subject(LEAKY, data=data), LabelLeakageOptions(labels=(4,), draws=2))
    assert row.chance == pytest.approx({"accuracy@4": 30 / 100, "balanced@4": 1 / 4})
    assert row.scores["balanced@4"].mean == pytest.approx(row.scores["accuracy@4"].balanced)


# membership


def test_pairs_are_of_one_class_and_no_image_stands_twice() -> None:
    train, other = rng().integers(0, 3, 50), np.array([0] * 40 + [1] * 5 + [7] * 5)
    inside, outside = matched(train, other, 1000, seed=0)
    assert (train[inside] == other[outside]).all()
    assert len(inside) == min(40, int((train == 0).sum())) + 5
    assert len(set(inside.tolist())) == len(set(outside.tolist())) == len(inside)
    assert len(matched(train, other, 8, seed=0)[0]) == 8


@pytest.mark.parametrize("threat", ["held_out", "published_infer"])
def test_who_owns_no_training_images_cannot_learn_what_members_are(threat: str) -> None:
    row = row_of(subject(LEAKY), MembershipOptions(), threat=THREATS[threat])
    assert (row.outcome, row.scores) == ("not_applicable", {})
    assert "owns no training images" in row.reason


def test_few_pairs_are_not_judged() -> None:
    data = replace(DATA, test=pictures(12, 5))
    row = row_of(subject(LEAKY, data=data), MembershipOptions())
    assert (row.outcome, row.reason) == (
        "not_applicable",
        "membership needs 20 pairs of images of one class, but there are 12",
    )


class Sure(nn.Module):
    """A server half that is sure of the images it was trained on, and of nothing else; the feature does not show it."""

    def __init__(self) -> None:
        super().__init__()
        self.own = LEAKY(DATA.train.get(slice(None))[0]).flatten(1)

    def forward(self, z: Tensor) -> Tensor:
        near = torch.cdist(z.flatten(1), self.own, compute_mode="donot_use_mm_for_euclid_dist").amin(1)
        first = torch.nn.functional.one_hot(torch.zeros(len(z), dtype=torch.long), NUM_CLASSES)
        return 5 * torch.exp(-near)[:, None] * first


def test_the_servers_confidence_is_used_where_there_is_one() -> None:
    assert row_of(subject(LEAKY, 0.01, Sure()), MembershipOptions()).scores["auc"].mean > 0.95
    blind = row_of(subject(LEAKY, 0.01), MembershipOptions()).scores["auc"]
    assert blind.mean < 0.7


def test_nothing_that_is_judged_was_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    from attncem.judging.probes import membership

    seen: list[tuple[set[bytes], set[bytes]]] = []
    plain = membership._Distinguisher

    def rows(*parts: Tensor) -> set[bytes]:
        return {item.numpy().tobytes() for part in parts for item in part}

    class Watched(plain):  # type: ignore[misc, valid-type]
        def __init__(self, inside: Tensor, outside: Tensor, *others: Any) -> None:
            seen.append((rows(inside, outside), set()))
            super().__init__(inside, outside, *others)

        def __call__(self, released: Tensor) -> NDArray[np.float64]:
            seen[-1][1].update(rows(released))
            return np.asarray(super().__call__(released))

    monkeypatch.setattr(membership, "_Distinguisher", Watched)
    row = row_of(subject(LEAKY), MembershipOptions())
    assert row.num_images == 120
    assert len(seen) == 2
    for learned, judged in seen:
        assert len(learned) == len(judged) == 120
        assert not learned & judged


# audits and reports

ROWS: dict[str, Any] = {
    "grey": GreyOptions(),
    "who": ReidentificationOptions(candidates=40),
    "label leakage": LabelLeakageOptions(labels=(1, 4), draws=2),
    "membership": MembershipOptions(),
}
SUITE = Suite(name="probes", version=1, meaning="probes", rows=ROWS)


def test_probes_are_rows_on_disk_and_sentences(tmp_path: Path) -> None:
    result = audit(subject(LEAKY, 0.1), SUITE, out=tmp_path, progress=silent)
    assert [row.kind for row in result.rows] == ["floor", "probe", "probe", "probe"]
    assert {row.outcome for row in result.rows} == {"ok"}
    assert result.strongest == "grey"
    ledger = Ledger.open(Path(result.folder))
    assert ledger.result() == result
    assert set(ledger.scores("membership").values) == {"auc", "balanced_accuracy"}
    who, labels, member = ("; ".join(other_numbers(row)) for row in result.rows[1:])
    assert "true image ranked first among 40 candidates: 100.0 [100.0, 100.0] % (chance 2.5 %)" in who
    assert "median rank 1 (chance 20.5)" in who
    assert "labels per class 4: accuracy" in labels
    assert "(chance 25.0 %)" in labels
    assert "members against non-members: AUC 0." in member
    console = Console(file=io.StringIO(), width=400, record=True)
    print_summary([result], console)
    said = console.export_text()
    assert f"encoder: who: {who}" in said
    assert f"encoder: membership: {member}" in said
    print_summary([result], console, brief=True)
    brief = console.export_text()
    assert "encoder: who:" not in brief and "encoder: Recognise it among others:" in brief


def test_unequal_classes_are_told_beside_the_accuracy(tmp_path: Path) -> None:
    class First(nn.Module):
        def forward(self, z: Tensor) -> Tensor:
            return torch.eye(NUM_CLASSES)[0].expand(len(z), -1)

    suite = Suite(name="blind", version=1, meaning="blind", rows={"grey": GreyOptions()})
    test = DATA.test
    kept = (test.labels == 0) | (torch.arange(120) < 40)
    unequal = replace(DATA, test=DeviceData(test.images[kept], test.labels[kept]))
    result = audit(subject(LEAKY, server=First(), data=unequal), suite, out=tmp_path / "a", progress=silent)
    assert result.known_accuracy.mean == 30 / 60
    assert result.known_accuracy.balanced == 1 / 4
    assert "accuracy is 50.0 %, balanced accuracy 25.0 %" in " ".join(result.warnings)
    equal = audit(subject(LEAKY, server=First()), suite, out=tmp_path / "b", progress=silent)
    assert "unbalanced" not in {item.code for item in equal.findings}


def test_every_suite_of_attacks_asks_for_identity_and_label() -> None:
    for name, expected in (("quick", 2), ("standard", 2), ("full", 3)):
        rows = load_suite(name).suite.rows.values()
        assert sum(options.name in ("reidentification", "label_leakage", "membership") for options in rows) == expected
    changed = load_suite("full", ["re-identification.candidates=10", "label_leakage.labels=[2]"])
    assert changed.changed == ["re-identification.candidates=10", "label leakage.labels=[2]"]
