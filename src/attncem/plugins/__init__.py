"""What a plugin file imports: `register`, and the base classes and helpers of every kind (docs/plugins.md)."""

from __future__ import annotations

from attncem.base.plugins import load_plugin
from attncem.base.seeding import derive_seed, make_generator
from attncem.base.types import DatasetSpec, StepView, SurrogateOutput
from attncem.config.options.attacks import BudgetOptions, SeeingOptions
from attncem.config.options.base import Options
from attncem.config.options.channels import ChannelOptions, RandomOptions
from attncem.config.options.model import ModelOptions
from attncem.config.options.penalties import PenaltyOptions
from attncem.config.options.surrogate_base import SurrogateOptions
from attncem.config.plugins import register
from attncem.judging.attacks.base import Attack, OwnImages, Standardiser, divide
from attncem.judging.oracle import Oracle
from attncem.models.architecture import Architecture
from attncem.models.channels import Channel, RandomChannel
from attncem.models.front_ends import FrontEnd
from attncem.training.penalties import Penalty
from attncem.training.surrogates import Surrogate, moments

__all__ = [
    "Architecture",
    "Attack",
    "BudgetOptions",
    "Channel",
    "ChannelOptions",
    "DatasetSpec",
    "FrontEnd",
    "ModelOptions",
    "Options",
    "Oracle",
    "OwnImages",
    "Penalty",
    "PenaltyOptions",
    "RandomChannel",
    "RandomOptions",
    "SeeingOptions",
    "Standardiser",
    "StepView",
    "Surrogate",
    "SurrogateOptions",
    "SurrogateOutput",
    "derive_seed",
    "divide",
    "load_plugin",
    "make_generator",
    "moments",
    "register",
]
