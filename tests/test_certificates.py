"""Certificates against closed forms: linear-Gaussian toys, coverage of limits, composition, and what violates them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attncem.config.options.attacks import RidgeOptions
from attncem.config.options.certificates import (
    AccountantOptions,
    EvidenceOptions,
    FanoOptions,
    FisherOptions,
    LeakageOptions,
    ShannonOptions,
)
from attncem.config.options.channels import LocalDPOptions
from attncem.config.threats import THREATS, with_releases
from attncem.judging.auditing import Case, measure
from attncem.judging.certificates.accountant import most_within
from attncem.judging.certificates.coding import Coding, Sample, Wanted
from attncem.judging.certificates.fano import largest_hit_rate
from attncem.judging.certificates.images import Components
from attncem.judging.certificates.local_privacy import smallest_epsilon
from attncem.judging.certificates.mixture import Judged, fit_cells, gaussian_nats, laplace_nats
from attncem.judging.certificates.shannon import least_error, neighbour_entropy, normal_entropy
from attncem.records.audit import Row
from attncem.records.bounds import Bound
from attncem.records.statistics import bootstrap_mean, mean_limit
from toys import Toy

TOYS = st.builds(
    lambda seed, side, features, rank, decade: Toy.drawn(
        seed, side, features, min(rank, features, side**2), 10**decade
    ),
    st.integers(0, 10**6),
    st.integers(2, 4),
    st.integers(1, 12),
    st.integers(1, 8),
    st.floats(-2, 0),
)
LAWS = settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
IMAGES = 1500


def judged(case: Case, options: Any) -> Row:
    row = measure(case, options.name, options, seed=0).row
    assert row.ok, row.reason
    return row


def three_errors(bound: Bound) -> float:
    """Three standard errors of its value, from the 95 % interval."""
    return 3 * (bound.high - bound.low) / 3.92 + 1e-9


# linear-Gaussian toys


@LAWS
@given(TOYS)
def test_bounds_enclose_information_and_least_error(toy: Toy) -> None:
    case = toy.case(IMAGES)
    upper = judged(case, LeakageOptions()).bounds["leakage"]
    told = judged(case, EvidenceOptions()).bounds
    assert upper.value >= toy.nats() - three_errors(upper)
    assert upper.value <= toy.nats() + three_errors(upper) + len(toy.matrix) / 100, "and it is not loose"
    assert told["infonce"].value <= toy.nats() + three_errors(told["infonce"])
    assert told["decoder"].value <= toy.nats() + three_errors(told["decoder"])
    for name, bound in judged(case, ShannonOptions()).bounds.items():
        assert 0 <= bound.claim <= 1.02 * toy.mmse, name
    ridge = judged(case, RidgeOptions())
    assert toy.mmse <= ridge.mse.mean + 1.5 * (ridge.mse.high - ridge.mse.low)


@LAWS
@given(TOYS)
def test_fisher_information_is_the_closed_form_and_bounds_those_it_is_for(toy: Toy) -> None:
    bounds = judged(toy.case(300), FisherOptions(probes=12)).bounds
    assert bounds["dfil"].value == pytest.approx(toy.dfil, rel=1e-4)
    assert bounds["mse_unbiased"].value == pytest.approx(min(1, 1 / toy.dfil), rel=1e-4)
    assert "unbiased" in bounds["mse_unbiased"].assumptions and "smooth" in bounds["mse_unbiased"].assumptions
    assert bounds["mse_unbiased"].kind == "bound" and bounds["mse_van_trees"].kind == "estimate"
    assert bounds["mse_van_trees"].claim <= 1.1 * toy.mmse
    if np.linalg.matrix_rank(toy.matrix) == toy.pixels:  # then there is an unbiased attacker: least squares
        error = toy.std**2 * np.trace(np.linalg.inv(toy.matrix.T @ toy.matrix)) / toy.pixels
        assert 1 / toy.dfil <= error * (1 + 1e-9)


def test_one_over_dfil_does_not_bind_an_attacker_who_knows_what_images_look_like() -> None:
    toy = Toy(0.01 * np.eye(9), np.eye(9), 1.0)
    bounds = judged(toy.case(300), FisherOptions()).bounds
    assert bounds["mse_unbiased"].value == pytest.approx(1.0)
    assert toy.mmse < 0.01 < bounds["mse_unbiased"].value


def test_random_probes_find_the_trace() -> None:
    toy = Toy.drawn(3, 4, 40, 8, 0.3)
    found = judged(toy.case(400), FisherOptions(probes=16)).bounds["dfil"]
    assert found.low <= toy.dfil <= found.high
    assert found.value != pytest.approx(toy.dfil, rel=1e-6), "it was not computed exactly"


@pytest.mark.parametrize("axes", ["features", "principal"])
def test_the_diagonal_is_safe_and_principal_axes_are_tighter(axes: str) -> None:
    toy = Toy.drawn(5, 4, 12, 3, 0.05)
    found = judged(toy.case(IMAGES), LeakageOptions(axes=axes, cells="one")).bounds["leakage"]
    turned = toy.matrix @ toy.covariance @ toy.matrix.T
    diagonal = 0.5 * np.log1p(np.diag(turned) / toy.std**2).sum()
    expected = diagonal if axes == "features" else toy.nats()
    assert found.value == pytest.approx(expected, abs=three_errors(found) + 0.1)
    assert diagonal > toy.nats() + 1
    assert found.by == f"one, {axes}"


# several releases


@LAWS
@given(TOYS, st.sampled_from([2, 4, 16]))
def test_the_accountant_composes_as_derived(toy: Toy, releases: int) -> None:
    rows = judged(toy.case(IMAGES), AccountantOptions(releases=(1, releases)))
    once, often = rows.bounds["leakage@1"], rows.bounds[f"leakage@{releases}"]
    seen = toy.case(IMAGES, with_releases(THREATS["train"], releases))
    for of in (once, often):
        cells, axes = of.by.split(", ")
        same = judged(seen, LeakageOptions(cells=cells, axes=axes)).bounds["leakage"]  # type: ignore[arg-type]
        if of is once:
            assert once.value <= same.value <= releases * once.value + 1e-9, "in the same cells and axes"
            assert often.value <= same.value + three_errors(same)
        else:
            assert often.value == pytest.approx(same.value, rel=1e-9)
    less_noise = replace(toy, std=toy.std / releases**0.5)
    assert less_noise.nats() == pytest.approx(toy.nats(releases))
    assert often.value >= toy.nats(releases) - three_errors(often)


def test_a_budget_is_spent_where_the_next_release_would_exceed_it() -> None:
    case = Toy.drawn(1, 3, 6, 4, 0.2).case(IMAGES)
    found = judged(case, AccountantOptions(releases=(1,), budget=6.0)).bounds["releases"]
    count = int(found.value)
    spent = judged(case, AccountantOptions(releases=(count, count + 1))).bounds
    assert spent[f"leakage@{count}"].claim <= 6.0 < spent[f"leakage@{count + 1}"].claim
    assert found.by == "6 nats"
    poor = judged(case, AccountantOptions(releases=(1,), budget=1e-3)).bounds["releases"]
    assert (poor.value, poor.vacuous) == (0.0, True)


@pytest.mark.parametrize("limit", [0, 1, 5, 64, 1000])
def test_most_within_finds_the_last(limit: int) -> None:
    assert most_within(lambda count: count <= limit, 1000) == limit
    assert most_within(lambda count: count <= limit, 40) == min(limit, 40)


def test_keyed_noise_costs_once_however_often_it_is_asked() -> None:
    channel = [{"name": "gaussian", "noise_std": 0.1, "noise": "keyed"}]
    opened = Toy.drawn(2, 3, 5, 3, 0.1).subject(200, channel)
    opened.model.channel.bind(bytes(range(32)), "toy")  # type: ignore[operator]
    case = Case(opened, THREATS["train"])
    bounds = judged(case, AccountantOptions()).bounds
    assert {bound.value for bound in bounds.values()} == {bounds["leakage@1"].value}
    assert "key_secret" in bounds["leakage@1"].assumptions
    assert "releases" not in bounds, "no budget is ever spent"


# the confidence of the limit


def features(rng: np.random.Generator, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Three classes of unequal size, skewed features of unequal spread."""
    labels = rng.choice(3, count, p=[0.5, 0.3, 0.2])
    scale = np.array([[0.2, 1.0, 3.0, 0.5], [1.0, 0.1, 0.4, 2.0], [0.6, 0.6, 0.05, 1.5]])[labels]
    drawn = (rng.exponential(size=(count, 4)) - 1) * scale + 3 * labels[:, None]
    return torch.from_numpy(drawn).float(), torch.from_numpy(labels)


def test_the_limit_covers_the_value_of_many_images() -> None:
    """At least 93 % of 1,000 resamplings at the nominal 95 %, on skewed features that no normal law has."""
    std, shares = 0.5, np.array([0.5, 0.3, 0.2])
    spread = np.array([[0.2, 1.0, 3.0, 0.5], [1.0, 0.1, 0.4, 2.0], [0.6, 0.6, 0.05, 1.5]])
    inside = (0.5 * np.log1p((spread / std) ** 2)).sum(1)
    value = float(-(shares * np.log(shares)).sum() + (shares * inside).sum())
    rng, covered, excess = np.random.default_rng(20), 0, []
    for number in range(1000):
        z, y = features(rng, 300)
        limit = mean_limit(Judged("gaussian", z, y, 3, number).values(std), num_resamples=400)
        covered += limit >= value
        excess.append(limit / value - 1)
    assert covered >= 930
    assert np.mean(excess) < 0.1, "and not by being loose"


@pytest.mark.parametrize("upper", [True, False])
def test_a_one_sided_limit_covers_as_often_as_it_says(upper: bool) -> None:
    rng = np.random.default_rng(3)
    limits = np.array([mean_limit(rng.exponential(size=200), upper=upper, num_resamples=400) for _ in range(1000)])
    assert 0.925 < (limits > 1 if upper else limits < 1).mean() < 0.97


def test_a_limit_lies_inside_the_interval_on_its_side() -> None:
    values = np.random.default_rng(0).exponential(size=500)
    both = bootstrap_mean(values)
    assert both.mean < mean_limit(values) < both.high
    assert both.low < mean_limit(values, upper=False) < both.mean
    assert mean_limit(np.full(5, 2.0)) == 2.0
    with pytest.raises(ValueError, match="no values"):
        mean_limit(np.empty(0))


# the parts


def entropy_by_sum(density: np.ndarray[Any, Any], step: float) -> float:
    inside = density[density > 0]
    return float(-(inside * np.log(inside)).sum() * step)


@pytest.mark.parametrize("spread", [0.05, 0.5, 3.0])
def test_laplace_noise_has_its_own_formula(spread: float) -> None:
    """Of features on two points: I by adding up densities, and the bound above it, 0 where nothing varies."""
    scale, step = 0.4, 1e-3
    grid = np.arange(-30, 30, step)
    density = sum(np.exp(-np.abs(grid - side * spread) / scale) / (4 * scale) for side in (-1, 1))
    information = entropy_by_sum(density, step) - 1 - math.log(2 * scale)
    away = torch.tensor([[-spread], [spread]], dtype=torch.float64)
    bound = float(laplace_nats(away, torch.full((2, 1), spread, dtype=torch.float64), scale).mean())
    assert information <= bound + 1e-6
    by_variance = 0.5 * math.log1p(spread**2 / (2 * scale**2)) + 0.5 * math.log(math.pi / math.e)
    assert bound < by_variance + (0.3 if spread > scale else 0.0), "a normal density costs 0.07 where nothing varies"
    still = torch.zeros(1, 1, dtype=torch.float64)
    assert float(laplace_nats(still, still, scale)) == pytest.approx(0.0)


def test_normal_noise_gives_the_formula_where_the_fit_is_the_law() -> None:
    away = torch.tensor([[-2.0], [2.0]], dtype=torch.float64)
    nats = gaussian_nats(away, torch.full((2, 1), 4.0, dtype=torch.float64), 0.25)
    assert float(nats.mean()) == pytest.approx(0.5 * math.log(17))
    wrong = [
        float(gaussian_nats(away, torch.full((2, 1), v, dtype=torch.float64), 0.25).mean()) for v in (0.0, 2.0, 9.0)
    ]
    assert min(wrong) > float(nats.mean()), "any other spread only raises it"


def test_cells_without_images_have_a_spread_and_a_share() -> None:
    fit = fit_cells("gaussian", torch.randn(50, 3), torch.zeros(50, dtype=torch.int64), 4)
    assert bool((fit.spreads > 0).all()) and bool(fit.log_shares.isfinite().all())
    assert float(fit.log_shares.exp().sum()) == pytest.approx(1.0)


def test_dividing_into_classes_pays_where_they_lie_apart() -> None:
    rng = np.random.default_rng(1)
    z, y = features(rng, 2000)
    nats = {
        cells: Coding(Wanted(cells, "features", 3, 4)).judged("gaussian", Sample(5 * z, y), 0).values(0.2).mean()
        for cells in ("one", "class")
    }
    assert nats["class"] < nats["one"] - 0.5


@given(st.floats(0, 20), st.sampled_from([2, 10, 1000, 10**6]))
@settings(deadline=None, derandomize=True)
def test_fano_is_solved_for_the_hit_rate(nats: float, candidates: int) -> None:
    hit = largest_hit_rate(nats, candidates)
    assert 1 / candidates - 1e-12 <= hit <= min(1.0, (nats + math.log(2)) / math.log(candidates)) + 1e-9
    if 1 / candidates + 1e-9 < hit < 1:
        binary = -(hit * math.log(hit) + (1 - hit) * math.log(1 - hit))
        assert math.log(candidates) - nats == pytest.approx(binary + (1 - hit) * math.log(candidates - 1), abs=1e-6)


def test_nothing_is_told_by_nothing() -> None:
    assert largest_hit_rate(0.0, 1000) == pytest.approx(1e-3, rel=1e-3)
    assert largest_hit_rate(7.0, 1000) == 1.0


def test_epsilon_of_several_releases_is_that_of_less_noise() -> None:
    own = LocalDPOptions(clip=1.0, epsilon=3.0, delta=1e-5)
    ratio = own.added_noise_std / 2
    assert smallest_epsilon(1e-5, ratio, 1) == pytest.approx(3.0, rel=1e-6)
    four = LocalDPOptions(clip=1.0, epsilon=smallest_epsilon(1e-5, ratio, 4), delta=1e-5)
    assert four.added_noise_std == pytest.approx(own.added_noise_std / 2, rel=1e-6)


@pytest.mark.parametrize("count", [1, 4, 8, 16])
def test_entropy_by_neighbours_is_near_that_of_a_normal_law(count: int) -> None:
    places = torch.randn(2000, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scaled = Components(torch.eye(16), 0.1 * places, torch.full((16,), 0.01, dtype=torch.float64))
    true = 0.5 * count * math.log(2 * math.pi * math.e * 0.01)
    assert normal_entropy(scaled, count).nats == pytest.approx(true)
    found = neighbour_entropy(scaled, count)
    assert found.nats == pytest.approx(true, abs=0.05 * count)
    assert 0 < found.error < 0.2


def test_uniform_images_have_less_entropy_than_a_normal_law_says() -> None:
    places = torch.rand(2000, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 0.5
    found = Components(torch.eye(4), places, places.square().mean(0))
    assert neighbour_entropy(found, 4).nats < normal_entropy(found, 4).nats - 0.3
    assert neighbour_entropy(found, 4).nats == pytest.approx(0.0, abs=0.3), "edges are taken for more room"


def test_the_least_error_of_a_normal_law_without_information_is_its_variance() -> None:
    nats = 0.5 * 9 * math.log(2 * math.pi * math.e * 0.02)
    assert least_error(nats, 0.0, 9, 9) == pytest.approx(0.02)
    assert least_error(nats, 4.5, 9, 9) == pytest.approx(0.02 / math.e)
    assert least_error(nats, 1e9, 9, 9) == 0.0


def test_fano_says_what_it_assumes() -> None:
    found = judged(Toy.drawn(1, 3, 6, 4, 0.2).case(300), FanoOptions(candidates=(2, 10**9))).bounds
    assert found["rank_1@2"].vacuous and not found["rank_1@1000000000"].vacuous
    assert "candidates_by_lot" in found["rank_1@2"].assumptions
