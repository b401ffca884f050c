"""Options of the attention surrogates: gated, slot and hybrid."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from attncem.config.options.surrogate_base import (
    Memory,
    VarianceFloorOption,
    VariantOptions,
    refuse_memory,
    relative_floor,
)


class AttentionOptions(VariantOptions):
    """Effect on training of the fields that gated and slot share; each class documents them."""

    if TYPE_CHECKING:
        statistic: str
        variance_space: str
        softness: float | None
        own_optimizer: Literal["adam", "main"]
        variance_floor: VarianceFloorOption
        attention_loss_scale: float
        attention_warmup_epochs: int

    @property
    def loss_scale(self) -> float:
        """The documents' attention_loss_scale."""
        return self.attention_loss_scale

    @property
    def default_warmup_epochs(self) -> int:
        """The documents' attention_warmup_epochs."""
        return self.attention_warmup_epochs

    @property
    def in_main_optimizer(self) -> bool:
        """By own_optimizer."""
        return self.own_optimizer == "main"

    @model_validator(mode="after")
    def _refuse_invalid_statistic(self) -> Self:
        if self.softness is not None and self.statistic != "difference":
            raise ValueError(f"softness={self.softness:g} needs statistic=difference: the others do not use it")
        if self.statistic == "capacity" and self.variance_space != "raw":
            raise ValueError(
                "statistic=capacity needs variance_space=raw: noise_std is in the units of z, LayerNorm removes them"
            )
        return self

    def relative_floor_key(self) -> str | None:
        """The statistic capacity, or a floor that is not absolute."""
        if self.statistic == "capacity":
            return "surrogate.statistic=capacity"
        return relative_floor(self.variance_floor)


class GatedOptions(AttentionOptions):
    """Gated attention pooling over the samples of a class (Ilse et al. 2018)."""

    name: Literal["gated"] = "gated"
    variant: Literal["ours", "000", "002", "004"] = "ours"
    """Preset for the options that are not set: that of a document (docs/surrogates.md), or ours."""
    hidden_dim: int = Field(64, ge=1)
    """Hidden size of the attention (ours; the documents have none)."""
    layer_norm: bool = True
    """LayerNorm of x inside the attention (000, 002, 004)."""
    projection: Literal["auto", "none", "conv1x1", "linear", "random"] = "auto"
    """Map of z before the attention; auto: none up to 2048 dimensions, else conv1x1 or random; linear is factored above
    150,000 weights; random is never trained (requested by 003)."""
    projection_dim: int = Field(128, ge=1)
    """Dimensions after the projection (003: 128)."""
    projection_channels: int = Field(16, ge=1)
    """Channels after the 1x1 convolution of projection conv1x1 (ours)."""
    statistic: Literal["hinge", "softplus", "difference", "capacity"] = "capacity"
    """Penalty from the variance: relu (000, 004), softplus (002) or plain difference (003) of log variance and log
    floor; or the channel's capacity (ours)."""
    variance_space: Literal["raw", "layernorm"] = "raw"
    """Variance of z (000, 004) or of LayerNormed z (002)."""
    scalar_variance: bool = False
    """One variance summed over all dimensions (004) instead of one per dimension."""
    small_sample_correction: bool = True
    """Multiply the variance of the m samples of a class by m / (m - 1); otherwise few samples report too little
    (ours)."""
    learn: Literal["penalty", "fit", "worst_case", "frozen"] = "worst_case"
    """Training of the attention's weights: on the penalty itself (the documents; collapses), by likelihood of the
    released samples, by maximising the penalty (both ours), or not at all."""
    uniform_mix: float = Field(0.5, ge=0, le=1)
    """Share of uniform weights under worst_case and sample_weights=doubt: the variance is at least this part of the
    plain one (ours)."""
    sample_weights: Literal["uniform", "doubt"] = "uniform"
    """What the attention's weights are multiplied with: nothing, or the doubt of the client's head about each sample,
    for release.when=unsure (ours)."""
    weights_gradient: Literal["detached", "through"] = "detached"
    """Whether the encoder's gradient flows through the attention weights (the documents: through)."""
    own_optimizer: Literal["adam", "main"] = "adam"
    """Optimiser of the surrogate's weights: Adam at training.surrogate_lr (003), or the model's optimiser and schedule
    (000, 002)."""
    var_threshold: float = Field(0.1, ge=0)
    """Floor of the variance in units of noise_std², if variance_floor is not set (000; 0.1: 003)."""
    variance_floor: VarianceFloorOption = None
    """Absolute floor of the variance (004: 0.02), or one scheduled over epochs; replaces var_threshold."""
    gamma: float = Field(1e-6, gt=0)
    """Added to variance and floor inside the logs (000, 003; 004 calls it ε: 1e-6)."""
    difference_bound: float = Field(-2.0, le=0)
    """Lower bound of the statistic difference (ours)."""
    softness: float | None = Field(None, gt=0)
    """Softness T of the statistic difference: e·sigmoid(e/T) of the log ratio e, the relu as T goes to 0 (our reading
    of 003's soft coefficient); null: e itself."""
    dimension_gate: bool = False
    """Learned gate per dimension, sigmoid(MLP(LN(log variance))) (002)."""
    gate_hidden: int = Field(16, ge=1)
    """Hidden size of the dimension gate (ours)."""
    snr_gate: bool = False
    """sigmoid(snr_sharp (variance/mean² - snr_thresh)) (002)."""
    snr_thresh: float = 0.3
    """Threshold of the SNR gate (002)."""
    snr_sharp: float = 10.0
    """Sharpness of the SNR gate (002)."""
    softplus_beta: float = Field(1.0, gt=0)
    """Sharpness of the softplus (002)."""
    margin_m: float = 0.1
    """Margin of the softplus (002)."""
    class_gate: bool = False
    """sigmoid(class_gate_a (share of the class - class_gate_b)) (002)."""
    class_gate_a: float = 10.0
    """Slope of the class gate (002)."""
    class_gate_b: float = 0.05
    """Offset of the class gate (002)."""
    slot_power: float | None = None
    """Additional class weight (share of the class)^slot_power; 002 mentions 2.0 but has no formula for it."""
    attention_loss_scale: float = Field(1.0, ge=0)
    """Factor on rob_loss (000: 0.25, 002: 0.1)."""
    attention_warmup_epochs: int = Field(0, ge=0)
    """Epochs without penalty (000, 002: 5)."""
    memory: Memory = None

    @model_validator(mode="after")
    def _refuse_invalid_combinations(self) -> GatedOptions:
        if self.statistic == "capacity" and self.scalar_variance:
            raise ValueError("statistic=capacity needs one variance per dimension: scalar_variance=false")
        if self.scalar_variance and (self.dimension_gate or self.snr_gate):
            raise ValueError("dimension_gate and snr_gate need one variance per dimension: scalar_variance=false")
        if self.learn == "worst_case" and self.uniform_mix == 0:
            raise ValueError("learn=worst_case needs uniform_mix above 0: without it nothing bounds the weights")
        if self.sample_weights == "doubt" and self.uniform_mix == 0:
            raise ValueError("sample_weights=doubt needs uniform_mix above 0: a sure sample would not count at all")
        refuse_memory(self.sample_weights, self.memory)
        return self


SLOT_POWER = {
    "fit": "otherwise slots are not weighted by their samples, and the spread in a small wide slot is not reported",
    "worst_case": "otherwise its ascent empties slots",
}
"""Why a way to learn wants slots weighted by their samples."""


class SlotOptions(AttentionOptions):
    """Slot attention over the samples of a class, then gated cross attention (Locatello 2020, Flamingo 2022)."""

    name: Literal["slot"] = "slot"
    variant: Literal["ours", "001", "003"] = "ours"
    """Preset for the options that are not set: that of a document (docs/surrogates.md), or ours."""
    tokens: Literal["sample", "spatial"] = "sample"
    """Slots over whole samples, or over the positions of z, where the responsibility of a sample is the mean over its
    positions (003's fourth problem); the moments use z."""
    num_slots: int = Field(8, ge=1)
    """Slots per class (001, 003)."""
    slot_dim: int = Field(64, ge=1)
    """Size of slots and of projected samples (ours; the documents: the size of the flat z, which needs
    projection none and slot_dim equal to it)."""
    num_heads: int = Field(4, ge=1)
    """Heads of the cross attention; divides slot_dim (ours)."""
    slot_iterations: int = Field(3, ge=1)
    """Rounds of the slot attention (001)."""
    rounds_gradient: Literal["all", "last"] = "last"
    """Rounds that the gradient of the surrogate's weights passes: all (001, 003), or only the last, with its input as a
    constant (ours, after Chang 2022), which needs one of three backward passes."""
    renormalise: bool = True
    """Renormalise the attention over the samples (003; 001's equation 6 does not)."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout after the cross attention's projection (003, without a value)."""
    projection: Literal["auto", "none", "conv1x1", "linear", "random"] = "auto"
    """Map of z to slot_dim; auto: none if z has that size, linear up to 150,000 weights, else conv1x1 or random; linear
    is factored above that; random is never trained (requested by 003)."""
    projection_channels: int = Field(16, ge=1)
    """Channels after the 1x1 convolution of projection conv1x1 (ours)."""
    moments: Literal["slots", "class"] = "slots"
    """Variance around each slot's mean (001), or one unbiased variance over the class (003)."""
    statistic: Literal["hinge", "softplus", "difference", "capacity"] = "capacity"
    """Penalty from the variance, as in gated: hinge (003), softplus (001), difference (003), capacity (ours)."""
    variance_space: Literal["raw", "enhanced"] = "raw"
    """Variance of z with responsibilities of the enhanced features (ours), or of the enhanced features with
    responsibilities of the LayerNormed ones (001, 003)."""
    small_slot_correction: bool = True
    """Add the class variance divided by the slot's effective samples; otherwise small slots report too little
    (ours)."""
    learn: Literal["penalty", "fit", "worst_case", "frozen"] = "fit"
    """Training of the surrogate's weights: on the penalty itself (001; collapses), by held-out likelihood under the
    slots' mixture, by maximising the penalty (both ours), or not at all (003 as run)."""
    weights_gradient: Literal["detached", "through"] = "detached"
    """Whether the encoder's gradient flows through slots and responsibilities (the documents: through)."""
    own_optimizer: Literal["adam", "main"] = "adam"
    """Optimiser of the surrogate's weights: Adam at training.surrogate_lr (003), or the model's optimiser and schedule
    (000)."""
    var_threshold: float = Field(0.1, ge=0)
    """Floor of the variance in units of noise_std², if variance_floor is not set (003)."""
    variance_floor: VarianceFloorOption = None
    """Absolute floor of the variance (003 proposes 0.05), or one scheduled over epochs; replaces var_threshold."""
    gamma: float = Field(1e-6, gt=0)
    """Added to variance and floor inside the logs (003)."""
    eps_var: float = Field(1e-6, ge=0)
    """Lower clamp of the variance (003 has no value)."""
    difference_bound: float = Field(-2.0, le=0)
    """Lower bound of the statistic difference (ours)."""
    softness: float | None = Field(None, gt=0)
    """Softness T of the statistic difference: e·sigmoid(e/T) of the log ratio e, the relu as T goes to 0 (our reading
    of 003's soft coefficient); null: e itself."""
    assign_temp: float = Field(10.0, gt=0)
    """Initial inverse temperature of the responsibilities, learnable (ours; 001 has no value)."""
    slot_power: float = Field(1.0, gt=0)
    """Slot weights (mass / samples)^slot_power, normalised (002: 2.0); fit and worst_case need 1."""
    dimension_gate: bool = False
    """Learned soft gate per dimension, sigmoid(MLP(LN(log variance))) (001)."""
    gate_hidden: int = Field(16, ge=1)
    """Hidden size of the dimension gate (ours)."""
    snr_gate: bool = False
    """sigmoid(snr_sharp (variance/mean² - snr_thresh)) (001)."""
    snr_thresh: float = 0.3
    """Threshold of the SNR gate (002)."""
    snr_sharp: float = Field(10.0, gt=0)
    """Sharpness of the SNR gate (002)."""
    softplus_beta: float = Field(1.0, gt=0)
    """Sharpness of the softplus (002)."""
    margin_m: float = 0.1
    """Margin of the softplus (002)."""
    class_gate: bool = False
    """sigmoid(class_gate_a (share of the class - class_gate_b)) (001)."""
    class_gate_a: float = Field(10.0, gt=0)
    """Slope of the class gate (002)."""
    class_gate_b: float = 0.05
    """Offset of the class gate (002)."""
    learnable_scalars: bool = False
    """With learn penalty, train the scalars of gates, softplus, margin and slot power (001)."""
    early_shut_off: bool = False
    """Replace the loss by 0 at the start and while the gates are high on average (000, 001); can latch."""
    early_shut_steps: int = Field(100, ge=0)
    """Calls without penalty at the start, counted from the end of the warm-up (000, 001)."""
    early_hard_thresh: float = Field(0.95, ge=0, le=1)
    """Shut off while the SNR gate's running mean is above this (ours)."""
    early_gate_thresh: float = Field(0.95, ge=0, le=1)
    """Shut off while the soft gate's running mean is above this (ours)."""
    early_momentum: float = Field(0.9, ge=0, lt=1)
    """Share of the old value in the running means (ours)."""
    divide_by_processed: bool = False
    """Divide by the share of samples in the classes processed (003) instead of by the whole batch."""
    attention_loss_scale: float = Field(1.0, ge=0)
    """Factor on rob_loss (001: 0.25)."""
    attention_warmup_epochs: int = Field(0, ge=0)
    """Epochs without penalty (001: 3)."""
    memory: Memory = None

    @model_validator(mode="after")
    def _refuse_invalid_combinations(self) -> SlotOptions:
        if self.slot_dim % self.num_heads:
            raise ValueError(f"slot_dim={self.slot_dim} must be a multiple of num_heads={self.num_heads}")
        if self.variance_space == "enhanced" and self.learn in ("fit", "worst_case"):
            raise ValueError(
                f"learn={self.learn} needs variance_space=raw: a learned map could inflate or cancel the enhanced "
                "features; with enhanced use learn=penalty or frozen"
            )
        if self.tokens == "spatial" and self.variance_space != "raw":
            raise ValueError("tokens=spatial needs variance_space=raw: the moments stay on z")
        if self.tokens == "spatial" and self.projection not in ("auto", "conv1x1"):
            raise ValueError("tokens=spatial needs projection=auto or conv1x1: positions are projected one by one")
        if self.moments == "class" and self.variance_space == "raw":
            raise ValueError(
                "moments=class needs variance_space=enhanced: the raw variance of a class uses no attention "
                "(surrogate.name=capacity)"
            )
        if self.learn in ("fit", "worst_case") and self.slot_power != 1:
            raise ValueError(f"learn={self.learn} needs slot_power=1: {SLOT_POWER[self.learn]}")
        return self

    @property
    def projection_dim(self) -> int:
        """Dimensions after the projection: those of the slots."""
        return self.slot_dim


class HybridOptions(VariantOptions):
    """Gated pooling on every class, slots on the classes at high risk (planned in 000)."""

    name: Literal["hybrid"] = "hybrid"
    variant: Literal["ours", "000"] = "ours"
    """Preset for the options that are not set: 000's plan with the two parts of the documents, or ours."""
    gated: GatedOptions = GatedOptions()
    """The gated part, on every class."""
    slot: SlotOptions = SlotOptions()
    """The slot part, on the marked classes."""
    slot_weight: float = Field(1.0, gt=0)
    """Weight of the slot penalty of a marked class, in addition to the gated one (ours)."""
    max_risk_classes: int | None = Field(None, ge=1)
    """Number of marked classes; null: by risk_quantile."""
    risk_quantile: float = Field(0.75, ge=0, lt=1)
    """Mark classes above this quantile of the risk, if max_risk_classes is not set (ours)."""
    risk_momentum: float = Field(0.99, ge=0, lt=1)
    """Share of the old value in the running mean of a class's penalty, per step (ours)."""
    risk_audit: str | None = None
    """Run folder or audit folder whose error per class marks the classes for the whole training, instead of the running
    mean of their penalty: the lowest MSE of its strongest attack is the highest risk."""
    risk_by: Literal["mean", "exposed"] = "mean"
    """MSE of a class in the audit: the mean, or the 5th percentile, that of its most exposed images (ours)."""

    @model_validator(mode="after")
    def _refuse_two_scales(self) -> HybridOptions:
        own, other = self.gated.attention_loss_scale, self.slot.attention_loss_scale
        if own != other:
            raise ValueError(
                f"gated.attention_loss_scale={own:g} and slot.attention_loss_scale={other:g} must be equal: one factor "
                "scales both outside rob_loss; weight the parts with slot_weight"
            )
        return self

    @model_validator(mode="after")
    def _refuse_weights_of_samples(self) -> HybridOptions:
        if self.gated.sample_weights != "uniform":
            raise ValueError(
                f"gated.sample_weights={self.gated.sample_weights}: hybrid weighs classes by their risk; use "
                "surrogate.name=gated for weights of samples"
            )
        return self

    @model_validator(mode="after")
    def _refuse_two_optimisers(self) -> HybridOptions:
        own, other = self.gated.own_optimizer, self.slot.own_optimizer
        if own != other:
            raise ValueError(
                f"gated.own_optimizer={own} and slot.own_optimizer={other} must be equal: one optimiser trains both"
            )
        return self

    @property
    def in_main_optimizer(self) -> bool:
        """As both parts."""
        return self.gated.in_main_optimizer

    def num_risk_classes(self, num_classes: int) -> int:
        """Size of the marked set for a number of classes."""
        if self.max_risk_classes is not None:
            return self.max_risk_classes
        # 0.3 · 10 is a little more than 3 in binary.
        return max(1, math.ceil(round((1 - self.risk_quantile) * num_classes, 9)))

    @property
    def needs_pairs(self) -> bool:
        """As the part that sees every class."""
        return self.gated.needs_pairs

    @property
    def loss_scale(self) -> float:
        """The attention_loss_scale of both parts."""
        return self.gated.attention_loss_scale

    @property
    def default_warmup_epochs(self) -> int:
        """The longer attention_warmup_epochs of the two parts."""
        return max(self.gated.attention_warmup_epochs, self.slot.attention_warmup_epochs)

    def relative_floor_key(self) -> str | None:
        """That of the gated or of the slot part."""
        for name, part in (("gated", self.gated), ("slot", self.slot)):
            if (key := part.relative_floor_key()) is not None:
                return key.replace("surrogate.", f"surrogate.{name}.", 1)
        return None
