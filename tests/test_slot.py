"""Slot attention: its parts against plain formulas, and what each option does."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from attncem.training.surrogates import build_surrogate
from attncem.training.surrogates.moments import group_by_class, halves
from attncem.training.surrogates.slot import SlotCrossAttentionCEM
from attncem.training.surrogates.slot_attention import SlotAttention, normalise

DOUBLE = torch.float64


def build(**options: Any) -> SlotCrossAttentionCEM:
    torch.manual_seed(0)
    settings = {"feature_shape": (6,), "num_classes": 3, "noise_std": 0.1, "slot_dim": 4, "num_heads": 2} | options
    surrogate = build_surrogate("slot", **settings)
    assert isinstance(surrogate, SlotCrossAttentionCEM)
    return surrogate


def samples(count: int = 30, classes: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 6, generator=generator, dtype=DOUBLE), torch.arange(count) % classes


def test_presets_are_the_documents() -> None:
    first, third = build(variant="001").options, build(variant="003").options
    assert (first.statistic, first.variance_space, first.learn, first.renormalise) == (
        "softplus",
        "enhanced",
        "penalty",
        False,
    )
    assert (first.snr_thresh, first.snr_sharp, first.softplus_beta, first.margin_m) == (0.3, 10.0, 1.0, 0.1)
    assert (first.class_gate_a, first.class_gate_b, first.slot_power, first.early_shut_steps) == (10.0, 0.05, 2.0, 100)
    assert (first.loss_scale, first.default_warmup_epochs) == (0.25, 3)
    assert (third.moments, third.statistic, third.learn, third.var_threshold) == ("class", "hinge", "frozen", 0.1)
    assert (first.num_slots, first.slot_iterations, third.num_slots) == (8, 3, 8)


def test_one_slot_reports_the_capacity_of_the_class() -> None:
    z, y = samples()
    surrogate = build(num_slots=1).double()
    capacity = build_surrogate("capacity", feature_shape=(6,), num_classes=3, noise_std=0.1)
    torch.testing.assert_close(surrogate(z, y).loss, capacity(z, y).loss)


def test_class_moments_of_003_by_hand() -> None:
    z, _ = samples(9)
    y = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 2])
    surrogate = build(variant="003", noise_std=0.5).double().eval()
    with torch.no_grad():
        surrogate.cross_attention.alpha_xattn.zero_()
        surrogate.cross_attention.alpha_ffn.zero_()
    enhanced = normalise(surrogate.projection(z)).detach()
    excess = [((enhanced[y == c].var(0) + 1e-6).log() - math.log(0.1 * 0.25 + 1e-6)).relu().mean() for c in (0, 1)]
    output = surrogate(z, y)
    torch.testing.assert_close(output.loss, (excess[0] + excess[1]) / 2)
    spread = torch.stack([enhanced[y == c].var(0, unbiased=False).mean() for c in (0, 1)]).mean()
    torch.testing.assert_close(output.diagnostics["intra_mse"], spread)


def test_responsibilities_of_001_are_a_softmax_of_cosines() -> None:
    z, _ = samples(5)
    surrogate = build(variant="001").double()
    groups = group_by_class(torch.zeros(5, dtype=torch.int64), 3, DOUBLE)
    noise = torch.randn(3, 8, 4, dtype=DOUBLE)
    x = normalise(surrogate.projection(z))
    slots = surrogate.slot_attention(x, groups, noise)[0]
    cosines = cosine_similarity(x.unsqueeze(1), slots.unsqueeze(0), dim=2)
    view = surrogate._view(z, groups, noise, live=True)
    torch.testing.assert_close(view.responsibilities, (10 * cosines).softmax(1), rtol=1e-5, atol=1e-7)


def test_slot_attention_recurs_like_torch() -> None:
    attention = SlotAttention(build().options).double()
    updates, slots = torch.randn(2, 8, 4, dtype=DOUBLE), torch.randn(2, 8, 4, dtype=DOUBLE)
    expected = attention.gru(updates.flatten(0, 1), slots.flatten(0, 1)).view(2, 8, 4)
    given = updates @ attention.gru.weight_ih.T + attention.gru.bias_ih
    torch.testing.assert_close(attention._recur(given, slots, live=True), expected)


@pytest.mark.parametrize("rounds", [1, 3])
def test_the_last_round_alone_can_teach(rounds: int) -> None:
    """The value is that of all rounds; so is the gradient when there is one round, else every weight has one still."""
    found = {}
    z, y = samples()
    for gradient in ("all", "last"):
        torch.manual_seed(0)
        surrogate = build(rounds_gradient=gradient, slot_iterations=rounds).double()
        fit_loss = surrogate(z, y, noise=torch.randn(3, 8, 4, dtype=DOUBLE)).fit_loss
        assert fit_loss is not None
        own = [parameter for parameter in surrogate.parameters() if parameter.requires_grad]
        found[gradient] = fit_loss.detach(), torch.autograd.grad(fit_loss, own)
    (value, gradients), (same, others) = found["all"], found["last"]
    assert torch.equal(value, same)
    equal = [torch.allclose(one, other, rtol=1e-9, atol=1e-15) for one, other in zip(gradients, others, strict=True)]
    assert all(equal) == (rounds == 1)
    assert all(other.abs().sum() > 0 for other in others)


def test_classes_do_not_see_each_other() -> None:
    z, y = samples()
    surrogate = build().double().eval()
    before = surrogate(z, y).per_class
    z[y == 1] += torch.randn(10, 6, dtype=DOUBLE)
    after = surrogate(z, y).per_class
    torch.testing.assert_close(before[[0, 2]], after[[0, 2]])
    assert before[1] != after[1]


def test_noise_is_drawn_in_training_passed_in_or_zero() -> None:
    z, y = samples()
    surrogate = build().double()
    torch.manual_seed(3)
    drawn = surrogate(z, y).loss
    assert drawn != surrogate(z, y).loss
    torch.manual_seed(3)
    assert drawn == surrogate(z, y).loss
    noise = torch.zeros(3, 8, 4, dtype=DOUBLE)
    assert surrogate(z, y, noise=noise).loss == surrogate.eval()(z, y).loss
    with pytest.raises(ValueError, match=r"noise: expected shape \[3, 8, 4\], got \[2, 8, 4\]"):
        surrogate(z, y, noise=noise[:2])


def test_noise_belongs_to_the_class_also_with_more_classes_than_samples() -> None:
    z, _ = samples(8)
    y = torch.tensor([7, 30, 7, 30, 2, 2, 7, 30])
    surrogate = build(num_classes=40).double()
    noise = torch.randn(40, 8, 4, dtype=DOUBLE)
    order = torch.tensor([5, 1, 0, 2, 3, 7, 6, 4])
    one, other = surrogate(z, y, noise=noise), surrogate(z[order], y[order], noise=noise)
    torch.testing.assert_close(one.per_class, other.per_class, equal_nan=True)


@pytest.mark.parametrize("num_samples", [13, 26, 64])
def test_small_slots_report_the_truth_when_corrected(num_samples: int) -> None:
    """Hard slots on one Gaussian: uncorrected they report too little, the documents' way."""
    z = torch.randn(num_samples, 512, generator=torch.Generator().manual_seed(0))
    groups = group_by_class(torch.zeros(num_samples, dtype=torch.int64), 1, torch.float32)
    responsibilities = torch.nn.functional.one_hot(torch.arange(num_samples) % 8, 8).float()
    reported = {}
    for corrected in (True, False):
        surrogate = build(feature_shape=(512,), num_classes=1, noise_std=1.0, small_slot_correction=corrected)
        found = surrogate._moments(z, responsibilities, groups)
        per_slot = 0.5 * found.variance.log1p().mean(1)
        reported[corrected] = float((found.mass[0] / num_samples) @ per_slot) / (0.5 * math.log(2))
    assert reported[False] < reported[True]
    assert 0.8 <= reported[True] <= 1.05


def test_scalars_start_at_their_options() -> None:
    surrogate = build(variant="001", assign_temp=3.0)
    expected = {"assign_temp": 3.0, "slot_power": 2.0, "snr_sharp": 10.0, "snr_thresh": 0.3, "softplus_beta": 1.0}
    expected |= {"margin_m": 0.1, "class_gate_a": 10.0, "class_gate_b": 0.05}
    assert set(surrogate.scalars.keys()) == set(expected)
    for name, value in expected.items():
        assert float(surrogate.scalar(name)) == pytest.approx(value, rel=1e-5)
    assert all(scalar.requires_grad for scalar in surrogate.scalars.values())


def test_worst_case_loss_is_minus_the_penalty_and_penalty_is_scaled() -> None:
    z, y = samples()
    output = build(learn="worst_case")(z, y)
    assert output.fit_loss is not None
    torch.testing.assert_close(output.fit_loss, -output.loss)
    output = build(variant="001", early_shut_off=False)(z, y)
    assert output.fit_loss is not None
    torch.testing.assert_close(output.fit_loss, 0.25 * output.loss)


def test_fit_is_the_likelihood_of_the_other_half() -> None:
    z, y = samples(12, 1)
    surrogate = build(num_classes=1, noise_std=0.5).double().eval()
    first, _ = halves(group_by_class(y, 1, DOUBLE))
    noise = torch.zeros(1, 8, 4, dtype=DOUBLE)
    found = surrogate._moments(z, surrogate._view(z, first, noise, live=True).responsibilities, first)
    added = 0.25 + 1e-6
    total = found.variance + added
    densities = []
    for row in z[1::2]:
        distance = (row - found.centre - found.mean).square()
        logs = -0.5 * ((2 * math.pi * total).log() + (distance + added) / total).sum(1)
        densities.append(((found.mass[0] / 6).log() + logs).logsumexp(0))
    fit_loss = surrogate(z, y).fit_loss
    assert fit_loss is not None
    torch.testing.assert_close(fit_loss, -torch.stack(densities).mean() / 6)


def test_halves_part_every_class() -> None:
    y = torch.tensor([0, 1, 0, 1, 0, 2, 0])
    first, second = halves(group_by_class(y, 3, DOUBLE))
    assert first.counts.tolist() == [2, 1, 1]
    assert second.counts.tolist() == [2, 1, 0]
    assert not (first.members & second.members).any()


def test_early_shut_off_opens_after_its_steps() -> None:
    z, y = samples()
    surrogate = build(variant="001", early_shut_steps=2, early_hard_thresh=1.0, early_gate_thresh=1.0).double()
    seen = [surrogate(z, y) for _ in range(3)]
    assert [float(output.diagnostics["shut_off"]) for output in seen] == [1, 1, 0]
    assert [bool(output.loss > 0) for output in seen] == [False, False, True]
    assert seen[0].fit_loss == 0 and seen[0].loss.dtype == DOUBLE
    surrogate.eval()(z, y)
    assert surrogate.calls == 3, "only training counts"


def test_calls_without_a_penalty_leave_the_early_shut_off_as_it_is() -> None:
    """001's module is not called in the warm-up: neither the count nor the running means move."""
    z, y = samples()
    surrogate = build(variant="001", early_shut_steps=2, early_hard_thresh=1.0, early_gate_thresh=1.0).double()
    surrogate.set_penalised(False)
    for _ in range(5):
        assert surrogate(100 * z, y).loss == 0
    assert surrogate.calls == 0 and surrogate.mean_gate_snr == 0 and surrogate.mean_gate_dimension == 0
    surrogate.set_penalised(True)
    seen = [surrogate(z, y) for _ in range(3)]
    assert [float(output.diagnostics["shut_off"]) for output in seen] == [1, 1, 0]
    fresh = build(variant="001").double()
    assert "penalised" not in fresh.state_dict(), "what it is told at every step is not saved"


@pytest.mark.parametrize("key", ["early_hard_thresh", "early_gate_thresh"])
def test_early_shut_off_latches_while_a_gate_is_high(key: str) -> None:
    z, y = samples()
    surrogate = build(variant="001", early_shut_steps=0, **{key: 0.01}).double()
    for _ in range(3):
        output = surrogate(z.requires_grad_(), y)
        assert output.diagnostics["shut_off"] == 1
        output.loss.backward()
        assert z.grad is not None and not z.grad.any()


def test_early_shut_off_does_not_carry_nan() -> None:
    z, y = samples()
    surrogate = build(variant="001", early_shut_steps=1).double()
    surrogate(z * math.nan, y)
    assert surrogate.mean_gate_snr.isfinite() and surrogate.mean_gate_dimension.isfinite()
    assert surrogate(z, y).loss.isfinite()


def test_early_shut_off_survives_a_save() -> None:
    z, y = samples()
    surrogate = build(variant="001").double()
    surrogate(z, y)
    other = build(variant="001").double()
    other.load_state_dict(surrogate.state_dict())
    assert other.calls == 1 and other.mean_gate_snr == surrogate.mean_gate_snr


def test_diagnostics_of_gates_and_slots() -> None:
    z, y = samples()
    keys = build(variant="001")(z, y).diagnostics.keys()
    assert {"gate_dimension", "gate_snr", "gate_class", "gate_saturation", "shut_off"} <= keys
    diagnostics = build(assign_temp=1e-6)(z, y).diagnostics
    assert not any(key.startswith("gate") for key in diagnostics)
    assert float(diagnostics["effective_slots"]) == pytest.approx(8, rel=1e-3)
    assert float(diagnostics["slot_entropy"]) == pytest.approx(1, rel=1e-3)
    assert float(diagnostics["effective_number"]) == pytest.approx(len(y) / 3, rel=1e-3), "all share every slot"
    assert "slot_entropy" not in build(num_slots=1)(z, y).diagnostics, "one slot has no usage to compare"
    assert "effective_number" not in build(variant="003")(z, y).diagnostics, "its moments are the whole class's"


def test_every_learnable_scalar_is_logged_as_it_stands() -> None:
    z, y = samples()
    surrogate = build(variant="001")
    with torch.no_grad():
        surrogate.scalars["margin_m"].fill_(0.7)
    diagnostics = surrogate(z, y).diagnostics
    expected = {"assign_temp": 10.0, "slot_power": 2.0, "snr_sharp": 10.0, "snr_thresh": 0.3, "softplus_beta": 1.0}
    expected |= {"margin_m": 0.7, "class_gate_a": 10.0, "class_gate_b": 0.05}
    assert {name: float(diagnostics[name]) for name in expected} == pytest.approx(expected, rel=1e-5)
    assert set(expected) == set(surrogate.scalars)
    assert "slot_power" not in build()(z, y).diagnostics, "what cannot learn is an option, not a figure"


def test_plain_loss_does_not_follow_what_the_surrogate_learns() -> None:
    """A margin that grows, or a map that shrinks, silences the penalty; the figure beside it stays."""
    z, y = samples()
    surrogate = build(variant="001", early_shut_off=False).double()
    before = surrogate(z, y).diagnostics
    with torch.no_grad():
        surrogate.scalars["margin_m"].fill_(50.0)
        surrogate.cross_attention.alpha_xattn.fill_(3.0)
    after = surrogate(z, y).diagnostics
    assert after["rob_loss"] < 1e-6 < before["rob_loss"]
    assert after["plain_loss"] == before["plain_loss"] > 1


def test_weights_gradient_detached_treats_slots_as_constants() -> None:
    z, y = samples()
    for space in ({}, {"variance_space": "enhanced", "statistic": "hinge", "learn": "frozen"}):
        gradients = []
        for mode in ("detached", "through"):
            leaf = z.clone().requires_grad_()
            build(weights_gradient=mode, **space).double().eval()(leaf, y).loss.backward()
            assert leaf.grad is not None and leaf.grad.any()
            gradients.append(leaf.grad)
        assert not torch.allclose(*gradients)


def test_dropout_acts_in_training_only() -> None:
    z, y = samples()
    surrogate = build(variant="003", dropout=0.5).double()
    noise = torch.zeros(3, 8, 4, dtype=DOUBLE)
    assert surrogate(z, y, noise=noise).loss != surrogate(z, y, noise=noise).loss
    surrogate.eval()
    assert surrogate(z, y).loss == surrogate(z, y).loss


def test_caution_only_where_the_penalty_trains_itself() -> None:
    assert build().caution == "" and build(variant="003").caution == ""
    assert "learn=penalty" in build(variant="001").caution


def test_spatial_tokens_do_not_depend_on_where_the_channels_stand() -> None:
    """Features [C, H, W] and tokens [N, C] of the same values; the order of the positions is irrelevant."""
    z, y = torch.randn(30, 5, 2, 2, dtype=DOUBLE), torch.arange(30) % 3
    maps = build(feature_shape=(5, 2, 2), tokens="spatial").double().eval()
    rows = build(feature_shape=(4, 5), tokens="spatial").double().eval()
    rows.load_state_dict(maps.state_dict())
    expected = maps(z, y).loss
    torch.testing.assert_close(rows(z.flatten(2).transpose(1, 2), y).loss, expected)
    torch.testing.assert_close(maps(z.flip(2, 3), y).loss, expected)


def test_one_position_is_one_sample() -> None:
    z, y = samples()
    whole = build(projection="linear").double().eval()
    spatial = build(feature_shape=(6, 1, 1), tokens="spatial").double().eval()
    state = whole.state_dict()
    state["projection.weight"] = state.pop("projection.weights.0")
    spatial.load_state_dict(state)
    torch.testing.assert_close(spatial(z.reshape(-1, 6, 1, 1), y).loss, whole(z, y).loss)
