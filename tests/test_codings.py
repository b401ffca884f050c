"""Leakage bounds of every density against laws whose information is known; what is no bound is caught by them."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from attncem.base.seeding import make_generator
from attncem.base.texts import speaking
from attncem.config.options.certificates import AccountantOptions, BeyondLabelOptions, EvidenceOptions, LeakageOptions
from attncem.config.threats import THREATS, with_releases
from attncem.judging.auditing import Case, measure
from attncem.judging.certificates import kernels
from attncem.judging.certificates.choosing import Facts, candidates
from attncem.judging.certificates.coding import Coding, Learner, Sample, Wanted
from attncem.judging.certificates.leakage import ground_of
from attncem.judging.certificates.mixture import Judged, fit_cells, image_nats
from attncem.records.audit import AuditResult
from attncem.records.bounds import Bound
from attncem.records.certificates import certificate_findings
from attncem.reporting.runs.certificates import blocks, certificate_table, describe
from attncem.reporting.runs.methods import Entry
from attncem.reporting.table_formats import as_csv
from attncem.reporting.wording import describe_claim
from made_runs import make_audit, row, rows
from probing import LEAKY, NUM_CLASSES, subject
from toys import Law

KINDS: dict[str, Any] = {"leakage": LeakageOptions, "beyond_label": BeyondLabelOptions}
FACTS = Facts("gaussian", 6, 3, has_answers=False)
PAIRS = {
    kind: list(dict.fromkeys((one.cells, one.shape) for one in candidates(options(), FACTS)))
    for kind, options in KINDS.items()
}
"""The cells and the shape of every candidate."""
EACH = [(kind, *pair) for kind, pairs in PAIRS.items() for pair in pairs]


def judged(case: Case, kind: str, **options: Any) -> Bound:
    row = measure(case, kind, KINDS[kind](**options), seed=0).row
    assert row.ok, row.reason
    return row.bounds[kind]


def three_errors(bound: Bound) -> float:
    """Three standard errors of its value, from the 95 % interval."""
    return 3 * (bound.high - bound.low) / 3.92 + 1e-9


# laws whose information is known


@cache
def normal_classes() -> tuple[Case, dict[str, float]]:
    """Three normal classes that overlap, in 6 features: I(x; z) by draws, I(x; z | y) in closed form."""
    toy = Law.classes(3, 3, 6, 3, 0.05)
    return toy.case(2000), {"leakage": toy.whole(), "beyond_label": toy.beyond()}


@cache
def points() -> tuple[Case, dict[str, float]]:
    """Three classes of four points each in 4 features: a law that no normal density fits."""
    places = np.random.default_rng(5).normal(size=(12, 4)) * 0.6

    def draw(rng: np.random.Generator, count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        drawn = rng.integers(12, size=count)
        return places[drawn], drawn // 4

    toy = Law(np.zeros((3, 4, 4)), np.eye(4), 0.2, 3, draw)
    rng = np.random.default_rng(8)
    drawn = rng.integers(12, size=40_000)
    z = places[drawn] + toy.std * rng.normal(size=(len(drawn), 4))
    logs = -0.5 * np.square(z[:, None] - places).sum(2) / toy.std**2
    right = logs[np.arange(len(drawn)), drawn]
    inside = np.where(drawn[:, None] // 4 == np.arange(12) // 4, logs, -np.inf)
    truth = {
        "leakage": math.log(12) + (right - np.logaddexp.reduce(logs, axis=1)).mean(),
        "beyond_label": math.log(4) + (right - np.logaddexp.reduce(inside, axis=1)).mean(),
    }
    return toy.case(2000), truth


@cache
def bounded() -> tuple[Case, dict[str, float]]:
    """Independent features between -1 and 1, labels by lot: a law with edges, where labels tell nothing."""

    def draw(rng: np.random.Generator, count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        return rng.uniform(-1, 1, size=(count, 4)), rng.integers(3, size=count)

    toy = Law(np.zeros((3, 4, 4)), np.eye(4), 0.1, 3, draw)
    grid = np.linspace(-2, 2, 40_001)
    erf = np.vectorize(math.erf)
    density = (erf((grid + 1) / toy.std / 2**0.5) - erf((grid - 1) / toy.std / 2**0.5)) / 4
    inside = density[density > 0]
    entropy = -(inside * np.log(inside)).sum() * (grid[1] - grid[0])
    nats = 4 * float(entropy - 0.5 * math.log(2 * math.pi * math.e * toy.std**2))
    return toy.case(2000), {"leakage": nats, "beyond_label": nats}


LAWS = {"normal classes": normal_classes, "points": points, "bounded": bounded}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("kind", "cells", "axes"), EACH)
def test_no_density_goes_below_the_information(law: str, kind: str, cells: str, axes: str) -> None:
    case, truth = LAWS[law]()
    bound = judged(case, kind, cells=cells, axes=axes)
    assert bound.value >= truth[kind] - three_errors(bound)
    assert bound.by == f"{cells}, {axes}"


@pytest.mark.parametrize(("law", "slack"), [("normal classes", 0.15), ("points", 0.25), ("bounded", 0.8)])
@pytest.mark.parametrize("kind", KINDS)
def test_the_chosen_one_is_close_to_it(law: str, kind: str, slack: float) -> None:
    case, truth = LAWS[law]()
    bound = judged(case, kind)
    assert truth[kind] - three_errors(bound) <= bound.value <= truth[kind] + three_errors(bound) + slack
    assert bound.claim >= truth[kind] - three_errors(bound) / 3
    assert bound.about == kind and not bound.vacuous


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_is_not_worse_than_any_other(kind: str) -> None:
    """It is chosen on training images, so it may lose by what these say of evaluation images, and by no more."""
    for law in LAWS.values():
        case, _ = law()
        best = judged(case, kind)
        others = [judged(case, kind, cells=cells, axes=axes) for cells, axes in PAIRS[kind]]
        assert best.value <= min(bound.value for bound in others) + three_errors(best)


@pytest.mark.parametrize("releases", [4, 64])
def test_several_releases_beyond_the_label(releases: int) -> None:
    toy = Law.classes(4, 3, 6, 3, 0.2)
    bound = judged(toy.case(2000, with_releases(THREATS["train"], releases)), "beyond_label")
    assert bound.value == pytest.approx(toy.beyond(releases), abs=three_errors(bound) + 0.15)


# what is no bound


def in_sample(sample: Sample, coding: Coding, std: float) -> float:
    """The mistake: densities that are fitted to the images that they judge."""
    made = coding.judged("gaussian", sample, 0)
    assert isinstance(made, Judged)
    fit = fit_cells("gaussian", made.features, made.cells, coding.num_cells, made.groups)
    return float(image_nats("gaussian", fit, made.features, made.cells, std, 1).mean())


def test_fewer_images_than_features_do_not_break_the_bound_and_would_break_a_fit_to_judged_images() -> None:
    toy = Law.classes(6, 7, 40, 3, 0.05)
    case = toy.case(90)
    for kind in KINDS:
        for cells, axes in PAIRS[kind]:
            bound = judged(case, kind, cells=cells, axes=axes)
            assert bound.value >= toy.beyond() - three_errors(bound), (kind, cells, axes)
    z = (case.x.flatten(1) - 0.5) @ torch.from_numpy(toy.matrix).float().T
    sample = Sample(z, case.y)
    coding = Learner(sample).coding(Wanted("class", "full", 3, 4, inside=True))
    values = coding.judged("gaussian", sample, 0).values(toy.std)
    error = 3 * values.std() / len(values) ** 0.5
    assert in_sample(sample, coding, toy.std) < toy.beyond() - error


def test_a_difference_of_two_numbers_is_no_bound() -> None:
    """Where z does not tell the class, the leakage less the entropy of labels is less than what leaks beyond them."""
    case, truth = bounded()
    leakage, beyond = judged(case, "leakage"), judged(case, "beyond_label")
    assert leakage.limit is not None
    assert leakage.limit - math.log(3) < truth["beyond_label"] < beyond.claim


def test_soft_cells_are_never_above_hard_ones() -> None:
    case, _ = normal_classes()
    z, groups = case.model.encode(case.x), torch.arange(6) // 2
    cells = 2 * case.y + (z[:, 0] > z[:, 0].median())
    for inside in (None, groups):
        hard, soft = (
            Judged("gaussian", z, cells, 6, 0, groups=inside, soft=soft).values(0.05) for soft in (False, True)
        )
        assert (soft <= hard + 1e-9).all() and soft.mean() < hard.mean() - 0.01


def test_nothing_of_the_judged_images_decides() -> None:
    """Other evaluation images change neither the coding nor the choice."""
    case, _ = normal_classes()
    first = ground_of(case, BeyondLabelOptions()).coding
    other = Case(case.subject, THREATS["train"])
    other.x, other.y = other.x.flip(0)[:200], other.y.flip(0)[:200]
    second = ground_of(other, BeyondLabelOptions()).coding
    assert first.wanted == second.wanted
    assert (first.axes is None and second.axes is None) or torch.equal(first.axes, second.axes)  # type: ignore[arg-type]


def test_the_noise_that_chooses_a_kernel_does_not_judge_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = []

    def generator(device: torch.device, seed: int, *stream: str) -> torch.Generator:
        seeds.append((seed, *stream))
        return make_generator(device, seed, *stream)

    monkeypatch.setattr(kernels, "make_generator", generator)
    judged(Law.classes(4, 3, 6, 3, 0.2).case(200), "leakage", cells="class", axes="kernel")
    assert len(seeds) == len(kernels.PULLS) + 1
    assert seeds[-1] not in seeds[:-1]


# what the data and the model lack


def test_without_labels_there_is_nothing_beyond_them() -> None:
    opened = subject(LEAKY, 0.2)
    case = Case(replace(opened, spec=replace(opened.spec, num_classes=0)), THREATS["train"])
    row = measure(case, "beyond_label", BeyondLabelOptions(), seed=0).row
    assert (row.outcome, "no labels" in row.reason) == ("not_applicable", True)


class Answers(nn.Module):
    """A server that answers with the class that the dark pixel tells."""

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return -(10 * z[:, 0, 0, 0, None] - torch.arange(NUM_CLASSES)).abs()


def test_cells_by_the_answer_need_a_server() -> None:
    without = Case(subject(LEAKY, 0.2), THREATS["train"])
    with_server = Case(subject(LEAKY, 0.2, Answers()), THREATS["train"])
    for kind, options in KINDS.items():
        row = measure(without, kind, options(cells="answer"), seed=0).row
        assert (row.outcome, "no server half" in row.reason) == ("not_applicable", True)
        assert judged(with_server, kind, cells="answer", axes="features").by == "answer, features"
        refused = measure(with_server, kind, options(cells="cluster", axes="full"), seed=0).row
        assert (refused.outcome, "axes of each cell" in refused.reason) == ("not_applicable", True)


# evidence


def test_evidence_compares_all_images_and_says_where_it_ends() -> None:
    case = Case(subject(LEAKY, 0.01), THREATS["train"])
    bound = measure(case, "evidence", EvidenceOptions(candidates=None), seed=0).row.bounds["infonce"]
    assert bound.ceiling == pytest.approx(math.log(len(case.x))) and bound.at_ceiling
    few = measure(case, "evidence", EvidenceOptions(candidates=10), seed=0).row.bounds["infonce"]
    assert few.ceiling == pytest.approx(math.log(10))
    loud = measure(Case(subject(LEAKY, 5.0), THREATS["train"]), "evidence", EvidenceOptions(), seed=0).row
    assert not loud.bounds["infonce"].at_ceiling


def test_only_evidence_has_a_ceiling_to_be_at() -> None:
    case, _ = points()
    bounds = measure(case, "accountant", AccountantOptions(releases=(1,)), seed=0).row.bounds
    assert not any(bound.at_ceiling for bound in bounds.values())
    near = Bound(6.3, "nats", 6.2, 6.4, "bound", [], "leakage", "at_least", 6.25, ceiling=6.9)
    assert near.at_ceiling and not replace(near, value=6.1).at_ceiling


# pages


def audit_of(bounds: dict[str, Bound]) -> AuditResult:
    certificate = replace(row("leakage", 0.1, kind="certificate", scores={}), bounds=bounds)
    return make_audit(made=[*rows(0.01), certificate])


def test_pages_say_that_evidence_is_at_its_ceiling() -> None:
    near = Bound(6.3, "nats", 6.2, 6.4, "bound", [], "leakage", "at_least", 6.25, ceiling=6.9)
    far = replace(near, value=5.0, limit=4.9)
    result = audit_of({"infonce": near, "beyond_label": replace(far, about="beyond_label", direction="at_most")})
    with speaking("en"):
        assert describe_claim(near) == "at least 6.25 nats (95 % confidence), at the ceiling of 6.9"
        assert "ceiling" not in describe_claim(far)
        assert "at the ceiling of 6.9" in describe(result) and "at most 4.9 nats" in describe(result)
        block = blocks([Entry(None, result, "toy", 0)])[0]  # type: ignore[arg-type]
        assert "6.9,True" in as_csv(certificate_table(block, 0))
    with speaking("zh"):
        assert "已达上限 6.9" in describe_claim(near) and "已达其上限 6.9" in describe(result)


def test_evidence_above_what_a_label_and_the_bound_allow_is_a_contradiction() -> None:
    beyond = Bound(1.0, "nats", 0.9, 1.1, "bound", [], "beyond_label", "at_most", 1.1)
    free = math.log(audit_of({}).subject.num_classes)
    for claim, is_wrong in ((1.0 + free, False), (1.2 + free, True)):
        proof = Bound(claim, "nats", claim, claim, "bound", [], "leakage", "at_least", claim)
        codes = [item.code for item in certificate_findings(audit_of({"beyond_label": beyond, "infonce": proof}))]
        assert ("bound_violated" in codes) == is_wrong
