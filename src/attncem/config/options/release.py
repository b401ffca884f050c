"""Options of the release: whether the client sends every image, or only those that it is unsure of."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from attncem.config.options.base import Options

SHARE = 0.2
"""Share of the images that is sent if the options name no goal."""
FEWEST = 200
"""Smallest number of validation images from which a threshold is chosen: its share is then within 7 points, at 95 %."""


class ReleaseOptions(Options):
    """Which images the client sends. With a head of its own it answers the others itself, and nothing leaves it."""

    when: Literal["always", "unsure"] = "always"
    """always: every image is sent; unsure: the client has a head, and sends an image only where the head is unsure."""
    share: float | None = Field(None, ge=0, le=1)
    """Share of the validation images to send, the least sure ones; 0.2 if no goal is set."""
    accuracy: float | None = Field(None, gt=0, le=1)
    """Another goal: send the fewest validation images with which client and server reach this accuracy together."""
    threshold: float | None = Field(None, ge=0, le=1)
    """No goal but the threshold: an image is sent if the head's largest probability is at most this; 0: none, 1: all.
    """
    head_weight: float = Field(1.0, gt=0)
    """Weight of the head's cross entropy in the loss."""
    learn: Literal["jointly", "head"] = "jointly"
    """jointly: head, client and server learn together; head: only the head learns, on the finished client and server of
    model.init_from, which do not change."""

    @model_validator(mode="after")
    def _check_goal(self) -> ReleaseOptions:
        goals = {key: value for key in ("share", "accuracy", "threshold") if (value := getattr(self, key)) is not None}
        if len(goals) > 1:
            listed = " and ".join(f"{key}={value:g}" for key, value in goals.items())
            raise ValueError(f"{listed}: each of them sets how much is sent; give one")
        if self.when == "always" and (goals or self.learn == "head"):
            key, value = next(iter(goals.items()), ("learn", self.learn))
            raise ValueError(
                f"{key}={value} needs a head that decides what is sent, and when=always has none: set when=unsure"
            )
        return self

    @property
    def selective(self) -> bool:
        """Whether the client decides, image by image, what is sent."""
        return self.when == "unsure"

    @property
    def wanted_share(self) -> float | None:
        """The share to send; None where an accuracy or a threshold is the goal."""
        if not self.selective or self.accuracy is not None or self.threshold is not None:
            return None
        return SHARE if self.share is None else self.share
