"""Chooses the threshold of a client with a head, on validation images."""

from __future__ import annotations

import torch
from torch import Tensor

from attncem.base.types import ConfigError
from attncem.config.options.release import FEWEST, ReleaseOptions
from attncem.models.client_head import threshold_of_accuracy, threshold_of_best, threshold_of_share
from attncem.records.selection import Selection


def require_validation(options: ReleaseOptions, count: int) -> None:
    """ConfigError where there are too few validation images to choose a threshold."""
    if options.selective and options.threshold is None and count < FEWEST:
        raise ConfigError(
            f"release.when=unsure chooses its threshold on validation images, and there are {count} of them: at least "
            f"{FEWEST} are needed; raise data.validation_fraction, add images, or set release.threshold"
        )


def select(options: ReleaseOptions, sure: Tensor, alone: Tensor, sent: Tensor) -> Selection:
    """The threshold for the options' goal, and what it gives on these images.

    ``sure`` are the head's confidences, ``alone`` and ``sent`` say whether the head and the server are right. Where no
    share reaches the accuracy, the smallest share with the highest accuracy is taken.
    """
    threshold = options.threshold if options.threshold is not None else _of_goal(options, sure, alone, sent)
    chosen = sure <= threshold
    accuracy = float(torch.where(chosen, sent, alone).double().mean())
    return Selection(
        threshold=threshold,
        share=float(chosen.double().mean()),
        accuracy=accuracy,
        alone=float(alone.double().mean()),
        all_sent=float(sent.double().mean()),
        images=len(sure),
        reached=options.accuracy is None or accuracy >= options.accuracy - 1e-9,
    )


def _of_goal(options: ReleaseOptions, sure: Tensor, alone: Tensor, sent: Tensor) -> float:
    if options.wanted_share is not None:
        return threshold_of_share(sure, options.wanted_share)
    assert options.accuracy is not None
    threshold = threshold_of_accuracy(sure, alone, sent, options.accuracy)
    return threshold_of_best(sure, alone, sent) if threshold is None else threshold


def merit(options: ReleaseOptions, selection: Selection) -> float:
    """What the best checkpoint has most of: accuracy, or, of those that reach a wanted accuracy, images not sent."""
    if options.accuracy is None or not selection.reached:
        return selection.accuracy
    return 2 - selection.share
