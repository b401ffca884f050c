"""The slow slot surrogate: one class, slot by slot and sample by sample."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from attncem.training.surrogates.projection import PositionProjection, Projection
from attncem.training.surrogates.reference_parts import dimension_gate, floor_of, normalise, project, soft
from attncem.training.surrogates.slot import GatedCrossAttention, SlotAttention, SlotCrossAttentionCEM
from attncem.training.surrogates.slot_attention import FeedForward


def slot_class(surrogate: SlotCrossAttentionCEM, z: Tensor, noise: Tensor, share: float) -> Tensor:
    """The penalty of one class: its slots, enhanced samples, moments and gates."""
    options = surrogate.options
    x = torch.stack([normalise(row) for sample in z for row in _tokens(surrogate.projection, sample)])
    slots = _slots(surrogate.slot_attention, x, noise)
    enhanced = torch.stack([_enhance(surrogate.cross_attention, row, slots) for row in x])
    raw = options.variance_space == "raw"
    value = z.new_zeros(())
    if options.moments == "class":
        value = _slot_entries(surrogate, enhanced.mean(0), enhanced.var(0, unbiased=True)).mean()
    else:
        space = z.flatten(1) if raw else enhanced
        responsibilities = _responsibilities(surrogate, enhanced if raw else x, slots)
        responsibilities = torch.stack([part.mean(0) for part in responsibilities.chunk(len(z))])
        powers = [
            max(float(column.sum()) / len(z), 1e-6) ** _scalar(surrogate, "slot_power") for column in responsibilities.T
        ]
        for power, column in zip(powers, responsibilities.T, strict=True):
            weights = column / column.sum()
            mean = weights @ space
            variance = sum(
                (w * (row - mean) ** 2 for w, row in zip(weights, space, strict=True)), torch.zeros_like(mean)
            )
            if options.small_slot_correction:
                variance = variance + (weights**2).sum() * space.var(0, unbiased=True)
            value = value + power / sum(powers) * _slot_entries(surrogate, mean, variance).mean()
    if options.class_gate:
        slope, offset = _scalar(surrogate, "class_gate_a"), _scalar(surrogate, "class_gate_b")
        value = value / (1 + math.exp(-slope * (share - offset)))
    return value


def _tokens(projection: Projection, sample: Tensor) -> list[Tensor]:
    if not isinstance(projection, PositionProjection):
        return [project(projection, sample)]
    positions = sample if sample.dim() == 2 else sample.reshape(sample.shape[0], -1).T
    return [projection.weight @ position for position in positions]


def _scalar(surrogate: SlotCrossAttentionCEM, name: str) -> float:
    value = float(surrogate.scalars[name])
    free = name in ("snr_thresh", "margin_m", "class_gate_b")
    return value if free else math.log(1 + math.exp(value))


def _slots(attention: SlotAttention, x: Tensor, noise: Tensor) -> Tensor:
    size = x.shape[1]
    keys = [attention.to_k.weight @ normalise(row) for row in x]
    values = [attention.to_v.weight @ normalise(row) for row in x]
    slots = list(attention.slot_mu + torch.exp(attention.slot_log_sigma) * noise)
    for _ in range(attention.rounds):
        queries = [attention.to_q.weight @ normalise(slot) / math.sqrt(size) for slot in slots]
        shares = [torch.softmax(torch.stack([key @ q for q in queries]) / size**0.25, 0) + 1e-8 for key in keys]
        for index, slot in enumerate(slots):
            column = torch.stack([row[index] for row in shares])
            column = column / column.sum() if attention.renormalise else column
            update = sum((w * v for w, v in zip(column, values, strict=True)), torch.zeros_like(slot))
            state = attention.gru(update.unsqueeze(0), slot.unsqueeze(0)).squeeze(0)
            slots[index] = state + _feed_forward(attention.mlp, normalise(state))
    return torch.stack(slots)


def _enhance(attention: GatedCrossAttention, x: Tensor, slots: Tensor) -> Tensor:
    context = [normalise(slot) for slot in slots]
    query = (attention.to_q.weight @ normalise(x)).chunk(attention.num_heads)
    keys = [(attention.to_k.weight @ slot).chunk(attention.num_heads) for slot in context]
    values = [(attention.to_v.weight @ slot).chunk(attention.num_heads) for slot in context]
    read = []
    for head, part in enumerate(query):
        scores = torch.stack([part @ key[head] for key in keys]) / math.sqrt(len(part))
        weights = torch.softmax(scores, 0)
        read.append(sum((w * v[head] for w, v in zip(weights, values, strict=True)), torch.zeros_like(part)))
    y = x + torch.tanh(attention.alpha_xattn) * (attention.proj.weight @ torch.cat(read) + attention.proj.bias)
    return y + torch.tanh(attention.alpha_ffn) * _feed_forward(attention.ffn, normalise(y))


def _feed_forward(layer: FeedForward, x: Tensor) -> Tensor:
    return layer.outer.weight @ torch.relu(layer.inner.weight @ x + layer.inner.bias) + layer.outer.bias


def _responsibilities(surrogate: SlotCrossAttentionCEM, x: Tensor, slots: Tensor) -> Tensor:
    temperature = _scalar(surrogate, "assign_temp")
    rows = []
    for row in x:
        cosines = torch.stack([row @ slot / (row.norm() * slot.norm()) for slot in slots])
        rows.append(torch.softmax(temperature * cosines, 0))
    return torch.stack(rows)


def _slot_entries(surrogate: SlotCrossAttentionCEM, mean: Tensor, variance: Tensor) -> Tensor:
    options = surrogate.options
    if options.statistic != "capacity":
        variance = torch.clamp(variance, min=options.eps_var)
    entries = _slot_statistic(surrogate, variance)
    if surrogate.dimension_gate is not None:
        entries = entries * dimension_gate(surrogate.dimension_gate, variance, options.gamma)
    if options.snr_gate:
        ratio = variance / (mean**2 + options.gamma)
        sharp, threshold = _scalar(surrogate, "snr_sharp"), _scalar(surrogate, "snr_thresh")
        entries = entries * torch.sigmoid(sharp * (ratio - threshold))
    return entries


def _slot_statistic(surrogate: SlotCrossAttentionCEM, variance: Tensor) -> Tensor:
    options = surrogate.options
    if options.statistic == "capacity":
        return 0.5 * torch.log(1 + variance / surrogate.noise_std**2)
    excess = torch.log(variance + options.gamma) - math.log(floor_of(surrogate) + options.gamma)
    if options.statistic == "hinge":
        return torch.clamp(excess, min=0)
    if options.statistic == "difference":
        return torch.clamp(soft(excess, options.softness), min=options.difference_bound)
    beta, margin = _scalar(surrogate, "softplus_beta"), _scalar(surrogate, "margin_m")
    return torch.log(1 + torch.exp(beta * (excess - margin))) / beta
