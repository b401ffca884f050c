"""Weights of samples that follow the doubt of the client's head, or the worst case: what they count, and never hide."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import attncem
from attncem.base.progress import silent
from attncem.base.types import ConfigError
from attncem.judging.opening import open_run
from attncem.models.client_head import doubt
from attncem.reporting.explain.explaining import first_of_each
from attncem.reporting.explain.portraits import portray
from attncem.testing import surrogates as laws
from attncem.testing.surrogate_case import SurrogateCase, batch
from attncem.testing.truth import draw_law
from attncem.training.surrogates import build_surrogate, moments
from attncem.training.surrogates.base import Batch
from attncem.training.surrogates.capacity import CapacityPenalty
from attncem.training.surrogates.gated import GatedAttentionCEM
from attncem.training.surrogates.reference import capacity_reference, gated_reference

DOUBT = {"sample_weights": "doubt"}


def doubts_of(z: Tensor) -> Tensor:
    """A doubt in [0, 1] of each sample, from its features: the laws of surrogates give only z and y."""
    return (3 * z.detach().float().flatten(1).mean(1)).sigmoid()


class DoubtfulCapacity(CapacityPenalty):
    """Capacity that makes the doubts itself."""

    def prepare(self, z: Tensor, y: Tensor, *, noise: Tensor | None = None, doubts: Tensor | None = None) -> Batch:
        return super().prepare(z, y, noise=noise, doubts=doubts_of(z) if doubts is None else doubts)


class DoubtfulGated(GatedAttentionCEM):
    """Gated attention that makes the doubts itself."""

    def prepare(self, z: Tensor, y: Tensor, *, noise: Tensor | None = None, doubts: Tensor | None = None) -> Batch:
        return super().prepare(z, y, noise=noise, doubts=doubts_of(z) if doubts is None else doubts)


def with_doubts(reference: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., tuple[Tensor, Tensor]]:
    """The loop of a surrogate with these doubts."""

    def slow(surrogate: Any, z: Tensor, y: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return reference(surrogate, z, y, noise, doubts_of(z))

    return slow


CASES = {
    "capacity": SurrogateCase(DoubtfulCapacity, DOUBT, with_doubts(capacity_reference)),
    "capacity, averaged": SurrogateCase(
        DoubtfulCapacity, {**DOUBT, "per_dimension": False, "uniform_mix": 0.1}, with_doubts(capacity_reference)
    ),
    "worst": SurrogateCase(CapacityPenalty, {"sample_weights": "worst"}, capacity_reference),
    "gated": SurrogateCase(DoubtfulGated, DOUBT, with_doubts(gated_reference)),
    "gated, capacity": SurrogateCase(
        DoubtfulGated, {**DOUBT, "statistic": "capacity", "learn": "worst_case"}, with_doubts(gated_reference)
    ),
    "gated 002": SurrogateCase(
        DoubtfulGated, {**DOUBT, "variant": "002", "learn": "fit"}, with_doubts(gated_reference)
    ),
    "gated, frozen": SurrogateCase(
        DoubtfulGated, {**DOUBT, "learn": "frozen", "small_sample_correction": False}, with_doubts(gated_reference)
    ),
}
LAWS = {law.__name__: law for law in laws.LAWS if law is not laws.training_hides_no_spread}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_keeps_the_laws_of_every_surrogate(law: Callable[[SurrogateCase], None], case: SurrogateCase) -> None:
    law(case)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_equals_the_loop_with_more_classes_than_samples(case: SurrogateCase) -> None:
    laws.check_reference(case, torch.float64, 1e-10, num_classes=40)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize(("ratio", "components"), [(1.0, 1), (25.0, 3)])
def test_training_its_weights_hides_no_spread(case: SurrogateCase, ratio: float, components: int) -> None:
    laws.keeps_its_start(case, ratio, components)


# what the weights may do


def some_doubts(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


doubt_lists = st.lists(st.floats(0, 1), min_size=12, max_size=12)


@settings(max_examples=60, deadline=None)
@given(doubt_lists, st.floats(0.05, 1), st.integers(0, 100))
def test_no_doubt_hides_more_than_the_share_of_equal_weights(values: list[float], mix: float, seed: int) -> None:
    """Weights are a law on each class, every sample keeps mix / m, and the variance at least mix of the plain one."""
    z, y = batch(12, num_classes=3, seed=seed, dtype=torch.float64)
    groups = moments.group_by_class(y, 3, torch.float64)
    weights = moments.doubtful_weights(some_doubts(values), mix, groups)
    _, plain = moments.class_moments(z.flatten(1), groups)
    _, weighted = moments.weighted_moments(z.flatten(1), weights, groups)
    assert torch.allclose(weights.sum(0), (groups.counts > 0).double())
    assert (weights >= mix * moments.uniform_weights(groups) - 1e-12).all()
    assert (weighted >= mix * plain - 1e-9).all()
    assert (moments.unbiased_for_weights(weighted, weights) >= mix * moments.unbiased(plain, groups) - 1e-9).all()


@settings(max_examples=60, deadline=None)
@given(doubt_lists, st.floats(0.05, 1))
def test_the_shares_of_the_classes_keep_their_sum(values: list[float], mix: float) -> None:
    """No class falls below mix of its share, and what one loses others gain."""
    y = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3])
    groups = moments.group_by_class(y, 4, torch.float64)
    weighed = moments.shares_by_doubt(some_doubts(values), mix, groups)
    assert float(weighed.own_counts.sum()) == pytest.approx(12)
    assert (weighed.own_counts >= mix * groups.own_counts - 1e-9).all()
    assert float(weighed.own_counts[3]) == 1, "a class without a pair is in no sum, so its share goes to nobody"


@pytest.mark.parametrize(("name", "options"), [("capacity", {}), ("gated", {"learn": "frozen"})])
@pytest.mark.parametrize("level", [0.0, 1e-30, 0.3, 1.0])
def test_equal_doubts_are_equal_weights(name: str, options: dict[str, Any], level: float) -> None:
    """A client that is equally sure of all images, even quite sure, gets the plain penalty: nothing switches it off."""
    z, y = batch(dtype=torch.float64)
    made = {"feature_shape": (4, 2, 2), "num_classes": 5, "noise_std": 0.1, **options}
    torch.manual_seed(0)
    plain = build_surrogate(name, **made).double()
    doubtful = build_surrogate(name, **made, **DOUBT, uniform_mix=0.5).double()
    doubtful.load_state_dict(plain.state_dict())
    if name == "gated":  # its attention is mixed with equal weights only with doubts
        with torch.no_grad():
            plain.pooling.score_weight.zero_()  # type: ignore[union-attr, operator]
            doubtful.pooling.score_weight.zero_()  # type: ignore[union-attr, operator]
    output = doubtful(z, y, doubts=torch.full((30,), level))
    torch.testing.assert_close(output.loss, plain(z, y).loss, rtol=1e-9, atol=0)


@pytest.mark.parametrize("name", ["capacity", "gated"])
def test_spread_of_doubtful_samples_counts_more(name: str) -> None:
    """The same features cost more if the samples far from the centre are the doubtful ones than if they are sure."""
    torch.manual_seed(0)
    surrogate = build_surrogate(name, feature_shape=(16,), num_classes=1, noise_std=0.1, **DOUBT).double()
    near, far = 0.01 * torch.randn(30, 16), torch.randn(10, 16)
    z, y = torch.cat([near, far]).double(), torch.zeros(40, dtype=torch.int64)
    is_far = torch.arange(40) >= 30
    sent, kept = (surrogate(z, y, doubts=torch.where(which, 0.9, 0.01)).loss for which in (is_far, ~is_far))
    assert float(sent) > 1.2 * float(kept)
    plain = build_surrogate("capacity", feature_shape=(16,), num_classes=1, noise_std=0.1).double()
    if name == "capacity":
        assert float(kept) < float(plain(z, y).loss) < float(sent)


def test_the_worst_case_reports_at_least_the_plain_spread() -> None:
    for seed in range(20):
        z, y = batch(40, seed=seed, dtype=torch.float64)
        worst, plain = (
            build_surrogate("capacity", feature_shape=(4, 2, 2), num_classes=5, noise_std=0.1, sample_weights=weights)
            for weights in ("worst", "uniform")
        )
        assert float(worst(z, y).loss) >= float(plain(z, y).loss) - 1e-9


# the gradient


@pytest.mark.parametrize("name", ["capacity", "gated"])
def test_no_gradient_reaches_the_doubts(name: str) -> None:
    """Being unsure, or sure, must not pay: the head learns nothing from the penalty."""
    surrogate = build_surrogate(name, feature_shape=(4, 2, 2), num_classes=5, noise_std=0.1, **DOUBT)
    z, y = batch()
    z, raw = z.requires_grad_(), torch.rand(30, requires_grad=True)
    output = surrogate(z, y, doubts=raw.sigmoid())
    (output.loss if output.fit_loss is None else output.loss + output.fit_loss).backward()
    assert raw.grad is None
    assert z.grad is not None and float(z.grad.abs().sum()) > 0


def test_attention_that_learns_does_not_undo_the_doubts() -> None:
    """After training by likelihood the report is still that of the doubtful samples, which spread more than the rest.

    A likelihood in which each sample counts once would make the attention raise the samples that the doubts lower.
    """
    generator = torch.Generator().manual_seed(1)
    spread = torch.where(torch.arange(256) < 64, 2.0, 0.2).unsqueeze(1)
    mark = torch.where(torch.arange(256) < 64, 1.0, -1.0).unsqueeze(1) * torch.ones(1, 4)
    z = torch.cat([spread * torch.randn(256, 28, generator=generator), mark], 1)
    y, doubts = torch.zeros(256, dtype=torch.int64), torch.where(torch.arange(256) < 64, 0.9, 0.02)
    torch.manual_seed(0)
    options: dict[str, Any] = {**DOUBT, "learn": "fit", "statistic": "capacity", "uniform_mix": 0.1}
    surrogate = build_surrogate("gated", feature_shape=(32,), num_classes=1, noise_std=1.0, **options)
    before = float(surrogate(z, y, doubts=doubts).loss)
    optimiser = torch.optim.Adam(surrogate.parameters(), lr=1e-2)
    for _ in range(150):
        optimiser.zero_grad()
        fit_loss = surrogate(z, y, doubts=doubts).fit_loss
        assert fit_loss is not None
        fit_loss.backward()
        optimiser.step()
    assert float(surrogate(z, y, doubts=doubts).loss) >= 0.95 * before


@pytest.mark.parametrize("name", ["capacity", "gated"])
def test_few_doubtful_samples_have_the_spread_of_their_law(name: str) -> None:
    """Three doubtful samples of sixteen: on average over draws, the reported variance is that of the law."""
    options: dict[str, Any] = {"statistic": "capacity", "learn": "frozen"} if name == "gated" else {}
    torch.manual_seed(0)
    surrogate = build_surrogate(
        name, feature_shape=(128,), num_classes=200, noise_std=30.0, **options, **DOUBT, uniform_mix=0.05
    )
    if name == "gated":
        with torch.no_grad():
            surrogate.pooling.score_weight.zero_()  # type: ignore[union-attr, operator]
    z, y, law = draw_law(1.0, 1, samples=16, classes=200)
    doubts = torch.where(torch.arange(len(y)) % 16 < 3, 0.9, 1e-4)
    reported = 2 * 30.0**2 * float(surrogate(z, y, doubts=doubts).loss)  # ½ log(1 + v/σ²) ≈ v / 2σ²
    assert reported == pytest.approx(float(law.mean()), rel=0.05)


def test_an_explanation_weighs_as_the_penalty_does() -> None:
    z, y = batch(dtype=torch.float64)
    doubts = doubts_of(z)
    for name, options in (("capacity", DOUBT), ("gated", DOUBT), ("capacity", {"sample_weights": "worst"})):
        torch.manual_seed(0)
        made = build_surrogate(name, feature_shape=(4, 2, 2), num_classes=5, noise_std=0.1, **options).double()
        attention = made.explain(z, y, doubts=doubts)["attention"]
        sums = torch.zeros(5, dtype=torch.float64).index_add(0, y, attention)
        torch.testing.assert_close(sums, torch.ones(5, dtype=torch.float64))
        if options is DOUBT:
            first = y == y[0]
            even = made.explain(z, y)["attention"]
            assert not torch.allclose(attention[first], even[first])


@pytest.mark.slow  # two pages
def test_pages_ask_with_the_doubts_of_the_head(
    tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {"release.when": "unsure", "surrogate.name": "gated", "surrogate.sample_weights": "doubt"}
    run = attncem.train("demo-none", {**tiny, **words}, out=tmp_path / "run", progress=silent)
    asked: list[Tensor] = []
    explained = GatedAttentionCEM.explain

    def spied(made: Any, z: Tensor, y: Tensor, *, doubts: Tensor) -> dict[str, Tensor]:
        asked.append(doubts)
        return explained(made, z, y, doubts=doubts)

    monkeypatch.setattr(GatedAttentionCEM, "explain", spied)
    portray(run)
    attncem.explain(run, "test:1", progress=silent)
    opened = open_run(run)
    x, _ = first_of_each(opened, opened.spec.num_classes, 300 // opened.spec.num_classes)
    torch.testing.assert_close(asked[0], doubt(opened.model.look(x).answers))
    last, _ = opened.data.test.get(torch.tensor([1]))
    torch.testing.assert_close(asked[1][-1:], doubt(opened.model.look(last).answers))


# wrong use


def test_what_cannot_be_weighed_is_refused() -> None:
    made = {"feature_shape": (8,), "num_classes": 2, "noise_std": 0.1}
    with pytest.raises(ConfigError, match=r"sample_weights=doubt .*memory=null"):
        build_surrogate("capacity", **made, **DOUBT, memory={"per_class": 2})
    with pytest.raises(ConfigError, match=r"sample_weights=worst .*memory=null"):
        build_surrogate("capacity", **made, sample_weights="worst", memory={"per_class": 2})
    with pytest.raises(ConfigError, match="uniform_mix above 0"):
        build_surrogate("gated", **made, **DOUBT, uniform_mix=0)
    with pytest.raises(ConfigError, match="hybrid weighs classes by their risk"):
        build_surrogate("hybrid", **made, gated=DOUBT)
    with pytest.raises(ValueError, match="needs the doubt of the client's head"):
        build_surrogate("capacity", **made, **DOUBT)(torch.rand(4, 8), torch.zeros(4, dtype=torch.int64))
