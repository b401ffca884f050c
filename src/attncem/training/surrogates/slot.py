"""Slot attention and gated cross attention over the samples of a class (documents 001, 003; ours)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from attncem.base.types import SurrogateOutput
from attncem.config.options.attention import SlotOptions
from attncem.training.surrogates import moments
from attncem.training.surrogates.base import PAIR, Batch, Surrogate, exact_arithmetic
from attncem.training.surrogates.floor import VarianceFloor
from attncem.training.surrogates.gated import (
    ClassPenalty,
    DimensionGate,
    gate_values,
    passed_values,
    snr_passed,
    through_gates,
)
from attncem.training.surrogates.moments import Groups
from attncem.training.surrogates.projection import build_projection
from attncem.training.surrogates.recompute import recomputed
from attncem.training.surrogates.slot_attention import (
    GatedCrossAttention,
    SlotAttention,
    normalise,
    spread_over_classes,
)
from attncem.training.surrogates.slot_records import Drawn, SlotMoments, View
from attncem.training.surrogates.statistic import above_floor, above_noise, variance_statistic

__all__ = ["GatedCrossAttention", "SlotAttention", "SlotCrossAttentionCEM"]

POSITIVE = ("assign_temp", "slot_power", "snr_sharp", "softplus_beta", "class_gate_a")
"""Scalars kept positive: the parameter is their inverse softplus."""
SMALLEST_FLOOR = 1e-8
"""The relative variance floor is never below this (003)."""
SMALLEST_MASS = 1e-6
"""A slot's share of its class is never below this."""
MOST_SHARED = 2**22
"""Largest attention table, in values, for which penalty and own loss share one pass; this doubles the table."""
CAUTION = (
    "learn=penalty trains slots, gates and scalars to lower their own penalty: on frozen features rob_loss falls to 0 "
    "while the spread stays; learn=fit and worst_case keep gates and scalars frozen."
)


class SlotCrossAttentionCEM(Surrogate):
    """Penalty on the variance inside the slots of a class.

    x = LN(projection(z)); slots s = SlotAttention(x); enhanced y = GatedCrossAttention(x, s); responsibilities r_mk =
    softmax_k(β cos(·, s_k)) of x (001) or of y (ours, variance_space raw); mass w_k = Σ_m r_mk; μ_k, σ²_k under r of y
    (001) or of raw z (ours); L_c = gate_c · mean_d Σ_k w̃_k gate_d hard φ(σ²_k), with w̃_k ∝ (w_k/M)^slot_power;
    rob_loss = Σ p_c L_c over classes with at least two samples. 003: no slots in the moments, one unbiased variance of
    y over the class. ``tokens: spatial``: x, y and r are those of the positions of z; a sample's r is the mean over its
    positions.

    ``fit_loss`` trains the surrogate's weights on detached z: ``penalty`` attention_loss_scale · rob_loss (001);
    ``fit`` minus the likelihood of one half of a class under the mixture formed from the other; ``worst_case``
    −rob_loss. Under the last two, gates and scalars other than assign_temp stay frozen.

    ``noise`` is [num_classes, num_slots, slot_dim]; None draws it in training mode (torch's global generator) and uses
    zeros in eval mode.
    """

    options_type = SlotOptions
    part = "slot"
    options: SlotOptions
    calls: Tensor
    penalised: Tensor
    mean_gate_snr: Tensor
    mean_gate_dimension: Tensor

    def __init__(
        self, options: SlotOptions, *, feature_shape: Sequence[int], num_classes: int, noise_std: float
    ) -> None:
        super().__init__(options, feature_shape=feature_shape, num_classes=num_classes, noise_std=noise_std)
        self.projection = build_projection(options, self.feature_shape)
        self.slot_attention = SlotAttention(options)
        self.cross_attention = GatedCrossAttention(options)
        width = options.slot_dim if options.variance_space == "enhanced" else self.num_features
        self.dimension_gate = DimensionGate(width, options.gate_hidden) if options.dimension_gate else None
        relative = max(options.var_threshold * noise_std**2, SMALLEST_FLOOR)
        self.floor = VarianceFloor(options.variance_floor, default=relative, noise_std=noise_std)
        self.scalars = nn.ParameterDict({name: self._start(name) for name in self._scalars_used()})
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("penalised", torch.ones((), dtype=torch.bool), persistent=False)
        self.register_buffer("mean_gate_snr", torch.zeros(()))
        self.register_buffer("mean_gate_dimension", torch.zeros(()))
        self._choose_what_learns()
        if options.learn == "penalty":
            self.caution = CAUTION

    def _scalars_used(self) -> list[str]:
        options = self.options
        used = ["assign_temp"]
        used += ["slot_power"] if options.moments == "slots" else []
        used += ["snr_sharp", "snr_thresh"] if options.snr_gate else []
        used += ["softplus_beta", "margin_m"] if options.statistic == "softplus" else []
        return used + (["class_gate_a", "class_gate_b"] if options.class_gate else [])

    def _scalars_told(self) -> list[str]:
        """The scalars for the log: those that may learn."""
        return list(self.scalars) if self.options.learnable_scalars else ["assign_temp"]

    def _start(self, name: str) -> nn.Parameter:
        value = float(getattr(self.options, name))
        if name in POSITIVE:
            # log(exp(v) − 1), also for large v.
            value += math.log(-math.expm1(-value))
        return nn.Parameter(torch.tensor(value))

    def _choose_what_learns(self) -> None:
        learn = self.options.learn
        self.requires_grad_(learn != "frozen")
        for name, scalar in self.scalars.items():
            in_use = self.options.moments == "slots"
            learns = in_use if name == "assign_temp" else self.options.learnable_scalars and learn == "penalty"
            scalar.requires_grad_(learns and learn != "frozen")
        if self.dimension_gate is not None:
            self.dimension_gate.requires_grad_(learn == "penalty")

    def scalar(self, name: str, *, live: bool = False) -> Tensor:
        """The value of a learnable scalar, such as assign_temp."""
        value = self.scalars[name] if live else self.scalars[name].detach()
        return softplus(value) if name in POSITIVE else value

    def share(self, batch: Batch) -> Batch:
        """Both views at once if neither passes a gradient to z: half as many small operations."""
        noise: Tensor = batch.noise.noise
        samples = len(batch.y)
        if not self._views_alike or 4 * samples * noise.shape[0] * noise.shape[1] > MOST_SHARED:
            return batch
        with exact_arithmetic(batch.z):
            groups = self._groups(batch.y, batch.z.dtype)
            twice = moments.side_by_side(groups, moments.halves(groups)[0])
            view = self._attend(batch.z.detach(), twice, torch.cat([noise, noise]), live=True)
        whole = View(view.enhanced[:samples], view.responsibilities[:samples]).detach()
        return Batch(batch.z, batch.y, Drawn(noise, whole, view.responsibilities[samples:]))

    @property
    def _views_alike(self) -> bool:
        """Whether penalty and own loss use the same maps of the samples, once as constants and once with gradients."""
        return self._view_is_constant and self.options.learn == "fit" and self.options.tokens == "sample"

    @property
    def _view_is_constant(self) -> bool:
        return self.options.variance_space == "raw" and self.options.weights_gradient == "detached"

    def _evaluate(self, z: Tensor, y: Tensor, noise: Drawn) -> SurrogateOutput:
        groups = self._groups(y, z.dtype)
        keep = groups.counts >= 2
        seen = z.detach() if self._view_is_constant else z
        view = self._view(seen, groups, noise.noise, live=False) if noise.whole is None else noise.whole
        penalty = self._penalty(self._space(z, view), view, groups, live=False, again=self._has_many_tables)
        self._track_gates(penalty, keep)
        shut = self._is_shut()
        loss = self._combine(penalty.per_group, keep, groups, shut)
        _, plain_variance = moments.class_moments(z.detach().flatten(1), groups)
        return self._report(
            loss,
            penalty.per_group,
            keep,
            groups,
            plain_variance,
            extra={
                **self._diagnostics(penalty, view.detach(), groups, keep, shut),
                "plain_loss": self._plain_loss(z.detach(), plain_variance, groups, keep),
            },
        )

    @property
    def _has_many_tables(self) -> bool:
        """Whether the encoder's loss has more tables [G·S, D] than the plain capacity under constant weights."""
        options = self.options
        gated = options.dimension_gate or options.snr_gate
        return gated or options.statistic != "capacity" or options.weights_gradient == "through"

    def _draw(self, noise: Tensor | None, z: Tensor, y: Tensor) -> Drawn:
        size = (self.options.num_slots, self.options.slot_dim)
        if noise is None:
            return Drawn(self._noise(moments.num_groups(len(y), self.num_classes, PAIR), z))
        if tuple(noise.shape) != (self.num_classes, *size):
            raise ValueError(f"noise: expected shape {[self.num_classes, *size]}, got {list(noise.shape)}")
        classes = self._groups(y, z.dtype).class_of_group
        return Drawn(noise.to(z)[classes.clamp_max(self.num_classes - 1)])

    def _noise(self, groups: int, like: Tensor) -> Tensor:
        """Drawn in training mode, zeros in eval mode, [G, S, d]."""
        shape = (groups, self.options.num_slots, self.options.slot_dim)
        if not self.training:
            return like.new_zeros(shape)
        return torch.randn(shape, generator=self.generator, dtype=like.dtype, device=like.device)

    def _view(self, z: Tensor, groups: Groups, noise: Tensor, *, live: bool) -> View:
        """Slots, enhanced samples and responsibilities; ``live`` passes a gradient to the surrogate's weights."""
        if self.options.tokens == "sample" or (self.options.dropout and self.training):
            return self._attend(z, groups, noise, live=live)
        # It makes several tables [B·N, S, d].
        return recomputed(lambda z, noise: self._attend(z, groups, noise, live=live), z, noise, values=z.numel())

    def _attend(self, z: Tensor, groups: Groups, noise: Tensor, *, live: bool) -> View:
        x = normalise(self.projection(z, live=live))
        positions = x.shape[0] // z.shape[0]
        groups = moments.of_positions(groups, positions)
        times = len(groups.index) // len(x)  # two where two sets of groups are processed together
        x = x if times == 1 else x.repeat(times, 1)
        slots = self.slot_attention(x, groups, noise, live=live)
        detached = self.options.weights_gradient == "detached" and not live
        slots = slots.detach() if detached else slots
        enhanced = self.cross_attention(x, slots, groups, live=live)
        compared = enhanced if self.options.variance_space == "raw" else x
        cosine = (moments.rows_of_samples(_unit(slots), groups) @ _unit(compared).unsqueeze(2)).squeeze(2)
        responsibilities = (self.scalar("assign_temp", live=live).to(x.dtype) * cosine).softmax(1)
        responsibilities = responsibilities.unflatten(0, (-1, positions)).mean(1)
        return View(enhanced, responsibilities.detach() if detached else responsibilities)

    def _explain(self, z: Tensor, y: Tensor) -> dict[str, Tensor]:
        groups = moments.group_by_class(y, self.num_classes, z.dtype)
        view = self._view(z, groups, self._noise(len(groups.counts), z), live=False)
        gates = self._penalty(self._space(z, view), view, groups, live=False, again=False).gates
        return {"shares": view.responsibilities, **moments.of_each_sample(gates, groups)}

    def _space(self, z: Tensor, view: View) -> Tensor:
        """The features [B, D] whose variance is computed."""
        return z.flatten(1) if self.options.variance_space == "raw" else view.enhanced

    def _moments(self, x: Tensor, responsibilities: Tensor, groups: Groups) -> SlotMoments:
        """Moments of x [B, D] inside every slot, first centred at the class mean; two products, no [B, S, D]."""
        uniform = moments.uniform_weights(groups)
        centre = uniform.T @ x
        centred = x - moments.rows_of_samples(centre, groups)
        squares = centred.square()
        class_variance = moments.unbiased(uniform.T @ squares, groups)
        if self.options.moments == "class":
            variance = self._clamp(class_variance)
            return SlotMoments(torch.zeros_like(centre), variance, groups.counts.unsqueeze(1), centre)
        table = spread_over_classes(responsibilities, groups.one_hot)
        mass = table.sum(0)
        weights = (table / mass.clamp_min(SMALLEST_MASS)).flatten(1)
        mean = weights.T @ centred
        variance = (weights.T @ squares - mean.square()).clamp_min(0)
        if self.options.small_slot_correction:
            # On one Gaussian σ²_k is too low by a factor 1 − Σr²/w_k²: the class variance supplies the missing part.
            rows = class_variance.repeat_interleave(responsibilities.shape[1], 0)
            variance = variance + weights.square().sum(0).unsqueeze(1) * rows
        return SlotMoments(mean, self._clamp(variance), mass, centre)

    def _clamp(self, variance: Tensor) -> Tensor:
        return variance if self.options.statistic == "capacity" else variance.clamp_min(self.options.eps_var)

    def _penalty(self, x: Tensor, view: View, groups: Groups, *, live: bool, again: bool) -> ClassPenalty:
        """L_c of every group; ``live`` passes a gradient to gates and scalars, ``again`` stores no large table."""
        values = self._table_size(x, groups) if again else 0
        return recomputed(
            lambda x, shares: self._penalise(x, shares, groups, live=live), x, view.responsibilities, values=values
        )

    def _table_size(self, x: Tensor, groups: Groups) -> int:
        """Values of the larger of the tables [B, D] and [G·S, D]."""
        return max(x.shape[0], len(groups.counts) * self.options.num_slots) * x.shape[1]

    def _penalise(self, x: Tensor, responsibilities: Tensor, groups: Groups, *, live: bool) -> ClassPenalty:
        found = self._moments(x, responsibilities, groups)
        softplus_used = self.options.statistic == "softplus"
        entries = variance_statistic(
            found.variance,
            self.options,
            self.floor.log(self.options.gamma),
            self.noise_std,
            beta=self.scalar("softplus_beta", live=live).to(x.dtype) if softplus_used else 1.0,
            margin=self.scalar("margin_m", live=live).to(x.dtype) if softplus_used else 0.0,
        )
        gates = self._gates(found, groups, live=live)
        per_slot = through_gates(entries, gates).mean(1).view_as(found.mass)
        weights = self._slot_weights(found.mass, groups, live=live)
        per_group = (weights * per_slot).sum(1)
        if "gate_class" in gates:
            per_group = per_group * gates["gate_class"]
        by_group = {name: gate.reshape(len(groups.counts), -1) for name, gate in gates.items()}
        above = above_floor(found.variance.detach(), self.options, self.floor.value, self.noise_std)
        passed = snr_passed(entries, gates, weights)
        return ClassPenalty(per_group, above.reshape(len(groups.counts), -1), by_group, passed)

    def _slot_weights(self, mass: Tensor, groups: Groups, *, live: bool) -> Tensor:
        """w̃_k = (w_k/M)^slot_power, normalised, [G, S]."""
        if self.options.moments == "class":
            return torch.ones_like(mass)
        share = (mass / groups.counts.clamp_min(1).unsqueeze(1)).clamp_min(SMALLEST_MASS)
        powers = share ** self.scalar("slot_power", live=live).to(mass.dtype)
        return powers / powers.sum(1, keepdim=True)

    def _gates(self, found: SlotMoments, groups: Groups, *, live: bool) -> dict[str, Tensor]:
        """The active gates: soft and SNR [G·S, D], class [G] (001)."""
        options = self.options
        gates: dict[str, Tensor] = {}
        if self.dimension_gate is not None:
            gates["gate_dimension"] = self.dimension_gate((found.variance + options.gamma).log(), live=live)
        if options.snr_gate:
            mean = found.mean + found.centre.repeat_interleave(found.mass.shape[1], 0)
            excess = found.variance / (mean.square() + options.gamma) - self.scalar("snr_thresh", live=live)
            gates["gate_snr"] = (self.scalar("snr_sharp", live=live) * excess).sigmoid()
        if options.class_gate:
            excess = groups.share - self.scalar("class_gate_b", live=live)
            gates["gate_class"] = (self.scalar("class_gate_a", live=live) * excess).sigmoid()
        return gates

    def _combine(self, per_group: Tensor, keep: Tensor, groups: Groups, shut: Tensor) -> Tensor:
        """Σ p_c L_c, over the processed share (003) or the batch; 0 while shut off."""
        loss = moments.share_weighted_sum(per_group, keep, groups)
        if self.options.divide_by_processed:
            loss = loss / self._processed(keep, groups)
        return torch.where(shut, torch.zeros_like(loss), loss)

    @staticmethod
    def _processed(keep: Tensor, groups: Groups) -> Tensor:
        """Share of the samples in the classes kept; 1 if there are none, as nothing is divided then."""
        share = moments.share_weighted_sum(torch.ones_like(groups.counts), keep, groups)
        return torch.where(share > 0, share, torch.ones_like(share))

    def _track_gates(self, penalty: ClassPenalty, keep: Tensor) -> None:
        """Update the running means of the gates that shut the loss off, and the count of calls with a penalty weight.

        001 does not call its module during the warm-up: those steps change neither.
        """
        if not (self.options.early_shut_off and self.training):
            return
        for name in ("gate_snr", "gate_dimension"):
            if name in penalty.gates:
                self._track(getattr(self, f"mean_{name}"), moments.mean_over_kept(penalty.gates[name].detach(), keep))
        self.calls.add_(self.penalised)

    def set_penalised(self, on: bool) -> None:
        """Whether the next calls count for the early shut-off; they do by default."""
        self.penalised.fill_(on)

    def _is_shut(self) -> Tensor:
        """Whether the loss is set to 0: in the first calls with weight, or while a gate's mean is high (001 §4.1)."""
        options = self.options
        if not options.early_shut_off:
            return torch.zeros((), dtype=torch.bool, device=self.calls.device)
        return (
            (self.calls <= options.early_shut_steps)
            | (self.mean_gate_snr > options.early_hard_thresh)
            | (self.mean_gate_dimension > options.early_gate_thresh)
        )

    def _track(self, running: Tensor, value: Tensor) -> None:
        """Running mean, started at the first value; NaN is skipped."""
        momentum = self.options.early_momentum
        value = value.to(running.dtype)
        moved = torch.where(self.calls == 0, value, momentum * running + (1 - momentum) * value)
        running.copy_(torch.where(value.isfinite() & self.penalised, moved, running))

    @property
    def fit_reads_penalty(self) -> bool:
        """True if the shut-off applies to both losses."""
        return self.options.early_shut_off and self.options.learn != "fit"

    def _fit(self, z: Tensor, y: Tensor, noise: Drawn) -> Tensor | None:
        learn = self.options.learn
        if learn == "frozen":
            return None
        groups = self._groups(y, z.dtype)
        keep = groups.counts >= 2
        if learn == "fit":
            first, second = moments.halves(groups)
            shares = noise.half
            if shares is None:
                shares = self._view(z, first, noise.noise, live=True).responsibilities
            per_group = self._negative_log_likelihood(z.flatten(1), shares, first, second)
            return moments.share_weighted_sum(per_group, keep, groups)
        own = self._view(z, groups, noise.noise, live=True)
        penalty = self._penalty(self._space(z, own), own, groups, live=learn == "penalty", again=True)
        rob_loss = self._combine(penalty.per_group, keep, groups, self._is_shut())
        return self.options.attention_loss_scale * rob_loss if learn == "penalty" else -rob_loss

    def _negative_log_likelihood(self, x: Tensor, shares: Tensor, first: Groups, second: Groups) -> Tensor:
        """NLL per dimension and released sample of a class's second half, under the mixture of its first, [G].

        Mixture Σ_k (w_k/M) N(μ_k, σ²_k + σ_n²); slots and moments use the first half only. Each component's log density
        is averaged over the channel's noise, as in the gated surrogate: for clean samples the best σ²_k would be the
        variance minus that of the noise.
        """
        return recomputed(
            lambda x, shares: self._held_out(x, shares, first, second),
            x,
            shares,
            values=self._table_size(x, first),
        )

    def _held_out(self, x: Tensor, responsibilities: Tensor, first: Groups, second: Groups) -> Tensor:
        found = self._moments(x, responsibilities, first)
        added = self.noise_std**2 + self.options.gamma
        total = found.variance + added
        centred = x - moments.rows_of_samples(found.centre, second)
        inverse = 1 / total
        squares = centred.square() @ inverse.T - 2 * centred @ (found.mean * inverse).T
        constant = (found.mean.square() * inverse + (2 * math.pi * total).log() + added * inverse).sum(1)
        share = found.mass / first.counts.clamp_min(1).unsqueeze(1)
        density = share.clamp_min(SMALLEST_MASS).log().flatten() - 0.5 * (squares + constant)
        own_class = torch.einsum("bgs,bg->bs", density.unflatten(1, found.mass.shape), second.one_hot)
        per_sample = -own_class.logsumexp(1) / x.shape[1]
        return (second.one_hot.T @ per_sample) / second.counts.clamp_min(1)

    def _plain_loss(self, z: Tensor, variance: Tensor, groups: Groups, keep: Tensor) -> Tensor:
        """The penalty of the unweighted class variance without gates and learned scalars: the amount to report.

        ``enhanced``: of LayerNormed z, because the learned map could hide the spread; 0 for classes whose raw spread is
        far below that of the noise.
        """
        if self.options.variance_space == "enhanced":
            keep = keep & above_noise(variance, self.noise_std)
            _, variance = moments.class_moments(normalise(z.flatten(1)), groups)
        options = self.options
        if options.small_slot_correction:
            variance = moments.unbiased(variance, groups)
        entries = variance_statistic(
            variance,
            options,
            self.floor.log(options.gamma),
            self.noise_std,
            beta=options.softplus_beta,
            margin=options.margin_m,
        )
        return moments.share_weighted_sum(entries.mean(1), keep, groups)

    def _diagnostics(
        self, penalty: ClassPenalty, view: View, groups: Groups, keep: Tensor, shut: Tensor
    ) -> dict[str, Tensor]:
        usage = moments.uniform_weights(groups).T @ view.responsibilities
        entropy = -(usage * usage.clamp_min(SMALLEST_MASS).log()).sum(1)
        squares = (groups.one_hot.T @ view.responsibilities.square()).clamp_min(SMALLEST_MASS)
        values = {
            "active": moments.mean_over_kept(penalty.above.to(usage.dtype), keep),
            "effective_slots": moments.mean_over_kept(entropy.exp(), keep),
            **{name: self.scalar(name).clone() for name in self._scalars_told()},
            "tanh_alpha_xattn": self.cross_attention.alpha_xattn.detach().tanh(),
            "tanh_alpha_ffn": self.cross_attention.alpha_ffn.detach().tanh(),
            "class_samples": moments.mean_over_kept(groups.counts, keep),
            "shut_off": shut.to(usage.dtype),
            **gate_values(penalty.gates, keep),
            **passed_values(penalty, self.options, keep),
        }
        if self.options.num_slots > 1:
            values["slot_entropy"] = moments.mean_over_kept(entropy / math.log(self.options.num_slots), keep)
        if self.options.moments == "slots":
            # Effective samples per slot, w_k² / Σ r², averaged over the samples.
            mass = usage * groups.counts.unsqueeze(1)
            values["effective_number"] = moments.mean_over_kept((usage * mass.square() / squares).sum(1), keep)
        if self.options.moments == "class":
            # 003 computes its monitor from the enhanced features and divides it like the loss.
            _, spread = moments.class_moments(view.enhanced, groups)
            intra = moments.share_weighted_sum(spread.mean(1), keep, groups)
            values["intra_mse"] = intra / self._processed(keep, groups) if self.options.divide_by_processed else intra
        return values


def _unit(x: Tensor) -> Tensor:
    """Rows of length 1; a zero row stays zero."""
    return x / (x.square().sum(-1, keepdim=True) + 1e-12).sqrt()
