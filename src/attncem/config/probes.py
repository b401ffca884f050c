"""Options of the probes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from attncem.config.base import Options


class ReidentificationOptions(Options):
    """Which of some candidate images was released: the adversary releases each of them itself, and compares."""

    name: Literal["reidentification"] = "reidentification"
    candidates: int = Field(1000, ge=2)
    """Images that the true one stands among; all evaluation images where there are fewer."""
    num_releases: int = Field(8, ge=1)
    """Own releases of each candidate averaged."""


class ByPictureOptions(Options):
    """Which of some candidate images a reconstruction shows: in pixels, and in features of a reference network."""

    name: Literal["reidentification_by_picture"] = "reidentification_by_picture"
    candidates: int = Field(1000, ge=2)
    """Images that the true one stands among; all evaluation images where there are fewer."""


class LabelLeakageOptions(Options):
    """What a linear head learns of the labels from few labelled releases (model completion)."""

    name: Literal["label_leakage"] = "label_leakage"
    labels: tuple[Annotated[int, Field(ge=1)], ...] = Field((1, 4, 16, 40), min_length=1)
    """Labelled releases of each class; every number gives an accuracy of its own."""
    draws: int = Field(5, ge=1)
    """Choices of the labelled images that the accuracy is the mean over."""


class MembershipOptions(Options):
    """Whether a release tells that its image was trained on."""

    name: Literal["membership"] = "membership"
    pairs: int = Field(4000, ge=20)
    """Most pairs of a training image and an evaluation image of the same class."""


ProbeOptions = ReidentificationOptions | ByPictureOptions | LabelLeakageOptions | MembershipOptions
"""Options of any probe, told apart by ``name``."""
