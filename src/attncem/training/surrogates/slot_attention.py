"""The two attentions of the slot surrogate: samples compete for slots, then samples read from slots.

All classes of a batch at once: slots are [G, S, d], and ``groups`` say which class a sample belongs to.
Nothing larger than [B, S, d] is built, with d = slot_dim. LayerNorms have no affine: the linear map after each has it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, layer_norm

from attncem.config.options.attention import SlotOptions
from attncem.training.surrogates import moments
from attncem.training.surrogates.base import own_linear, own_weight
from attncem.training.surrogates.moments import Groups

EPSILON = 1e-8
"""Added to the attention after its softmax, so that every slot has samples."""
START_LOG_SIGMA = -1.0
"""Initial log scale of the slots' noise (ours)."""
START_ALPHA = 0.1
"""Initial value of the two gates of the cross attention (003)."""
WIDENING = 2
"""Hidden size of the MLP and the feed-forward layer, divided by slot_dim (ours)."""


def normalise(x: Tensor) -> Tensor:
    """LayerNorm without affine over the last dimension."""
    return layer_norm(x, x.shape[-1:])


class FeedForward(nn.Module):
    """d → 2 d → d with a ReLU between."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.inner = nn.Linear(size, WIDENING * size)
        self.outer = nn.Linear(WIDENING * size, size)

    def forward(self, x: Tensor, *, live: bool = True, scale: Tensor | None = None) -> Tensor:
        """The layer's output, times ``scale``, of the shape of x."""
        return own_linear(self.outer, own_linear(self.inner, x, live=live).relu(), live=live, scale=scale)


class SlotAttention(nn.Module):
    """Slots of every class from its samples (Locatello et al. 2020; 001 §3.1, 003).

    Slots start at slot_mu + exp(slot_log_sigma)·noise. A round: q = W_q LN(s)/√d, logits k qᵀ / d^{1/4} (the
    documents' extra temperature), softmax over slots + ε, other classes masked, renormalised over samples (003)
    or not (001), u = Σ attn·v, s = GRU(u, s), s = s + MLP(LN(s)).
    """

    def __init__(self, options: SlotOptions) -> None:
        super().__init__()
        size = options.slot_dim
        self.rounds, self.renormalise = options.slot_iterations, options.renormalise
        self.last_round_learns = options.rounds_gradient == "last"
        self.slot_mu = nn.Parameter(torch.randn(options.num_slots, size))
        self.slot_log_sigma = nn.Parameter(torch.full((options.num_slots, size), START_LOG_SIGMA))
        self.to_q = nn.Linear(size, size, bias=False)
        self.to_k = nn.Linear(size, size, bias=False)
        self.to_v = nn.Linear(size, size, bias=False)
        self.gru = nn.GRUCell(size, size)
        self.mlp = FeedForward(size)

    def forward(self, x: Tensor, groups: Groups, noise: Tensor, *, live: bool = True) -> Tensor:
        """Slots [G, S, d] of samples x [B, d] under noise [G, S, d]."""
        size = x.shape[1]
        keys, news = (normalise(x) @ self._keys_and_news(x, live=live)).split([size, 3 * size], 1)
        mean, log_scale = (own_weight(weight, live=live, like=x) for weight in (self.slot_mu, self.slot_log_sigma))
        start = mean + log_scale.exp() * noise
        if not (live and self.last_round_learns):
            return self._rounds(start, keys, news, groups, self.rounds, live=live)
        with torch.no_grad():
            settled = self._rounds(start, keys, news, groups, self.rounds - 1, live=live)
        # The gradient of the start is that of the last round's input.
        return self._rounds(settled.detach() + (start - start.detach()), keys, news, groups, 1, live=live)

    def _rounds(self, slots: Tensor, keys: Tensor, news: Tensor, groups: Groups, number: int, *, live: bool) -> Tensor:
        """Slots after ``number`` rounds."""
        bias = own_weight(self.gru.bias_ih, live=live, like=slots)
        for _ in range(number):
            own = moments.rows_of_samples(normalise(slots), groups)
            logits = (own @ keys.unsqueeze(2)).squeeze(2)
            attention = spread_over_classes(logits.softmax(1) + EPSILON, groups.one_hot)
            if self.renormalise:
                attention = attention / attention.sum(0).clamp_min(EPSILON)
            new = torch.addmm(bias, attention.flatten(1).T, news).unflatten(0, slots.shape[:2])
            slots = self._recur(new, slots, live=live)
            slots = slots + self.mlp(normalise(slots), live=live)
        return slots

    def _keys_and_news(self, like: Tensor, *, live: bool) -> Tensor:
        """The map [d, 4d] from LN(x) to the inputs of the rounds: consecutive maps are multiplied into one.

        Keys include the queries' map and scale, k·W_q s = W_qᵀ k·s; values include the GRU's input map.
        """
        weights = (self.to_q.weight, self.to_k.weight, self.to_v.weight, self.gru.weight_ih)
        queries, keys, values, into = (own_weight(weight, live=live, like=like) for weight in weights)
        return torch.cat([keys.T @ queries / like.shape[1] ** 0.75, values.T @ into.T], 1)

    def _recur(self, new: Tensor, slots: Tensor, *, live: bool) -> Tensor:
        """The GRU cell's new state; its input ``new`` [G, S, 3d] has already passed its layer."""
        weight, bias = (own_weight(value, live=live, like=slots) for value in (self.gru.weight_hh, self.gru.bias_hh))
        size = slots.shape[-1]
        # The bias is added after the split, where it fuses with later operations: inside the product it takes longer.
        parts = [part.split([2 * size, size], -1) for part in (new, slots @ weight.T, bias)]
        (new_gates, new_state), (old_gates, old_state), (bias_gates, bias_state) = parts
        reset, update = (new_gates + old_gates + bias_gates).sigmoid().chunk(2, -1)
        candidate = (new_state + reset * (old_state + bias_state)).tanh()
        return torch.lerp(candidate, slots, update)


class GatedCrossAttention(nn.Module):
    """Samples read from the slots of their class (Flamingo's gated block; 001 §3.2, 003).

    y = x + tanh(α_xattn)·proj(Attn(LN(x), LN(s))); y = y + tanh(α_ffn)·FFN(LN(y)); multi-head, both α start at 0.1.
    """

    def __init__(self, options: SlotOptions) -> None:
        super().__init__()
        size = options.slot_dim
        self.num_heads, self.dropout = options.num_heads, options.dropout
        self.to_q = nn.Linear(size, size, bias=False)
        self.to_k = nn.Linear(size, size, bias=False)
        self.to_v = nn.Linear(size, size, bias=False)
        self.proj = nn.Linear(size, size)
        self.ffn = FeedForward(size)
        self.alpha_xattn = nn.Parameter(torch.tensor(START_ALPHA))
        self.alpha_ffn = nn.Parameter(torch.tensor(START_ALPHA))

    def forward(self, x: Tensor, slots: Tensor, groups: Groups, *, live: bool = True) -> Tensor:
        """Enhanced samples [B, d] of x [B, d] and slots [G, S, d]."""
        context = normalise(slots)
        heads = (self.num_heads, x.shape[1] // self.num_heads)
        queries = own_linear(self.to_q, normalise(x), live=live).unflatten(1, heads)
        maps = [own_weight(layer.weight, live=live, like=x) for layer in (self.to_k, self.to_v)]
        both = moments.rows_of_samples(context @ torch.cat(maps).T, groups)
        keys, values = (part.unflatten(2, heads) for part in both.chunk(2, 2))
        scores = torch.einsum("bhd,bshd->bhs", queries, keys) / math.sqrt(heads[1])
        read = torch.einsum("bhs,bshd->bhd", scores.softmax(2), values).flatten(1)
        gates = [own_weight(alpha, live=live, like=x).tanh() for alpha in (self.alpha_xattn, self.alpha_ffn)]
        y = x + dropout(own_linear(self.proj, read, live=live, scale=gates[0]), self.dropout, self.training)
        further: Tensor = self.ffn(normalise(y), live=live, scale=gates[1])
        return y + further


def spread_over_classes(values: Tensor, one_hot: Tensor) -> Tensor:
    """Values [B, S] at their sample's class in [B, G, S], zero elsewhere."""
    return one_hot.unsqueeze(2) * values.unsqueeze(1)
