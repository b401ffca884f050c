"""Gated attention: golden values, and what each option does."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from attncem.training.surrogates import build_surrogate
from attncem.training.surrogates.gated import (
    GatedAttentionCEM,
    GatedAttentionPooling,
    gate_values,
    gated_attention,
    gated_logits,
)
from attncem.training.surrogates.projection import PointwiseProjection, RandomProjection

DOUBLE = torch.float64
# The worked example of document 004 §6, recomputed in float64 (the values it prints are wrong).
CLASS_1 = torch.tensor([[0.0, 0.0], [0.2, 0.1], [-0.1, 0.05]], dtype=DOUBLE)
CLASS_2 = torch.tensor([[1.0, 1.0], [0.9, 1.1], [1.2, 0.8]], dtype=DOUBLE)
VALUE, GATE, SCORE = torch.eye(2, dtype=DOUBLE), 0.5 * torch.eye(2, dtype=DOUBLE), torch.ones(2, dtype=DOUBLE)
WITHOUT_NORM = {"v1": 0.017808834233, "v2": 0.031005645445, "r2": 0.438419278405, "loss": 0.219209639203}
WITH_NORM = {"v1": 0.018025365871, "v2": 0.032839783384, "r2": 0.495888866568, "loss": 0.247944433284}


def close(actual: Tensor, expected: Any) -> None:
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=DOUBLE), rtol=0, atol=1e-9)


def build(**options: Any) -> GatedAttentionCEM:
    settings = {"feature_shape": (6,), "num_classes": 3, "noise_std": 0.1} | options
    surrogate = build_surrogate("gated", **settings)
    assert isinstance(surrogate, GatedAttentionCEM)
    return surrogate


def weighted_variance(x: Tensor, weights: Tensor) -> Tensor:
    mean = weights @ x
    return weights @ (x - mean).square().sum(1)


def test_golden_values_by_hand() -> None:
    close(gated_logits(CLASS_1, VALUE, GATE, SCORE), [0, 0.154697522998, -0.023296995806])
    first = gated_attention(CLASS_1, VALUE, GATE, SCORE)
    second = gated_attention(CLASS_2, VALUE, GATE, SCORE.unsqueeze(0))
    close(first, [0.318038126216, 0.371247439213, 0.310714434571])
    close(first @ CLASS_1, [0.043178044386, 0.052660465650])
    close(weighted_variance(CLASS_1, first), WITHOUT_NORM["v1"])
    close(second, [0.335046058641, 0.334009600286, 0.330944341073])
    close(second @ CLASS_2, [1.032787908186, 0.967212091814])
    close(weighted_variance(CLASS_2, second), WITHOUT_NORM["v2"])


def test_golden_values_by_hand_with_layer_norm() -> None:
    for x, golden in ((CLASS_1, WITH_NORM["v1"]), (CLASS_2, WITH_NORM["v2"])):
        weights = gated_attention(layer_norm(x, (2,)), VALUE, GATE, SCORE)
        close(weighted_variance(x, weights), golden)


@pytest.mark.parametrize(("norm", "golden"), [(False, WITHOUT_NORM), (True, WITH_NORM)])
def test_golden_values_of_variant_004(norm: bool, golden: dict[str, float]) -> None:
    surrogate = build(
        feature_shape=(2,), num_classes=2, variant="004", hidden_dim=2, layer_norm=norm, projection="none"
    ).double()
    with torch.no_grad():
        surrogate.pooling.value_weight.copy_(VALUE)
        surrogate.pooling.gate_weight.copy_(GATE)
        surrogate.pooling.score_weight.copy_(SCORE)
    output = surrogate(torch.cat([CLASS_1, CLASS_2]), torch.tensor([0, 0, 0, 1, 1, 1]))
    close(output.loss, golden["loss"])
    close(output.per_class, [0.0, golden["r2"]])
    close(output.diagnostics["active"], 0.5)


def test_equal_scores_give_uniform_weights_and_the_plain_variance() -> None:
    z = torch.randn(30, 6, dtype=DOUBLE)
    y = torch.arange(30) % 3
    surrogate = build().double()
    with torch.no_grad():
        surrogate.pooling.score_weight.zero_()
    capacity = build_surrogate("capacity", feature_shape=(6,), num_classes=3, noise_std=0.1)
    torch.testing.assert_close(surrogate(z, y).loss, capacity(z, y).loss)
    diagnostics = surrogate(z, y).diagnostics
    close(diagnostics["effective_samples"], 1.0)
    close(diagnostics["effective_number"], 10.0)
    close(diagnostics["plain_loss"], float(capacity(z, y).loss))


def test_attention_on_one_sample_hides_the_spread_but_not_from_the_health_figures() -> None:
    z, y = torch.randn(30, 6, dtype=DOUBLE), torch.arange(30) % 3
    surrogate = build(learn="penalty").double()
    with torch.no_grad():
        surrogate.pooling.score_weight.mul_(1e9)
    diagnostics = surrogate(z, y).diagnostics
    close(diagnostics["effective_samples"], 0.1)
    close(diagnostics["effective_number"], 1.0)
    assert diagnostics["rob_loss"] < 1e-6 and diagnostics["active"] == 0
    assert diagnostics["plain_loss"] > 1


@pytest.mark.parametrize("statistic", ["hinge", "softplus", "difference", "capacity"])
def test_active_is_the_share_above_the_floor(statistic: str) -> None:
    """Also where the penalty itself never reaches 0: variance 1 in half the dimensions, next to none in the others."""
    z, y = torch.randn(60, 6, dtype=DOUBLE), torch.arange(60) % 3
    z[:, :3] *= 1e-4
    close(build(statistic=statistic)(z, y).diagnostics["active"], 0.5)


@pytest.mark.parametrize("softness", [0.5, 2.0])
def test_softness_by_hand_and_its_limit(softness: float) -> None:
    """e·sigmoid(e/T) of e = log σ² − log τ, on both sides of the floor; T → 0 is the hinge."""
    variance = torch.tensor([[1e-3, 0.02, 0.05, 0.4]], dtype=DOUBLE)
    soft = build(statistic="difference", softness=softness, variance_floor=0.05)
    excess = ((variance + 1e-6) / (0.05 + 1e-6)).log()
    close(soft._statistic(variance), (excess / (1 + (-excess / softness).exp())).tolist())
    hard = build(statistic="difference", softness=1e-6, variance_floor=0.05)
    hinge = build(statistic="hinge", variance_floor=0.05)
    torch.testing.assert_close(hard._statistic(variance), hinge._statistic(variance))


def test_plain_loss_of_layernormed_features_leaves_out_what_the_noise_hides() -> None:
    z, y = torch.randn(60, 6), torch.arange(60) % 3
    surrogate = build(variant="002")
    assert surrogate(z, y).diagnostics["plain_loss"] > 1
    assert surrogate(1e-3 * z, y).diagnostics["plain_loss"] == 0


def test_gates_near_their_ends_count_as_saturated() -> None:
    gates = torch.tensor([[0.04, 0.06, 0.94, 0.96], [0.5, 0.5, 0.5, 0.0], [0.0, 0.0, 0.0, 0.0]], dtype=DOUBLE)
    keep = torch.tensor([True, True, False])
    values = gate_values({"gate_dimension": gates, "gate_snr": 1 - gates, "gate_class": gates[:, 0]}, keep)
    close(values["gate_saturation"], 3 / 8)
    close(values["gate_snr_saturation"], 3 / 8)
    close(values["gate_class"], 0.27)
    assert set(values) == {"gate_dimension", "gate_snr", "gate_class", "gate_saturation", "gate_snr_saturation"}


def test_attention_starts_mild() -> None:
    torch.manual_seed(0)
    diagnostics = build(feature_shape=(512,), uniform_mix=1e-9)(torch.randn(90, 512), torch.arange(90) % 3).diagnostics
    assert diagnostics["effective_samples"] > 0.9


def test_pooling_pools_one_class() -> None:
    surrogate = build().double()
    assert isinstance(surrogate.pooling, GatedAttentionPooling)
    z = torch.randn(5, 6, dtype=DOUBLE)
    pooled, weights = surrogate.pooling(z)
    expected = gated_attention(
        layer_norm(z, (6,)),
        surrogate.pooling.value_weight,
        surrogate.pooling.gate_weight,
        surrogate.pooling.score_weight,
    )
    torch.testing.assert_close(weights, expected)
    torch.testing.assert_close(pooled, expected @ z)


def test_floor_relative_and_absolute_agree() -> None:
    z, y = torch.randn(12, 6), torch.arange(12) % 3
    torch.manual_seed(0)
    relative = build(statistic="hinge", var_threshold=2.0)
    absolute = build(statistic="hinge", variance_floor=2.0 * 0.1**2)
    absolute.load_state_dict(relative.state_dict())
    torch.testing.assert_close(relative(z, y).loss, absolute(z, y).loss)


def test_weights_gradient_detached_treats_attention_as_constant() -> None:
    z, y = torch.randn(12, 6, dtype=DOUBLE), torch.arange(12) % 3
    gradients = []
    for mode in ("detached", "through"):
        torch.manual_seed(0)
        leaf = z.clone().requires_grad_()
        build(learn="fit", weights_gradient=mode).double()(leaf, y).loss.backward()
        assert leaf.grad is not None
        gradients.append(leaf.grad)
    assert not torch.allclose(*gradients)


def test_worst_case_loss_is_minus_the_penalty_and_penalty_is_scaled() -> None:
    z, y = torch.randn(12, 6), torch.arange(12) % 3
    output = build(learn="worst_case")(z, y)
    assert output.fit_loss is not None
    torch.testing.assert_close(output.fit_loss, -output.loss, check_stride=False)
    output = build(variant="000")(z, y)
    assert output.fit_loss is not None
    torch.testing.assert_close(output.fit_loss, 0.25 * output.loss)


def test_fit_is_the_likelihood_of_released_samples() -> None:
    """The loss equals the average over drawn noise of the Gaussian's log density, each sample once."""
    torch.manual_seed(0)
    z, y = torch.randn(8, 6, dtype=DOUBLE), torch.zeros(8, dtype=torch.int64)
    surrogate = build(learn="fit", noise_std=0.5, num_classes=1).double()
    fit_loss = surrogate(z, y).fit_loss
    mean, weights = surrogate.pooling(z)
    deviation = (weights @ (z - mean).square() + 0.25).sqrt()
    released = z + 0.5 * torch.randn(40_000, 8, 6, dtype=DOUBLE)
    expected = -torch.distributions.Normal(mean, deviation).log_prob(released).mean()
    assert fit_loss is not None
    torch.testing.assert_close(fit_loss, expected, rtol=2e-3, atol=0)


def test_gates_of_002_are_reported_only_when_on() -> None:
    z, y = torch.randn(12, 6), torch.arange(12) % 3
    keys = build(variant="002")(z, y).diagnostics.keys()
    assert {"gate_dimension", "gate_snr", "gate_class", "gate_saturation"} <= keys
    assert not any(key.startswith("gate") for key in build()(z, y).diagnostics)


def test_class_gate_and_slot_power() -> None:
    z, y = torch.randn(12, 6), torch.arange(12) % 3
    torch.manual_seed(0)
    plain = build()
    gated = build(class_gate=True, slot_power=2.0)
    gated.load_state_dict(plain.state_dict())
    factor = 1 / (1 + math.exp(-10 * (1 / 3 - 0.05))) / 9
    torch.testing.assert_close(gated(z, y).loss, factor * plain(z, y).loss)


def test_caution_only_where_the_penalty_trains_itself() -> None:
    assert build().caution == ""
    assert "one sample" in build(variant="004").caution
    assert "gates" in build(variant="002").caution


@pytest.mark.parametrize(
    ("shape", "kind"),
    [((512, 7, 7), PointwiseProjection), ((49, 512), PointwiseProjection), ((25_088,), RandomProjection)],
)
def test_automatic_projection(shape: tuple[int, ...], kind: type) -> None:
    surrogate = build(feature_shape=shape)
    assert isinstance(surrogate.pooling.projection, kind)
    assert surrogate(torch.randn(4, *shape), torch.tensor([0, 0, 1, 1])).loss.isfinite()


def test_random_projection_is_saved_but_never_trained() -> None:
    surrogate = build(projection="random", projection_dim=4)
    assert "pooling.projection.weight" in surrogate.state_dict()
    assert not any("projection" in name for name, _ in surrogate.named_parameters())
