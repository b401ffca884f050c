"""Gated attention pooling over the samples of a class (Ilse et al. 2018; documents 000, 002, 004)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from attncem.base.types import SurrogateOutput
from attncem.config.options.attention import GatedOptions, SlotOptions
from attncem.training.health import SATURATED
from attncem.training.surrogates import moments
from attncem.training.surrogates.base import Surrogate, own_linear, own_weight
from attncem.training.surrogates.floor import VarianceFloor
from attncem.training.surrogates.moments import Groups
from attncem.training.surrogates.projection import build_projection
from attncem.training.surrogates.recompute import recomputed
from attncem.training.surrogates.statistic import above_floor, above_noise, variance_statistic

CAUTION_ATTENTION = (
    "learn=penalty trains the attention to lower its own penalty: measured on CIFAR-10 it settled on one sample a "
    "class (4 % effective samples), so that the penalty protected nothing; learn=worst_case did not."
)
CAUTION_GATES = (
    "learn=penalty trains the gates to lower their own penalty: measured on CIFAR-10 they closed and rob_loss fell "
    "to 0 while the features kept their spread; learn=worst_case keeps the gates frozen."
)


def gated_attention(x: Tensor, value_weight: Tensor, gate_weight: Tensor, score_weight: Tensor) -> Tensor:
    """Attention weights [M] of the rows of x [M, D]: softmax of w^T(tanh(V x) ⊙ sigmoid(U x)).

    V ``value_weight`` [h, D], U ``gate_weight`` [h, D], w ``score_weight`` [h] or [1, h].
    """
    return gated_logits(x, value_weight, gate_weight, score_weight).softmax(0)


def gated_logits(x: Tensor, value_weight: Tensor, gate_weight: Tensor, score_weight: Tensor) -> Tensor:
    """The attention's scores before the softmax, [M]."""
    hidden = (x @ value_weight.T).tanh() * (x @ gate_weight.T).sigmoid()
    return hidden @ score_weight.reshape(-1)


class GatedAttentionPooling(nn.Module):
    """Scores of samples, s_m = w^T(tanh(V x̃_m) ⊙ sigmoid(U x̃_m)), x̃ = LayerNorm(projection(z)) without affine.

    ``logits`` scores a whole batch; calling the module pools the samples of one class.
    """

    def __init__(self, options: GatedOptions, feature_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer_norm = options.layer_norm
        self.projection = build_projection(options, feature_shape)
        size, hidden = self.projection.out_dim, options.hidden_dim
        self.value_weight = nn.Parameter(nn.Linear(size, hidden, bias=False).weight.detach())
        self.gate_weight = nn.Parameter(nn.Linear(size, hidden, bias=False).weight.detach())
        self.score_weight = nn.Parameter(nn.Linear(hidden, 1, bias=False).weight.detach().reshape(-1))

    def logits(self, z: Tensor, *, live: bool = True) -> Tensor:
        """Scores [B] of z [B, *feature_shape]; ``live=False`` treats the weights as constants."""
        x = self.projection(z, live=live)
        x = layer_norm(x, x.shape[1:]) if self.layer_norm else x
        weights = (self.value_weight, self.gate_weight, self.score_weight)
        return gated_logits(x, *(own_weight(weight, live=live, like=x) for weight in weights))

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Pooled feature [D] and attention weights [M] of the samples z [M, *feature_shape] of one class."""
        weights = self.logits(z).softmax(0)
        return weights @ z.flatten(1), weights


class DimensionGate(nn.Module):
    """gate_d = sigmoid(MLP(LayerNorm(log σ²))), D → gate_hidden → D (002)."""

    def __init__(self, num_features: int, hidden: int) -> None:
        super().__init__()
        self.inner = nn.Linear(num_features, hidden)
        self.outer = nn.Linear(hidden, num_features)

    def forward(self, log_variance: Tensor, *, live: bool = True) -> Tensor:
        """Gates [G, D] in (0, 1) of log variances [G, D]."""
        x = layer_norm(log_variance, log_variance.shape[1:])
        x = own_linear(self.inner, x, live=live).relu()
        return own_linear(self.outer, x, live=live).sigmoid()


@dataclass(frozen=True)
class ClassPenalty:
    """L_c of every group [G], which of its variances are above the floor [G, ·], and the values of the gates.

    ``snr_passed`` [G]: the share of the statistic that the SNR gate passes, 1 without one.
    """

    per_group: Tensor
    above: Tensor
    gates: dict[str, Tensor]
    snr_passed: Tensor


class GatedAttentionCEM(Surrogate):
    """Penalty on the attention-weighted variance inside a class.

    a = softmax over the class of the scores, μ = Σ a_m x_m, σ² = Σ a_m (x_m − μ)², with ``small_sample_correction``
    times m / (m − 1). With τ = var_threshold σ_n² (or ``variance_floor``) and e = log(σ² + γ) − log(τ + γ) the
    statistic is hinge relu(e), softplus(β(e − m))/β, difference max(e, bound), or capacity ½ log(1 + σ²/σ_n²). L_c =
    gate_c · mean_d(gate_d ⊙ hard ⊙ statistic), each gate only where it is switched on; rob_loss = Σ p_c L_c over
    classes with at least two samples.

    ``fit_loss`` trains the surrogate's weights on detached z: ``penalty`` attention_loss_scale · rob_loss (000, 002);
    ``fit`` minus the likelihood of the class's samples, each counted once; ``worst_case`` −rob_loss, with the attention
    mixed with uniform weights. Under the last two only attention and projection learn: with gates, the ascent would
    diverge.

    ``sample_weights=doubt``: a ∝ doubt_m · exp(score_m), mixed with uniform weights, and the classes count by their
    sums of doubts: the spread of what will be sent. ``fit`` then counts each sample by its doubt: otherwise the
    attention would learn to undo the doubts. The correction of small samples is 1 / (1 − Σ a²).
    """

    options_type = GatedOptions
    options: GatedOptions

    def __init__(
        self, options: GatedOptions, *, feature_shape: Sequence[int], num_classes: int, noise_std: float
    ) -> None:
        super().__init__(options, feature_shape=feature_shape, num_classes=num_classes, noise_std=noise_std)
        self.pooling = GatedAttentionPooling(options, self.feature_shape)
        self.dimension_gate = DimensionGate(self.num_features, options.gate_hidden) if options.dimension_gate else None
        relative = options.var_threshold * noise_std**2
        self.floor = VarianceFloor(options.variance_floor, default=relative, noise_std=noise_std)
        self.pooling.requires_grad_(options.learn != "frozen")
        if self.dimension_gate is not None:
            self.dimension_gate.requires_grad_(options.learn == "penalty")
        if options.learn == "penalty":
            self.caution = CAUTION_GATES if options.dimension_gate else CAUTION_ATTENTION

    def _evaluate(self, z: Tensor, y: Tensor, noise: Tensor | None) -> SurrogateOutput:
        return self._evaluate_weighted(z, y, noise, None)

    def _evaluate_weighted(self, z: Tensor, y: Tensor, noise: Tensor | None, doubts: Tensor | None) -> SurrogateOutput:
        groups = self._groups_by(doubts, y, z.dtype)
        keep = groups.counts >= 2
        through = self.options.weights_gradient == "through"
        weights = self._attention(z if through else z.detach(), groups, doubts, live=False)
        penalty = self._penalty(self._space(z), weights, groups, doubts, live=False)
        plain_mean, plain_variance = moments.class_moments(z.detach().flatten(1), groups)
        extra = {
            **self._diagnostics(penalty, weights.detach(), groups, keep),
            "plain_loss": self._plain_loss(z.detach(), plain_variance, groups, keep),
        }
        if self.options.variance_space == "layernorm":
            removed = removed_by_layer_norm(z.detach().flatten(1), plain_mean, plain_variance, groups)
            seen = keep & above_noise(plain_variance, self.noise_std)
            extra["removed"] = moments.mean_over_kept(removed, seen)
        return self._output(penalty.per_group, keep, groups, plain_variance, extra=extra)

    def _explain(self, z: Tensor, y: Tensor) -> dict[str, Tensor]:
        return self._explain_weighted(z, y, None)

    def _explain_weighted(self, z: Tensor, y: Tensor, doubts: Tensor | None) -> dict[str, Tensor]:
        groups = moments.group_by_class(y, self.num_classes, z.dtype)
        weights = self._attention(z, groups, doubts, live=False)
        gates = self._penalty(self._space(z), weights, groups, doubts, live=False).gates
        return {"attention": weights.sum(1), **moments.of_each_sample(gates, groups)}

    def _groups_by(self, doubts: Tensor | None, y: Tensor, dtype: torch.dtype) -> Groups:
        """Groups of the labels; with doubts, the shares of the classes are those of what is sent."""
        groups = self._groups(y, dtype)
        return groups if doubts is None else moments.shares_by_doubt(doubts, self.options.uniform_mix, groups)

    def _attention(self, z: Tensor, groups: Groups, doubts: Tensor | None, *, live: bool) -> Tensor:
        """Attention weights [B, G], times the doubts; mixed with uniform ones under worst_case and with doubts."""
        logits = self.pooling.logits(z, live=live)
        if doubts is not None:
            logits = logits + doubts.clamp_min(torch.finfo(doubts.dtype).tiny).log()
        weights = moments.softmax_within_class(logits, groups)
        if self.options.learn == "worst_case" or doubts is not None:
            return moments.mix_with_uniform(weights, self.options.uniform_mix, groups)
        return weights

    def _space(self, z: Tensor) -> Tensor:
        """The features [B, D] whose variance is computed."""
        x = z.flatten(1)
        return layer_norm(x, x.shape[1:]) if self.options.variance_space == "layernorm" else x

    def _penalty(
        self, x: Tensor, weights: Tensor, groups: Groups, doubts: Tensor | None, *, live: bool
    ) -> ClassPenalty:
        """L_c of every group; ``live`` passes a gradient to the weights of the gates."""
        mean, variance = moments.weighted_moments(x, weights, groups)
        variance = self._corrected(variance, groups, None if doubts is None else weights.detach())
        entries = self._statistic(variance)
        gates = self._gates(mean, variance, groups, live=live)
        per_group = through_gates(entries, gates).mean(1)
        if "gate_class" in gates:
            per_group = per_group * gates["gate_class"]
        if self.options.slot_power is not None:
            per_group = per_group * groups.share**self.options.slot_power
        above = above_floor(variance.detach(), self.options, self.floor.value, self.noise_std)
        return ClassPenalty(per_group, above, gates, snr_passed(entries, gates))

    def _corrected(self, variance: Tensor, groups: Groups, weights: Tensor | None = None) -> Tensor:
        """The input variances of the statistic, [G, D], or [G, 1] where the dimensions are summed (004).

        With ``weights`` the correction of small samples is that of weighted ones: few doubtful samples have less spread
        around their own mean than there is.
        """
        if self.options.small_sample_correction and weights is None:
            variance = moments.unbiased(variance, groups)
        elif self.options.small_sample_correction and weights is not None:
            variance = moments.unbiased_for_weights(variance, weights)
        return variance.sum(1, keepdim=True) if self.options.scalar_variance else variance

    def _statistic(self, variance: Tensor) -> Tensor:
        """From variance to penalty, elementwise."""
        options = self.options
        return variance_statistic(
            variance,
            options,
            self.floor.log(options.gamma),
            self.noise_std,
            beta=options.softplus_beta,
            margin=options.margin_m,
        )

    def _gates(self, mean: Tensor, variance: Tensor, groups: Groups, *, live: bool) -> dict[str, Tensor]:
        """The active gates: per dimension [G, D], per signal-to-noise ratio [G, D], per class [G] (002)."""
        options = self.options
        gates: dict[str, Tensor] = {}
        if self.dimension_gate is not None:
            gates["gate_dimension"] = self.dimension_gate((variance + options.gamma).log(), live=live)
        if options.snr_gate:
            inverse_ratio = variance / (mean.square() + options.gamma)
            gates["gate_snr"] = (options.snr_sharp * (inverse_ratio - options.snr_thresh)).sigmoid()
        if options.class_gate:
            gates["gate_class"] = (options.class_gate_a * (groups.share - options.class_gate_b)).sigmoid()
        return gates

    def _fit(self, z: Tensor, y: Tensor, noise: Tensor | None) -> Tensor | None:
        return self._fit_weighted(z, y, noise, None)

    def _fit_weighted(self, z: Tensor, y: Tensor, noise: Tensor | None, doubts: Tensor | None) -> Tensor | None:
        learn = self.options.learn
        if learn == "frozen":
            return None
        groups = self._groups_by(doubts, y, z.dtype)
        keep = groups.counts >= 2
        x, weights = self._space(z), self._attention(z, groups, doubts, live=True)
        if learn == "fit":
            per_group = recomputed(
                lambda x, weights: self._negative_log_likelihood(x, weights, groups, doubts),
                x,
                weights,
                values=x.numel(),
            )
            return moments.share_weighted_sum(per_group, keep, groups)
        penalty = recomputed(
            lambda x, weights: self._penalty(x, weights, groups, doubts, live=learn == "penalty"),
            x,
            weights,
            values=x.numel(),
        )
        rob_loss = moments.share_weighted_sum(penalty.per_group, keep, groups)
        return self.options.attention_loss_scale * rob_loss if learn == "penalty" else -rob_loss

    def _negative_log_likelihood(self, x: Tensor, weights: Tensor, groups: Groups, doubts: Tensor | None) -> Tensor:
        """NLL per dimension and released sample under N(μ_a, σ²_a + σ_n²), mean over the channel's noise, [G].

        Each sample counts once, or by its doubt: a likelihood weighted by the attention would collapse with it. The
        samples are the released ones, z + noise: for clean z the best σ²_a is the variance minus σ_n², so that the
        attention would learn to report too little (measured: 0.78 of the capacity at variance = noise, 0.32 at a
        tenth).
        """
        mean, variance = moments.weighted_moments(x, weights, groups)
        distance = moments.second_moment(x, mean, self._counted(doubts, groups), groups)
        noise = self.noise_std**2 + self.options.gamma
        total = variance + noise
        return 0.5 * ((2 * math.pi * total).log() + (distance + noise) / total).mean(1)

    def _counted(self, doubts: Tensor | None, groups: Groups) -> Tensor:
        """The weights of a class's samples [B, G] without the attention."""
        if doubts is None:
            return moments.uniform_weights(groups)
        return moments.doubtful_weights(doubts, self.options.uniform_mix, groups)

    def _plain_loss(self, z: Tensor, variance: Tensor, groups: Groups, keep: Tensor) -> Tensor:
        """The penalty of the unweighted class variance without gates: the amount to report.

        LayerNorm amplifies spread that the noise hides: classes whose raw spread is far below the noise's count as 0.
        """
        if self.options.variance_space == "layernorm":
            keep = keep & above_noise(variance, self.noise_std)
            _, variance = moments.class_moments(self._space(z), groups)
        entries = self._statistic(self._corrected(variance, groups))
        return moments.share_weighted_sum(entries.mean(1), keep, groups)

    @property
    def num_variances(self) -> int:
        """One if the dimensions are summed (004)."""
        return 1 if self.options.scalar_variance else self.num_features

    def _diagnostics(self, penalty: ClassPenalty, weights: Tensor, groups: Groups, keep: Tensor) -> dict[str, Tensor]:
        per_sample = (weights.square().sum(0) * groups.counts).clamp_min(1)
        return {
            "active": moments.mean_over_kept(penalty.above.to(weights.dtype), keep),
            "effective_samples": moments.mean_over_kept(1 / per_sample, keep),
            "effective_number": moments.mean_over_kept(groups.counts / per_sample, keep),
            "class_samples": moments.mean_over_kept(groups.counts, keep),
            "shut_off": torch.zeros_like(per_sample[0]),
            **gate_values(penalty.gates, keep),
            **passed_values(penalty, self.options, keep),
        }


def through_gates(entries: Tensor, gates: Mapping[str, Tensor]) -> Tensor:
    """The statistic's entries times their gates."""
    for name in ("gate_dimension", "gate_snr"):
        entries = entries * gates[name] if name in gates else entries
    return entries


def snr_passed(entries: Tensor, gates: Mapping[str, Tensor], weights: Tensor | None = None) -> Tensor:
    """Share [G] of the statistic that the SNR gate passes; entries [G, D], or [G·S, D] with weights [G, S]."""
    weights = entries.new_ones(len(entries), 1) if weights is None else weights.detach()
    if "gate_snr" not in gates:
        return weights.new_ones(len(weights))
    sizes = entries.detach().abs()
    whole, passed = ((weights * part.mean(1).view_as(weights)).sum(1) for part in (sizes, sizes * gates["gate_snr"]))
    return torch.where(whole > 0, passed.detach() / whole, 1)


def removed_by_layer_norm(x: Tensor, mean: Tensor, variance: Tensor, groups: Groups) -> Tensor:
    """Share [G] of the raw variance inside a class that LayerNorm cannot see; its moments are [G, D].

    Around a class mean LayerNorm removes two directions: the one in which all dimensions move alike, and that of the
    mean itself, in which the scale changes.
    """
    scale = mean - mean.mean(1, keepdim=True)
    scale = scale / scale.norm(dim=1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
    centred = x - moments.rows_of_samples(mean, groups)
    along = torch.stack([centred.sum(1) / math.sqrt(x.shape[1]), _along(centred, scale, groups)], 1)
    lost = moments.uniform_weights(groups).T @ along.square()
    total = variance.sum(1)
    return torch.where(total > 0, lost.sum(1) / total, 0).clamp_max(1)


def _along(x: Tensor, directions: Tensor, groups: Groups) -> Tensor:
    """Component [B] of each row along the direction [G, D] of its class."""
    return (x * moments.rows_of_samples(directions, groups)).sum(1)


def passed_values(penalty: ClassPenalty, options: GatedOptions | SlotOptions, keep: Tensor) -> dict[str, Tensor]:
    """The share that an SNR gate passes; empty without one, and under learn=penalty, whose report is no estimate."""
    if not options.snr_gate or options.learn == "penalty":
        return {}
    return {"snr_passed": moments.mean_over_kept(penalty.snr_passed, keep)}


def gate_values(gates: Mapping[str, Tensor], keep: Tensor) -> dict[str, Tensor]:
    """Means of the gates, and the share of saturated per-dimension gates."""
    values = {name: moments.mean_over_kept(gate, keep) for name, gate in gates.items()}
    for name, key in (("gate_dimension", "gate_saturation"), ("gate_snr", "gate_snr_saturation")):
        if name in gates:
            saturated = (gates[name] < SATURATED) | (gates[name] > 1 - SATURATED)
            values[key] = moments.mean_over_kept(saturated.to(gates[name].dtype), keep)
    return values
