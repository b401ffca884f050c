"""Bounds by bits against toys whose information is known exactly: a rounded value, with noise before and after it.

The image is one of a few values, equally likely, and the client releases it as it is. I(value; k releases) is summed or
integrated exactly, and no bound may lie below it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import rel_entr, xlogy
from scipy.stats import binom, norm
from torch import Tensor, nn

from attncem.config.loading.load import load_config
from attncem.config.options.certificates import (
    AccountantOptions,
    BeyondLabelOptions,
    CodeEntropyOptions,
    FanoOptions,
    LeakageOptions,
    QuantisationOptions,
)
from attncem.config.threats import THREATS, with_releases
from attncem.data.batches import DeviceData
from attncem.judging.auditing import Case, measure
from attncem.judging.certificates import bits, code_entropy, passage
from attncem.judging.certificates.code_laws import Classes, Codes, Counted, Law, Linked, Uniform, choose_law
from attncem.judging.certificates.leakage import upper_leakage
from attncem.models.channels import build_channel
from attncem.records.bounds import Bound
from attncem.records.statistics import mean_limit
from probing import DATA, subject
from toys import Law as ImageLaw

QUANTISE = {"name": "quantise", "bits": 2}
STD = 0.3


class First(nn.Module):
    """The first pixels of the image."""

    def __init__(self, count: int = 1) -> None:
        super().__init__()
        self.count = count

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, : self.count]


def noise(std: float = STD, **options: Any) -> dict[str, Any]:
    return {"name": "gaussian", "noise_std": std, **options}


def case_of(stages: list[dict[str, Any]], releases: int = 1, jitter: int = 0, count: int = 1) -> Case:
    opened = subject(First(count))
    opened.model.channel = build_channel(load_config({"channel": stages}).config.channel).eval()
    return Case(opened, replace(with_releases(THREATS["train"], releases), jitter=jitter))


def row_of(case: Case, options: Any) -> Any:
    return measure(case, options.name, options, seed=0).row


def limit_of(case: Case, **options: Any) -> Bound:
    row = row_of(case, QuantisationOptions(**options))
    assert row.ok, row.reason
    bound: Bound = row.bounds["leakage"]
    return bound


# what k releases tell exactly


def information(shares: np.ndarray[Any, Any]) -> float:
    """I(value; release) from the probability (or density times step) of each release, [values, releases]."""
    kept = np.where(shares > 1e-200, shares, 0.0)
    return float(rel_entr(kept, kept.mean(0)).sum() / len(shares))


def noise_after(values: np.ndarray[Any, Any], levels: int, std: float, releases: int) -> float:
    """The code plus fresh normal noise: the mean of k releases, of noise σ/√k, contains all information."""
    codes, width = np.round(values * (levels - 1)) / (levels - 1), std / releases**0.5
    grid = np.arange(-8 * width, 1 + 8 * width, width / 64)
    return information(norm.pdf(grid[None], codes[:, None], width) * width / 64)


def noise_before(values: np.ndarray[Any, Any], std: float, releases: int) -> float:
    """One bit of the value plus fresh normal noise: of k releases, the number of ones contains all information."""
    return information(binom.pmf(np.arange(releases + 1)[None], releases, norm.sf((0.5 - values[:, None]) / std)))


@dataclass(frozen=True)
class Toy:
    """A chain of stages, its exact information in k releases, and whether the noise comes first."""

    stages: list[dict[str, Any]]
    before: bool

    def nats(self, releases: int) -> float:
        if self.before:
            return noise_before(np.linspace(0, 1, 64), STD, releases)
        return noise_after(np.linspace(0, 1, 4), 4, STD / 10, releases)


TOYS = {
    "noise, rounding": Toy([noise(), QUANTISE | {"bits": 1}], before=True),
    "rounding, noise": Toy([QUANTISE, noise(STD / 10)], before=False),
}
RELEASES = (1, 4, 64, 1024)


def check(toy: Toy) -> None:
    """No bound by bits is below the exact information, however often the image is released."""
    for releases in RELEASES:
        assert toy.nats(releases) <= limit_of(case_of(toy.stages, releases)).claim * (1 + 1e-9), releases


@pytest.mark.parametrize("name", TOYS)
def test_no_bound_is_below_what_the_releases_tell(name: str) -> None:
    check(TOYS[name])


def test_noise_after_the_rounding_never_adds_and_the_bound_is_reached() -> None:
    toy = TOYS["rounding, noise"]
    bounds = [limit_of(case_of(toy.stages, releases)) for releases in RELEASES]
    assert {bound.claim for bound in bounds} == {2 * math.log(2)}
    assert all(bound.any_number and bound.assumptions == ["one_runtime"] for bound in bounds)
    assert toy.nats(1024) == pytest.approx(2 * math.log(2), rel=1e-9)


def test_noise_before_the_rounding_counts_every_release() -> None:
    toy = TOYS["noise, rounding"]
    bounds = [limit_of(case_of(toy.stages, releases)) for releases in RELEASES]
    assert [bound.claim for bound in bounds] == pytest.approx([releases * math.log(2) for releases in RELEASES])
    assert not any(bound.any_number or bound.assumptions for bound in bounds)
    assert toy.nats(1024) > 2 * math.log(2), "several codes of one image tell more than one can hold"


def test_a_wrong_count_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = bits.roundings
    monkeypatch.setattr(bits, "roundings", lambda channel: [replace(one, repeats=True) for one in counted(channel)])
    check(TOYS["rounding, noise"])
    with pytest.raises(AssertionError):
        check(TOYS["noise, rounding"])


def test_a_bound_with_a_bit_less_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = bits.roundings
    monkeypatch.setattr(
        bits, "roundings", lambda channel: [replace(one, bits=one.bits - 1) for one in counted(channel)]
    )
    for toy in TOYS.values():
        with pytest.raises(AssertionError):
            check(toy)


# the bounds by noise, with random numbers before and behind the rounding


def grid_case(stages: list[dict[str, Any]], releases: int) -> Case:
    """Images of one pixel with 64 equally likely values, of which the client subtracts ½."""

    def draw(rng: np.random.Generator, count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        return np.linspace(-0.5, 0.5, 64)[rng.integers(64, size=(count, 1))], np.zeros(count, dtype=np.int64)

    law = ImageLaw(np.zeros((1, 1, 1)), np.eye(1), STD, 1, draw)
    return law.case(400, with_releases(THREATS["train"], releases), channel=stages)


def noise_around(before: float, after: float, releases: int) -> float:
    """Part of the information of noise, one bit and noise again: that of the number of releases above ½."""
    one = norm.sf((0.5 - np.linspace(0, 1, 64)[:, None]) / before)
    above = one * norm.cdf(0.5 / after) + (1 - one) * norm.sf(0.5 / after)
    return information(binom.pmf(np.arange(releases + 1)[None], releases, above))


@pytest.mark.parametrize("stds", [(0.3, 0.31), (0.31, 0.3)], ids=["strongest last", "strongest first"])
def test_no_bound_by_noise_is_below_what_releases_of_two_fresh_noises_tell(stds: tuple[float, float]) -> None:
    before, after = stds
    stages = [noise(before), QUANTISE | {"bits": 1, "low": -0.5, "high": 0.5}, noise(after)]
    for releases in RELEASES:
        case, least = grid_case(stages, releases), noise_around(before, after, releases)
        for options in (LeakageOptions(), BeyondLabelOptions(), AccountantOptions(releases=(releases,))):
            bounds = row_of(case, options).bounds
            (claim,) = (bound.claim for bound in bounds.values() if bound.about != "releases")
            assert least <= claim, (releases, options.name)
    assert noise_around(before, after, 1024) > 2.5


def test_fresh_numbers_before_the_noise_make_every_release_count() -> None:
    stages = [noise(0.3), QUANTISE | {"bits": 1, "low": -0.5, "high": 0.5}, noise(0.31)]
    once, often = (row_of(grid_case(stages, count), LeakageOptions()).bounds["leakage"].claim for count in (1, 16))
    assert often == pytest.approx(16 * once)


KEY = bytes(range(32))


def test_keyed_noise_behind_fresh_numbers_has_no_bound_for_several_releases() -> None:
    case = case_of([{"name": "dropout"}, noise(noise="keyed")], count=12)
    case.model.channel.bind(KEY, "toy")  # type: ignore[operator]
    row = row_of(case, AccountantOptions(releases=(1, 8)))
    assert (row.outcome, "fresh noise before keyed noise" in row.reason) == ("not_applicable", True)
    assert list(row_of(case, AccountantOptions(releases=(1,))).bounds) == ["leakage@1"]


def test_a_keyed_stage_behind_fresh_noise_needs_its_key() -> None:
    """It reads the image again, so without the secret a release would tell the image itself."""
    case = case_of([noise(), {"name": "dropout", "noise": "keyed"}], count=12)
    options = LeakageOptions(axes="features")
    assert row_of(case, options).bounds["leakage"].assumptions == ["same_law"]
    case = case_of([noise(), {"name": "dropout", "noise": "keyed"}], count=12)
    case.model.channel.bind(KEY, "toy")  # type: ignore[operator]
    assert row_of(case, options).bounds["leakage"].assumptions == ["same_law", "key_secret"]


@pytest.mark.parametrize(
    "stage", [noise(), noise() | {"name": "laplace"}, {"name": "quantise", "bits": 1}], ids=lambda stage: stage["name"]
)
@pytest.mark.parametrize("count", [1, 4])
def test_a_few_images_give_no_upper_limit(stage: dict[str, Any], count: int) -> None:
    case = case_of([stage], count=12)
    case.x, case.y = case.x[:count], case.y[:count]
    for options in (LeakageOptions(), BeyondLabelOptions(), CodeEntropyOptions(), AccountantOptions()):
        row = row_of(case, options)
        assert (row.outcome, row.bounds) == ("not_applicable", {}), options.name
    expected = f"an upper limit needs at least 5 evaluation images, but there are {count}"
    assert row_of(case, BeyondLabelOptions()).reason == expected


# chains, keys, jitter, runtimes

K = 6


@pytest.mark.parametrize(
    ("stages", "jitter", "codes"),
    [
        ([QUANTISE], 0, 2),
        ([{"name": "top_k"}, QUANTISE], 0, 2),
        ([QUANTISE, noise(), {"name": "dropout"}], 0, 2),
        ([QUANTISE], 1, 2 * K),
        ([QUANTISE, noise()], 1, 2 * K),
        ([{"name": "dropout"}, QUANTISE], 0, 2 * K),
        ([QUANTISE | {"bits": 5}, noise(), QUANTISE | {"bits": 1}], 0, 5),
        ([QUANTISE | {"bits": 8}, noise(), QUANTISE | {"bits": 1}], 0, K),
        ([noise(noise="keyed"), QUANTISE], 0, 2),
        ([noise(noise="keyed"), QUANTISE], 1, 2 * K),
        ([noise(), noise(noise="keyed"), QUANTISE], 0, 2 * K),
        ([QUANTISE, noise(noise="keyed"), {"name": "top_k"}], 0, None),
        ([noise()], 0, None),
    ],
)
def test_codes_are_counted_where_they_may_differ(stages: list[dict[str, Any]], jitter: int, codes: int | None) -> None:
    case = case_of(stages, K, jitter)
    if any(stage.get("noise") == "keyed" for stage in stages):
        case.model.channel.bind(bytes(range(32)), "toy")  # type: ignore[operator]
    row = row_of(case, QuantisationOptions())
    assert row.ok == (codes is not None)
    if codes is not None:
        assert row.bounds["leakage"].claim == pytest.approx(codes * math.log(2))


@pytest.mark.parametrize("options", [QuantisationOptions(), CodeEntropyOptions()])
def test_a_rounding_before_a_keyed_stage_is_no_missing_rounding(options: Any) -> None:
    row = row_of(case_of([QUANTISE, noise(noise="keyed")], K), options)
    assert "reads the image again" in row.reason
    case = case_of([QUANTISE])
    case.model.channel = nn.Identity()
    assert "the distribution of the channel Identity is not known" in row_of(case, options).reason


def test_without_its_key_keyed_noise_is_fresh() -> None:
    assert limit_of(case_of([noise(noise="keyed"), QUANTISE], K)).claim == pytest.approx(2 * K * math.log(2))


def test_each_runtime_may_have_another_code() -> None:
    assert limit_of(case_of([QUANTISE], K), runtimes=3).claim == pytest.approx(3 * 2 * math.log(2))
    assert limit_of(case_of([noise(), QUANTISE], K), runtimes=3).claim == pytest.approx(K * 2 * math.log(2))


# the entropy of the codes


def drawn(shares: np.ndarray[Any, Any], count: int, seed: int, width: int = 1) -> Codes:
    """Codes of one value, drawn with these shares of their indices."""
    bits_ = round(math.log2(len(shares)))
    values = np.random.default_rng(seed).choice(len(shares), count, p=shares)
    split = values[:, None] >> (bits_ // width * np.arange(width)[::-1]) & (2 ** (bits_ // width) - 1)
    return Codes(torch.from_numpy(split), torch.from_numpy(values % 3), bits_ // width)


def entropy(shares: np.ndarray[Any, Any]) -> float:
    return float(-xlogy(shares, shares).sum())


SKEWED = np.random.default_rng(5).dirichlet(np.full(256, 0.3))


def laws(codes: Codes) -> Iterator[Law]:
    yield Uniform()
    for classes in (1, 3):
        yield Classes(codes, classes)
        yield Linked(codes, classes, 2.0)
    yield from [Counted(law, trust, codes) for law, trust in product([Uniform(), Classes(codes, 3)], [10.0, math.inf])]


@pytest.mark.parametrize("width", [1, 2, 8])
def test_every_law_is_one(width: int) -> None:
    """The shares of all 256 codes sum to at most 1, or its cross-entropy would be no bound."""
    every = drawn(np.full(256, 1 / 256), 1, 0, width)
    index = np.arange(256)[:, None] >> (8 // width * np.arange(width)[::-1]) & (2 ** (8 // width) - 1)
    every = Codes(torch.from_numpy(index), torch.zeros(256, dtype=torch.int64), every.bits)
    for law in laws(drawn(SKEWED, 300, 1, width)):
        assert float(law.log_share(every).exp().sum()) == pytest.approx(1, abs=1e-9), law.name


@pytest.mark.parametrize("width", [1, 2, 8])
@pytest.mark.parametrize("label", range(3))
def test_every_law_is_one_inside_each_class(width: int, label: int) -> None:
    index = np.arange(256)[:, None] >> (8 // width * np.arange(width)[::-1]) & (2 ** (8 // width) - 1)
    every = Codes(torch.from_numpy(index), torch.full((256,), label), 8 // width)
    codes = drawn(SKEWED, 300, 1, width)
    counted = [Counted(law, 10.0, codes, inside=True) for law in (Uniform(), Classes(codes, 3))]
    for law in (*laws(codes), *counted):
        if not isinstance(law, Counted) or law.inside:
            assert float(law.log_share(every, inside=True).exp().sum()) == pytest.approx(1, abs=1e-9), law.name


def test_the_law_inside_the_classes_bounds_the_entropy_inside_them() -> None:
    """Here the code tells its label, so the entropy inside the classes is that of the code less that of the label."""
    law = choose_law(drawn(SKEWED, 4000, 2, 8), 3, inside=True)
    nats = -law.log_share(drawn(SKEWED, 3000, 3, 8)).numpy()
    inside = entropy(SKEWED) - entropy(np.array([SKEWED[label::3].sum() for label in range(3)]))
    assert inside <= mean_limit(nats) <= inside + 0.15


@pytest.mark.parametrize("width", [1, 2, 8])
def test_the_chosen_law_bounds_the_entropy_and_is_near_it(width: int) -> None:
    law = choose_law(drawn(SKEWED, 4000, 2, width), 3)
    nats = -law.log_share(drawn(SKEWED, 3000, 3, width)).numpy()
    assert entropy(SKEWED) <= mean_limit(nats) <= entropy(SKEWED) + 0.15
    assert nats.max() <= 8 * math.log(2) + math.log(256) + 1e-9, "no code costs without limit"


def test_links_between_bits_are_learned() -> None:
    """A random walk of 24 bits: far too many codes to be counted."""
    rng = np.random.default_rng(7)
    values = torch.from_numpy(np.cumsum(rng.random((3000, 24)) < 0.1, 1) % 2)
    codes = Codes(values, torch.zeros(3000, dtype=torch.int64), 1)
    law = choose_law(codes.part(slice(0, 1500)), 1)
    exact = 24 * entropy(np.array([0.1, 0.9]))
    assert "after each other" in law.name
    assert exact <= mean_limit(-law.log_share(codes.part(slice(1500, None))).numpy()) <= 1.1 * exact


def test_the_limit_covers_the_entropy_as_often_as_it_says() -> None:
    """Laws from 400 codes, judged on 400 others: the limit lies below the entropy in about 5 % of the samples."""
    below = 0
    for seed in range(60):
        law = Counted(Classes(drawn(SKEWED, 400, seed, 8), 3), 100.0, drawn(SKEWED, 400, seed, 8))
        below += mean_limit(-law.log_share(drawn(SKEWED, 400, 1000 + seed, 8)).numpy()) < entropy(SKEWED)
    assert below <= 6


def test_equally_likely_codes_reach_the_bits_and_are_never_above() -> None:
    case = case_of([{"name": "quantise", "bits": 2}], 64)
    values = torch.arange(len(case.x)) % 4 / 3
    case.x = values.view(-1, 1, 1, 1).expand_as(case.x).contiguous()
    found = row_of(case, CodeEntropyOptions()).bounds
    most = 2 * math.log(2)
    assert found["entropy"].claim == found["entropy"].ceiling == pytest.approx(most)
    assert found["entropy_plugin"].value == pytest.approx(most)
    assert (found["entropy_plugin"].kind, found["entropy_plugin"].direction) == ("estimate", "at_least")
    assert found["entropy"].any_number and "one_runtime" in found["entropy"].assumptions


def test_pictures_bound_their_code_between_counts_and_cross_entropy() -> None:
    """Twelve pixels of one bit each: the bound by entropy is below the bits, and other certificates use it."""
    case = case_of([{"name": "quantise", "bits": 1}], 64, count=12)
    found = row_of(case, CodeEntropyOptions())
    upper, lower = found.bounds["entropy"], found.bounds["entropy_plugin"]
    assert lower.claim <= lower.value <= upper.value <= upper.claim < 12 * math.log(2)
    used = upper_leakage(case)
    assert (used.claim, used.assumptions) == (upper.claim, ["same_law", "one_runtime"])
    fano = row_of(case, FanoOptions(candidates=(10**9,)))
    assert "one_runtime" in fano.bounds["rank_1@1000000000"].assumptions


@pytest.mark.parametrize(
    ("stages", "jitter", "count", "said"),
    [
        ([noise(), QUANTISE], 0, 1, "random numbers enter before"),
        ([noise(noise="keyed"), QUANTISE], 0, 1, "random numbers enter before"),
        ([noise()], 0, 1, "does not quantise"),
        ([QUANTISE], 2, 1, "same pixels"),
        ([QUANTISE | {"bits": 16}], 0, 144, ""),
    ],
)
def test_a_code_that_the_pixels_do_not_determine_has_no_entropy_here(
    stages: list[dict[str, Any]], jitter: int, count: int, said: str
) -> None:
    row = row_of(case_of(stages, K, jitter, count), CodeEntropyOptions())
    assert (row.outcome, row.ok) == ("ok" if not said else "not_applicable", not said)
    assert said in row.reason


def test_a_code_that_is_too_long_is_not_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_entropy, "MOST_BITS", 23)
    row = row_of(case_of([QUANTISE], count=12), CodeEntropyOptions())
    assert row.reason == "none: a code of 24 bits is too long to be learned (at most 23)"


def test_noise_after_the_code_leaves_its_entropy_a_bound_but_no_estimate_from_below() -> None:
    noisy, plain = (
        row_of(case_of(stages, K, count=12), CodeEntropyOptions()).bounds
        for stages in (
            [{"name": "quantise", "bits": 1}, noise()],
            [{"name": "quantise", "bits": 1}],
        )
    )
    assert list(noisy) == ["entropy"] and list(plain) == ["entropy", "entropy_plugin"]
    assert noisy["entropy"] == plain["entropy"]


def test_a_stage_behind_the_rounding_may_drop_a_part_of_the_code() -> None:
    """Then the counts of codes are no estimate from below of what the release tells."""
    pruned = row_of(case_of([QUANTISE, {"name": "top_k"}], count=12), CodeEntropyOptions()).bounds
    assert list(pruned) == ["entropy"]


def test_laws_of_codes_are_learned_from_all_training_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passage, "MOST_LEARNED", 10)
    counts = []

    def choose(codes: Codes, num_classes: int, *, inside: bool) -> Law:
        counts.append(len(codes.values))
        return choose_law(codes, num_classes, inside=inside)

    monkeypatch.setattr(code_entropy, "choose_law", choose)
    assert row_of(case_of([QUANTISE], count=12), CodeEntropyOptions()).ok
    assert counts == [len(DATA.train)] == [160]


def test_a_code_is_bounded_beyond_its_label() -> None:
    """The pixel is the label, so its code tells nothing else."""
    case = case_of([{"name": "quantise", "bits": 4}], K)
    order = torch.randperm(len(DATA.train), generator=torch.Generator().manual_seed(0))
    mixed = replace(DATA, train=DeviceData(DATA.train.images[order], DATA.train.labels[order]))
    case.subject = replace(case.subject, reader=lambda: mixed)
    beyond, all_of_it = (row_of(case, options).bounds for options in (BeyondLabelOptions(), CodeEntropyOptions()))
    bound = beyond["beyond_label"]
    assert (bound.about, bound.any_number, bound.ceiling) == ("beyond_label", True, pytest.approx(4 * math.log(2)))
    assert bound.assumptions == ["same_law", "one_runtime"]
    assert bound.claim < 0.3 < math.log(3.9) < all_of_it["entropy"].claim
    moving = row_of(case_of([QUANTISE], K, jitter=2), BeyondLabelOptions())
    assert "same pixels" in moving.reason
