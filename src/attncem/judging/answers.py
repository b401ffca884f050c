"""Answers: the releases that a client with a limited number of answered queries gave to an attacker's own images."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Answers:
    """Query number j was image j modulo ``owned``, and its answer is ``z[j]``; ``images`` are those in use, by number.

    An image that was sent several times has several answers.
    """

    z: Tensor
    owned: int
    images: Tensor

    @classmethod
    def of(cls, z: Tensor, owned: int) -> Answers:
        """Answers to queries with all of these images, in turn."""
        return cls(z, owned, torch.arange(min(owned, len(z)), device=z.device))

    def draw(self, index: Tensor, noise: torch.Generator) -> Tensor:
        """One of the answers to each of these images."""
        image = self.images[index]
        counts = (len(self.z) - 1 - image) // self.owned + 1
        if int(counts.max()) == 1:
            return self.z[image]
        turn = (torch.rand(len(image), generator=noise, device=image.device) * counts).long()
        return self.z[torch.minimum(turn, counts - 1) * self.owned + image]

    def only(self, index: Tensor) -> Answers:
        """The answers to some of the images, which are numbered anew."""
        return replace(self, images=self.images[index])
