"""The base of every options class: strict, frozen, and documented field by field."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Options(BaseModel):
    """Options of one object. Unknown keys are errors; values cannot change after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)
    packaged: ClassVar[str] = ""
    """Folder of the packaged YAMLs of a root that has some."""
