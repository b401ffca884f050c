"""Selecting: which images of a case a client with a head sends, and what that gives on all of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attncem.base.seeding import make_generator
from attncem.base.types import ConfigError
from attncem.data.batches import Images
from attncem.models.client_head import confidence, right_by_count
from attncem.models.split import SplitModel
from attncem.records.image_scores import summarise
from attncem.records.selective import CurvePoint, Selective

_BATCH = 250
_CURVE = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Shares of the images, the least sure ones first, at which the accuracy is recorded."""


@dataclass(frozen=True)
class Looked:
    """What a client with a head makes of images: confidence, whether each is sent, and its head's label."""

    sure: Tensor
    sent: Tensor
    labels: Tensor

    @property
    def places(self) -> NDArray[np.int64]:
        """Places of the images that are sent."""
        return np.flatnonzero(self.sent.cpu().numpy())


@torch.no_grad()
def look_at(model: SplitModel, x: Tensor | Images) -> Looked:
    """The decisions of a client about images, from their clean features."""
    sure, sent, labels = list[Tensor](), list[Tensor](), list[Tensor]()
    if not len(x):
        return Looked(torch.empty(0), torch.empty(0, dtype=torch.bool), torch.empty(0, dtype=torch.int64))
    for part in x.split(_BATCH):
        answers = model.look(part).answers
        sure.append(confidence(answers))
        sent.append(model.sends(answers))
        labels.append(answers.argmax(1))
    return Looked(torch.cat(sure), torch.cat(sent), torch.cat(labels))


def require_some_sent(sent: Tensor, threshold: float, least: int) -> None:
    """ConfigError where so few images are sent that nothing can be judged."""
    if (count := int(sent.sum())) < least:
        raise ConfigError(
            f"the client sends {count} of {len(sent)} images (threshold {threshold:.6g}), and {least} are needed to "
            "judge what they reveal: raise release.share, or take more images; what is not sent reveals nothing"
        )


@torch.no_grad()
def facts_of(model: SplitModel, x: Tensor, y: Tensor, looked: Looked, seed: int, num_classes: int) -> Selective:
    """Accuracy over the share that is sent, and the shares by class, on all images.

    The noise is that of the evaluation, so that a client that sends everything has the accuracy of its releases.
    """
    noise = make_generator(x.device, seed, "evaluation")
    parts = zip(x.split(_BATCH), y.split(_BATCH), strict=True)
    answers = [model.predict(model.release(part, generator=noise)).argmax(1) == true for part, true in parts]
    server = torch.cat(answers)
    alone = looked.labels == y
    labels = y.cpu().numpy()

    def score(right: Tensor) -> NDArray[np.float64]:
        return np.asarray(right.double().cpu().numpy())

    by_class = [looked.sent[y == label].double().mean() for label in range(num_classes)]
    order = looked.sure.argsort(stable=True)
    right = right_by_count(alone[order], server[order]).double() / len(x)
    return Selective(
        threshold=model.threshold,
        num_images=len(x),
        num_sent=int(looked.sent.sum()),
        together=summarise(score(torch.where(looked.sent, server, alone)), labels, num_classes),
        alone=summarise(score(alone), labels, num_classes),
        all_sent=summarise(score(server), labels, num_classes),
        alone_on_sent=float(alone[looked.sent].double().mean()) if looked.sent.any() else None,
        shares=[None if share.isnan() else float(share) for share in by_class],
        curve=[CurvePoint(share, float(right[round(share * len(x))])) for share in _CURVE],
    )
