"""What the options of all surrogates share: a memory, a variance floor, presets, defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from attncem.config.base import Options


class MemoryOptions(Options):
    """Recent features of each class that join the batch's in its statistics, without a gradient (ours)."""

    per_class: int = Field(4, ge=1)
    """Features kept of each class; the oldest makes way."""
    max_age: int = Field(100, ge=1)
    """Steps after which a feature is forgotten: the client has moved on."""


Memory = Annotated[
    MemoryOptions | None,
    Field(description="Recent features of each class beside those of the batch, for many classes; null: none."),
]


class SurrogateOptions(Options):
    """What every surrogate has."""

    @property
    def loss_scale(self) -> float:
        """Factor on rob_loss outside the surrogate, so that logs show the unscaled value."""
        return 1.0

    @property
    def default_warmup_epochs(self) -> int:
        """Epochs without penalty when training.warmup_epochs is not given."""
        return 0

    @property
    def needs_pairs(self) -> bool:
        """Whether a class needs two samples in a batch, or is skipped: a memory has the others."""
        return getattr(self, "memory", None) is None

    def relative_floor_key(self) -> str | None:
        """The key that measures a floor or capacity in units of the channel's noise, if any."""
        return None


class VariantOptions(SurrogateOptions):
    """Options with named presets: what ``variant`` names fills the options not given; one given beside it wins."""

    variants: ClassVar[Mapping[str, Mapping[str, Any]]]

    @model_validator(mode="before")
    @classmethod
    def _fill_from_variant(cls, data: Any) -> Any:
        preset = cls.variants.get(data.get("variant", "ours"), {}) if isinstance(data, dict) else {}
        return _laid_over(preset, data) if preset else data


def _laid_over(preset: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What is given over what the preset says, key by key in nested options too."""
    nested = {
        key: _laid_over(preset[key], value)
        for key, value in given.items()
        if isinstance(value, Mapping) and isinstance(preset.get(key), Mapping)
    }
    return {**preset, **given, **nested}


class ScheduledFloorOptions(Options):
    """A variance floor that moves from start to end, evenly in its log, and stays (003: accuracy first)."""

    name: Literal["scheduled"] = "scheduled"
    start: float = Field(10.0, gt=0)
    """Floor at the end of the warm-up."""
    end: float = Field(0.1, gt=0)
    """Floor at the end of the schedule."""
    ramp_epochs: float = Field(10.0, gt=0)
    """Epochs from start to end, after the warm-up."""
    unit: Literal["noise", "absolute"] = "noise"
    """Unit of start and end: noise_std², or 1."""

    def at(self, epoch: float) -> float:
        """The floor, in its unit, so many epochs after the warm-up."""
        progress = min(max(epoch / self.ramp_epochs, 0.0), 1.0)
        return float(self.start ** (1 - progress) * self.end**progress)


VarianceFloorOption = Annotated[float, Field(gt=0)] | ScheduledFloorOptions | None


def relative_floor(floor: VarianceFloorOption) -> str | None:
    """The key that measures a floor in units of the channel's noise, if any."""
    if isinstance(floor, ScheduledFloorOptions):
        return "surrogate.variance_floor.unit=noise" if floor.unit == "noise" else None
    return None if floor is not None else "surrogate.var_threshold"
