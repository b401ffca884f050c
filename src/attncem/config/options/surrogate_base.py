"""Shared options of surrogates: a memory, a variance floor, presets, defaults."""

from __future__ import annotations

from functools import cache, reduce
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from attncem.config.loading.flat import dotted, show
from attncem.config.loading.tree import merged
from attncem.config.loading.yaml_text import parse_yaml
from attncem.config.options.base import Options


class MemoryOptions(Options):
    """Recent features of each class that are added to the batch in its statistics, without a gradient (ours)."""

    per_class: int = Field(4, ge=1)
    """Number of features per class; the oldest is replaced."""
    max_age: int = Field(100, ge=1)
    """Steps after which a feature is dropped, because the client has changed."""


Memory = Annotated[
    MemoryOptions | None,
    Field(description="Recent features of each class in addition to the batch, for many classes; null: none."),
]


def refuse_memory(sample_weights: str, memory: MemoryOptions | None) -> None:
    """ValueError where samples of a memory would need weights, which are computed for the batch alone."""
    if sample_weights != "uniform" and memory is not None:
        raise ValueError(f"sample_weights={sample_weights} weighs the samples of a batch: it needs memory=null")


class SurrogateOptions(Options):
    """Options of every surrogate."""

    @property
    def loss_scale(self) -> float:
        """Factor on rob_loss outside the surrogate, so logs show the unscaled value."""
        return 1.0

    @property
    def default_warmup_epochs(self) -> int:
        """Epochs without penalty if training.warmup_epochs is not set."""
        return 0

    @property
    def in_main_optimizer(self) -> bool:
        """Whether the model's optimiser trains the surrogate's weights; otherwise a separate Adam."""
        return False

    @property
    def needs_pairs(self) -> bool:
        """Whether a class needs two samples in a batch; a memory provides the others."""
        return getattr(self, "memory", None) is None

    def relative_floor_key(self) -> str | None:
        """The key that measures a floor or capacity in units of the channel's noise, if any."""
        return None


OURS = "ours"
"""The variant of the defaults."""


@cache
def presets(surrogate: str) -> dict[str, dict[str, Any]]:
    """What each variant of a surrogate sets, by the packaged YAML."""
    file = files("attncem").joinpath("config", "packaged", "variants", f"{surrogate}.yaml")
    return dict(parse_yaml(file.read_text(encoding="utf-8"), surrogate))


class VariantOptions(SurrogateOptions):
    """Options with named presets: what ``variant`` names fills the options not given; one given with it wins.

    A name of which nothing is left is refused: where all values are written out, as in a run's config.yaml, another
    name alone would change nothing but the label.
    """

    if TYPE_CHECKING:
        variant: Any

    @classmethod
    def variants(cls) -> dict[str, dict[str, Any]]:
        """The presets by name."""
        return presets(cls.model_fields["name"].default)

    @model_validator(mode="before")
    @classmethod
    def _fill_from_variant(cls, data: Any) -> Any:
        variant = data.get("variant") if isinstance(data, dict) else None
        preset = cls.variants().get(variant) if isinstance(variant, str) else None
        return merged(preset, data) if preset else data

    @model_validator(mode="after")
    def _refuse_a_name_alone(self) -> Self:
        for other in self.variants():
            if apart := self._set_apart_only_by_name(other):
                values = ", ".join(f"{key}={show(_value(self, key))}, not {show(mine)}" for key, mine in apart.items())
                raise ValueError(
                    f"variant={self.variant} does not match its values, which are those of variant {other} ({values}): "
                    f"set variant={other}, or remove these values, or set them as in {self.variant}"
                )
        return self

    def _set_apart_only_by_name(self, other: str) -> dict[str, Any]:
        """What sets the named variant apart from another, where none of it is left; otherwise nothing.

        ``ours`` stands for anything not named, so it is refused only where all of it is the other's.
        """
        mine, theirs = self._documented(self.variant), self._documented(other)
        apart = {key: mine[key] for key in mine if mine[key] != theirs[key]}
        taken = [key for key in apart if _value(self, key) == theirs[key]]
        if not taken or any(_value(self, key) == named for key, named in apart.items()):
            return {}
        return apart if self.variant != OURS or len(taken) == len(apart) else {}

    @classmethod
    @cache
    def _documented(cls, variant: str) -> dict[str, Any]:
        """Every option that any variant sets, dotted, as this variant has it."""
        keys = [key for preset in cls.variants().values() for key, _ in dotted(preset)]
        defaults = cls.model_construct(variant=OURS)
        return {**{key: _value(defaults, key) for key in keys}, **dict(dotted(cls.variants()[variant]))}


def _value(options: Options, key: str) -> Any:
    """The value of a dotted option."""
    return reduce(getattr, key.split("."), options)


class ScheduledFloorOptions(Options):
    """A variance floor whose log moves linearly from start to end and then stays (003: accuracy first)."""

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
        """The floor in its unit, at a number of epochs after the warm-up."""
        progress = min(max(epoch / self.ramp_epochs, 0.0), 1.0)
        return float(self.start ** (1 - progress) * self.end**progress)


VarianceFloorOption = Annotated[float, Field(gt=0)] | ScheduledFloorOptions | None


def relative_floor(floor: VarianceFloorOption) -> str | None:
    """The key that measures a floor in units of the channel's noise, if any."""
    if isinstance(floor, ScheduledFloorOptions):
        return "surrogate.variance_floor.unit=noise" if floor.unit == "noise" else None
    return None if floor is not None else "surrogate.var_threshold"
