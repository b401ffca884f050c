"""Gated pooling on every class, and slots on the classes at high risk (planned in 000, implemented here)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from attncem.base.types import ConfigError, SurrogateOutput
from attncem.config.options.attention import HybridOptions
from attncem.training.surrogates.base import Batch, Surrogate
from attncem.training.surrogates.gated import GatedAttentionCEM
from attncem.training.surrogates.slot import SlotCrossAttentionCEM

CAUTION_TEST_IMAGES = (
    "risk_audit was made on the test images: what they decided must not be judged on them; audit with on=validation."
)


class HybridCEM(Surrogate):
    """L_c = gated_c, and for the marked classes gated_c + slot_weight · slot_c; rob_loss = Σ p_c L_c.

    The number of marked classes is fixed. ``refresh`` marks the classes of highest risk, the running mean of their
    gated penalty during training; before the first ``refresh`` no class is marked. With ``risk_audit`` the marked
    classes are those that an earlier audit reconstructed best, for the whole training (``mark_for_good``). The slot
    part is built for the marked classes only and treats the samples of other classes as members of no class: its tables
    do not grow with the number of classes.

    Diagnostics are those of the gated part; the slot part's have the prefix ``slot_`` where both have one. ``noise`` is
    that of the slots, [num_classes, num_slots, slot_dim].
    """

    options_type = HybridOptions
    part = "slot"
    options: HybridOptions
    risk: Tensor
    risk_classes: Tensor
    places: Tensor

    def __init__(
        self, options: HybridOptions, *, feature_shape: Sequence[int], num_classes: int, noise_std: float
    ) -> None:
        super().__init__(options, feature_shape=feature_shape, num_classes=num_classes, noise_std=noise_std)
        size = self._checked_size()
        self.gated = GatedAttentionCEM(
            options.gated, feature_shape=feature_shape, num_classes=num_classes, noise_std=noise_std
        )
        self.slot = SlotCrossAttentionCEM(
            options.slot, feature_shape=feature_shape, num_classes=size, noise_std=noise_std
        )
        self.register_buffer("risk", torch.full((num_classes,), -torch.inf))
        self.register_buffer("risk_classes", torch.arange(size))
        self.register_buffer("places", torch.full((num_classes,), -1))
        self.caution = " ".join(filter(None, [self.gated.caution, self.slot.caution]))

    def _checked_size(self) -> int:
        size = self.options.num_risk_classes(self.num_classes)
        if size > self.num_classes:
            raise ConfigError(
                f"surrogate.max_risk_classes={size}: must be at most {self.num_classes}, the number of classes"
            )
        return size

    def _draw(self, noise: Tensor | None, z: Tensor, y: Tensor) -> tuple[Batch, Batch]:
        """The prepared batch of each part."""
        own = None if noise is None else self._noise_of_marked(noise)
        return self.gated.prepare(z, y), self.slot.prepare(z, self._place_of(y), noise=own)

    def share(self, batch: Batch) -> Batch:
        """Shared values of each part."""
        gated, slot = batch.noise
        return Batch(batch.z, batch.y, (self.gated.share(gated), self.slot.share(slot)))

    def _evaluate(self, z: Tensor, y: Tensor, noise: tuple[Batch, Batch]) -> SurrogateOutput:
        gated, slot = self.gated.penalise(noise[0]), self.slot.penalise(noise[1])
        if self.training and self.options.risk_audit is None:
            self._track(gated.per_class)
        weight = self.options.slot_weight
        added = torch.zeros_like(gated.per_class).scatter(0, self.risk_classes, slot.per_class.nan_to_num(0))
        loss = gated.loss + weight * slot.loss
        return SurrogateOutput(
            loss,
            None,
            gated.per_class + weight * added,
            {
                **_merged(gated.diagnostics, slot.diagnostics),
                "rob_loss": loss.detach(),
                "plain_loss": gated.diagnostics["plain_loss"] + weight * slot.diagnostics["plain_loss"],
                "risk_share": (noise[1].y[: len(y)] >= 0).to(loss.dtype).mean(),
            },
        )

    def set_penalised(self, on: bool) -> None:
        """Set it in both parts."""
        self.gated.set_penalised(on)
        self.slot.set_penalised(on)

    @property
    def num_variances(self) -> int:
        """That of the gated part, which sees every class."""
        return self.gated.num_variances

    @property
    def fit_reads_penalty(self) -> bool:
        """That of the slot part."""
        return self.slot.fit_reads_penalty

    def _fit(self, z: Tensor, y: Tensor, noise: tuple[Batch, Batch]) -> Tensor | None:
        losses = [loss for loss in (self.gated.fit(noise[0]), self.slot.fit(noise[1])) if loss is not None]
        return sum(losses[1:], losses[0]) if losses else None

    def _explain(self, z: Tensor, y: Tensor) -> dict[str, Tensor]:
        """Attention and gates of the gated part; of marked classes also the slots and, as ``slot_…``, their gates."""
        place = self._place_of(y)
        marked = (place >= 0).unsqueeze(1)
        slots = {name: torch.where(marked, values, 0) for name, values in self.slot._explain(z, place).items()}
        shares = slots.pop("shares")
        gates = {f"slot_{name}": values for name, values in slots.items()}
        return {**self.gated._explain(z, y), "shares": shares, **gates}

    def _place_of(self, y: Tensor) -> Tensor:
        """Index [B] of each sample's class among the marked ones; −1 for other classes."""
        in_range = (y >= 0) & (y < self.num_classes)
        return torch.where(in_range, self.places[y.clamp(0, self.num_classes - 1)], -1)

    def _noise_of_marked(self, noise: Tensor) -> Tensor:
        expected = [self.num_classes, self.options.slot.num_slots, self.options.slot.slot_dim]
        if list(noise.shape) != expected:
            raise ValueError(f"noise: expected shape {expected}, got {list(noise.shape)}")
        return noise[self.risk_classes]

    def _track(self, per_class: Tensor) -> None:
        """Running mean of every class's penalty, started at its first value; classes not in the batch do not change."""
        momentum = self.options.risk_momentum
        value = per_class.to(self.risk.dtype)
        moved = torch.where(self.risk.isfinite(), momentum * self.risk + (1 - momentum) * value, value)
        self.risk.copy_(torch.where(value.isfinite(), moved, self.risk))

    @torch.no_grad()
    def refresh(self, features: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Mark the classes of highest risk for the next epoch; the features are not used."""
        self._mark()

    def mark_for_good(self, risk: Sequence[float], *, on_test_images: bool) -> None:
        """Mark the classes of highest risk, given one number per class, for the whole training."""
        self.risk.copy_(torch.tensor(risk))
        self._mark()
        if on_test_images:
            self.caution = f"{self.caution} {CAUTION_TEST_IMAGES}".lstrip()

    def _mark(self) -> None:
        """The classes of highest risk, in order; a class of unknown risk is never marked."""
        chosen = self.risk.topk(len(self.risk_classes)).indices.sort().values
        order = torch.arange(len(chosen), device=chosen.device)
        self.risk_classes.copy_(chosen)
        self.places.fill_(-1)
        self.places[chosen] = torch.where(self.risk[chosen].isfinite(), order, -1)
        if self.slot.memory is not None:
            self.slot.memory.forget()  # a place may now belong to another class

    def epoch_record(self) -> dict[str, Any]:
        """The marked classes."""
        return {"risk_classes": [label for label in self.risk_classes.tolist() if self.places[label] >= 0]}


def _merged(gated: Mapping[str, Tensor], slot: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Diagnostics of both parts; a common name is the gated part's, except for the shut-off, which only slots have."""
    common = (gated.keys() & slot.keys()) - {"shut_off", "rob_loss", "intra_mse", "skipped"}
    own = {name: value for name, value in slot.items() if name not in gated or name == "shut_off"}
    return {**gated, **own, **{f"slot_{name}": slot[name] for name in sorted(common)}}
