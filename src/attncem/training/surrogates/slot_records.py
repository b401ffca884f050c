"""What the slot surrogate knows of one batch: the noise of its slots, its view of the samples, moments of slots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


@dataclass(frozen=True)
class View:
    """How the module sees a batch: enhanced samples [B, d] (positions [B·N, d]) and responsibilities [B, S]."""

    enhanced: Tensor
    responsibilities: Tensor

    def detach(self) -> View:
        """A copy without gradients."""
        return View(self.enhanced.detach(), self.responsibilities.detach())


class Drawn(NamedTuple):
    """Noise of the slots of every group, [G, S, d]; after ``share`` also the shared views.

    ``whole`` is the view of the whole groups, ``half`` the responsibilities in their first halves, with gradients.
    """

    noise: Tensor
    whole: View | None = None
    half: Tensor | None = None


@dataclass(frozen=True)
class SlotMoments:
    """Moments of every slot, one row each: mean and variance [G·S, D], mass [G, S] in samples; ``centre`` [G, D].

    ``mean`` is relative to ``centre``, the mean of the class.
    """

    mean: Tensor
    variance: Tensor
    mass: Tensor
    centre: Tensor
