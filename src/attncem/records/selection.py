"""Selection: the threshold by which a client sends images, and its effect on the validation images."""

from __future__ import annotations

from attncem.base.record import Record


class Selection(Record):
    """The threshold of a checkpoint, chosen on validation images.

    An image is sent if the head's largest probability is at most ``threshold``. ``share`` of the ``images`` is sent;
    ``accuracy`` is that of client and server together, ``alone`` that of the head on all images, ``all_sent`` that of
    the server on all images. ``reached``: whether the configuration's goal was reached.
    """

    threshold: float
    share: float
    accuracy: float
    alone: float
    all_sent: float
    images: int
    reached: bool = True

    def __post_init__(self) -> None:
        """ValueError for what is no threshold."""
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"must have a threshold from 0 to 1, not {self.threshold}")
