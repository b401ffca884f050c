"""Shared by all rooms: user errors, facts of a data set, outputs of a step. No torch at run time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attncem_edge.errors import AttncemError as AttncemError  # noqa: PLC0414 - defined there, imported from here
from attncem_edge.errors import ConfigError as ConfigError  # noqa: PLC0414 - defined there, imported from here
from attncem_edge.errors import DataError as DataError  # noqa: PLC0414 - defined there, imported from here

if TYPE_CHECKING:
    from torch import Tensor

SCHEMA_VERSION = 2
"""Version of every JSON file this package writes."""


class RunError(AttncemError):
    """A run folder that cannot be created, read or resumed: names the file."""


class TrainingError(AttncemError):
    """Training that had to stop (NaN or infinity); the diagnostics are saved in the run folder."""


class NotApplicable(AttncemError):
    """What judges a model needs something that the threat model or the model does not grant."""


@dataclass(frozen=True)
class DatasetSpec:
    """Facts of one data set; the only place for its normalisation constants.

    ``shape`` is (channels, height, width); ``mean`` and ``std`` are per channel on [0, 1] pixels. ``num_classes`` is 0
    if the images have no labels; label values are then meaningless.
    """

    name: str
    shape: tuple[int, int, int]
    num_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    class_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class SurrogateOutput:
    """Output of a surrogate for one batch.

    ``loss`` is the scalar ``rob_loss``; its gradient reaches only z, never the surrogate's weights. ``fit_loss`` is a
    scalar on detached z that trains these weights; None: nothing to fit. ``per_class`` is [num_classes], detached, nan
    for a skipped class. ``diagnostics`` are detached scalars (intra_mse, effective_samples, gate means, shut_off,
    skipped ...).
    """

    loss: Tensor
    fit_loss: Tensor | None
    per_class: Tensor
    diagnostics: Mapping[str, Tensor]


@dataclass(frozen=True)
class StepView:
    """One training batch in the model: the inputs of a penalty."""

    x: Tensor
    y: Tensor
    z: Tensor
    released: Tensor
    logits: Tensor
