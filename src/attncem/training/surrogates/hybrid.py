"""Gated pooling on every class, slots on the classes at high risk (planned in 000, built here)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attncem.base.types import ConfigError, RunError, SurrogateOutput
from attncem.config.options.attention import HybridOptions
from attncem.records.audit import AuditResult
from attncem.records.ledger import ledgers, read_audit
from attncem.training.surrogates.base import Batch, Surrogate
from attncem.training.surrogates.gated import GatedAttentionCEM
from attncem.training.surrogates.slot import SlotCrossAttentionCEM

CAUTION_TEST_IMAGES = (
    "risk_audit was made on the test images: what they decided must not be judged on them; audit with on=validation."
)


class HybridCEM(Surrogate):
    """L_c = gated_c, and on the marked classes gated_c + slot_weight · slot_c; rob_loss = Σ p_c L_c.

    The marked set has a fixed size. Its classes are those of highest risk, the running mean of their gated penalty
    (while training), chosen anew by ``refresh``; before the first one none is marked. With ``risk_audit`` they are
    the classes that an earlier audit reconstructed best, for good. The slot part is built for as many classes as are
    marked and sees the samples of the others as members of no class: its tables do not grow with the classes.

    Diagnostics are those of the gated part; the slot part's carry ``slot_`` where both have one. ``noise`` is the
    slots', [num_classes, num_slots, slot_dim].
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
        cautions = [self.gated.caution, self.slot.caution]
        if options.risk_audit is not None:
            audit = read_risk_audit(options.risk_audit)
            self.risk.copy_(torch.tensor(_risk_of(audit, num_classes, options.risk_by)))
            self._mark()
            cautions.append(CAUTION_TEST_IMAGES if audit.plan.evaluation == "test" else "")
        self.caution = " ".join(filter(None, cautions))

    def _checked_size(self) -> int:
        size = self.options.num_risk_classes(self.num_classes)
        if size > self.num_classes:
            raise ConfigError(
                f"surrogate.max_risk_classes={size}: must be at most {self.num_classes}, the number of classes"
            )
        return size

    def _draw(self, noise: Tensor | None, z: Tensor, y: Tensor) -> tuple[Batch, Batch]:
        """What each part looks at."""
        own = None if noise is None else self._noise_of_marked(noise)
        return self.gated.prepare(z, y), self.slot.prepare(z, self._place_of(y), noise=own)

    def share(self, batch: Batch) -> Batch:
        """As each part does."""
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
        """Both parts are told."""
        self.gated.set_penalised(on)
        self.slot.set_penalised(on)

    @property
    def num_variances(self) -> int:
        """As the part that sees every class."""
        return self.gated.num_variances

    @property
    def fit_reads_penalty(self) -> bool:
        """As the slot part's."""
        return self.slot.fit_reads_penalty

    def _fit(self, z: Tensor, y: Tensor, noise: tuple[Batch, Batch]) -> Tensor | None:
        losses = [loss for loss in (self.gated.fit(noise[0]), self.slot.fit(noise[1])) if loss is not None]
        return sum(losses[1:], losses[0]) if losses else None

    def _explain(self, z: Tensor, y: Tensor) -> dict[str, Tensor]:
        """Attention and gates of the gated part; of the marked classes the slots and, under ``slot_``, their gates."""
        place = self._place_of(y)
        marked = (place >= 0).unsqueeze(1)
        slots = {name: torch.where(marked, values, 0) for name, values in self.slot._explain(z, place).items()}
        shares = slots.pop("shares")
        gates = {f"slot_{name}": values for name, values in slots.items()}
        return {**self.gated._explain(z, y), "shares": shares, **gates}

    def _place_of(self, y: Tensor) -> Tensor:
        """A sample's place in the marked set, [B]; −1 outside it."""
        in_range = (y >= 0) & (y < self.num_classes)
        return torch.where(in_range, self.places[y.clamp(0, self.num_classes - 1)], -1)

    def _noise_of_marked(self, noise: Tensor) -> Tensor:
        expected = [self.num_classes, self.options.slot.num_slots, self.options.slot.slot_dim]
        if list(noise.shape) != expected:
            raise ValueError(f"noise: expected shape {expected}, got {list(noise.shape)}")
        return noise[self.risk_classes]

    def _track(self, per_class: Tensor) -> None:
        """Running mean of every class's penalty, started at its first value; classes not in the batch keep theirs."""
        momentum = self.options.risk_momentum
        value = per_class.to(self.risk.dtype)
        moved = torch.where(self.risk.isfinite(), momentum * self.risk + (1 - momentum) * value, value)
        self.risk.copy_(torch.where(value.isfinite(), moved, self.risk))

    @torch.no_grad()
    def refresh(self, features: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Mark the classes of highest risk for the next epoch; the features themselves are not needed."""
        self._mark()

    def _mark(self) -> None:
        """The classes of highest risk, in order; one whose risk is not known is never marked."""
        chosen = self.risk.topk(len(self.risk_classes)).indices.sort().values
        order = torch.arange(len(chosen), device=chosen.device)
        self.risk_classes.copy_(chosen)
        self.places.fill_(-1)
        self.places[chosen] = torch.where(self.risk[chosen].isfinite(), order, -1)
        if self.slot.memory is not None:
            self.slot.memory.forget()  # a place may now be another class's

    def epoch_record(self) -> dict[str, Any]:
        """The marked classes."""
        return {"risk_classes": [label for label in self.risk_classes.tolist() if self.places[label] >= 0]}


def read_risk_audit(source: str | Path) -> AuditResult:
    """The audit in a folder, or the only one of a run folder; ConfigError says what is wrong with it."""
    path = Path(source)
    try:
        audit = read_audit(_only_audit(path) if (path / "config.yaml").is_file() else path)
    except RunError as error:
        raise ConfigError(f"surrogate.risk_audit={source}: {error}") from error
    if not audit.strongest:
        raise ConfigError(f"surrogate.risk_audit={source}: no attack of this audit has a result")
    return audit


def _only_audit(run: Path) -> Path:
    folders = [ledger.path for ledger in ledgers(run / "audits")]
    if len(folders) == 1:
        return folders[0]
    found = f"it has {len(folders)}, name one: {', '.join(map(str, folders))}" if folders else "it has none"
    raise RunError(f"expected a run folder with one audit, {found}")


def _risk_of(audit: AuditResult, num_classes: int, by: str) -> list[float]:
    """Minus the strongest attack's MSE of every class; −inf where no image of the class was attacked."""
    risk, subject = audit.risk, audit.subject
    assert risk is not None, "an audit without a result was refused"
    errors = risk.per_class if by == "mean" else risk.per_class_p05
    if by != "mean" and not any(error is not None for error in errors):
        raise ConfigError(
            f"surrogate.risk_by={by}: the audit of {subject.run} does not have this number: run attncem audit again"
        )
    if {subject.num_classes, len(errors)} != {num_classes}:
        raise ConfigError(
            f"surrogate.risk_audit: the audit of {subject.run} is about {subject.num_classes} classes of "
            f"{subject.dataset}, this model has {num_classes}"
        )
    return [-math.inf if error is None else -error for error in errors]


def _merged(gated: Mapping[str, Tensor], slot: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Both parts' diagnostics; a name of both means the gated part's, but for the shut-off, which only slots have."""
    common = (gated.keys() & slot.keys()) - {"shut_off", "rob_loss", "intra_mse", "skipped"}
    own = {name: value for name, value in slot.items() if name not in gated or name == "shut_off"}
    return {**gated, **own, **{f"slot_{name}": slot[name] for name in sorted(common)}}
