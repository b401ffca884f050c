"""A memory of recent features per class, so a class with one sample in a batch still has a statistic."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attncem.config.options.surrogate_base import MemoryOptions
from attncem.training.surrogates import moments

EMPTY = -1
"""Step of a place that holds nothing yet."""
NO_CLASS = -1
"""Label of an empty recalled row: a member of no class."""


class ClassMemory(nn.Module):
    """The last ``per_class`` features of every class, detached, forgotten ``max_age`` steps after they were stored.

    ``recall`` returns the stored features of a batch's classes as further rows, ``store`` replaces the oldest by the
    batch. Buffers: ``features`` [C + 1, per_class, D], ``stored_at`` [C + 1, per_class] the step of each, ``position``
    [C + 1] the next place of the ring, ``step``. The last row takes features without a place, so that no shape depends
    on the data.
    """

    features: Tensor
    stored_at: Tensor
    position: Tensor
    step: Tensor

    def __init__(self, options: MemoryOptions, *, num_classes: int, num_features: int) -> None:
        super().__init__()
        self.per_class, self.max_age, self.num_classes = options.per_class, options.max_age, num_classes
        places = (num_classes + 1, options.per_class)
        self.register_buffer("features", torch.zeros(*places, num_features))
        self.register_buffer("stored_at", torch.full(places, EMPTY))
        self.register_buffer("position", torch.zeros(num_classes + 1, dtype=torch.int64))
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def recall(self, y: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """Rows [R, D] and labels [R] stored for the classes of y [B]; R = min(B, C) · per_class.

        The label of a row without a recent feature is NO_CLASS.
        """
        classes = moments.group_by_class(y, self.num_classes, like.dtype).class_of_group
        stored_at = self.stored_at[classes]
        valid = (stored_at != EMPTY) & (self.step - stored_at <= self.max_age)
        labels = torch.where(valid, classes.unsqueeze(1), NO_CLASS)
        return self.features[classes].flatten(0, 1).to(like.dtype), labels.flatten()

    def num_own(self, rows: int) -> int:
        """Number of rows of the batch itself, without the rows that ``recall`` added."""
        full = self.num_classes * (1 + self.per_class)
        return rows // (1 + self.per_class) if rows <= full else rows - self.num_classes * self.per_class

    @torch.no_grad()
    def store(self, x: Tensor, y: Tensor) -> None:
        """Replace the oldest features of each class with x [B, D]; at most the last ``per_class``. Ends a step."""
        label = torch.where((y >= 0) & (y < self.num_classes), y, self.num_classes)
        same = label.unsqueeze(1) == label.unsqueeze(0)
        count, rank = same.sum(1), same.tril(-1).sum(1)
        kept = (label < self.num_classes) & (count - rank <= self.per_class)
        place = label * self.per_class + (self.position[label] + rank) % self.per_class
        place = torch.where(kept, place, self.num_classes * self.per_class)
        # Every place except the spare one is written at most once.
        self.features.view(-1, x.shape[1])[place] = x.to(self.features.dtype)
        self.stored_at.view(-1)[place] = self.step
        self.position[label] = (self.position[label] + count) % self.per_class
        self._clear_spare()
        self.step.add_(1)

    def forget(self) -> None:
        """Forget everything."""
        self.stored_at.fill_(EMPTY)

    def _clear_spare(self) -> None:
        """Clear the spare row, which belongs to no class."""
        self.features[-1].zero_()
        self.stored_at[-1].fill_(EMPTY)
        self.position[-1].zero_()
