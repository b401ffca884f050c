"""Measures of an attack that gives samples: their distance from each other, and the likeness of each to the image."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attncem.base.types import RunError
from attncem.judging.attacks.base import Attack
from attncem.judging.case import BATCH, Case
from attncem.records.metrics import METRICS

LIKENESS = ("mse", "ssim", "edges")
"""Measures of each sample, under `sample_NAME`; those that the image is too small for are left out."""


@torch.no_grad()
def sample_values(case: Case, attack: Attack, count: int) -> dict[str, NDArray[np.float64]]:
    """`spread` and `sample_…` of the first `count` evaluation images; empty if the attack gives no samples."""
    if type(attack).samples is Attack.samples:
        return {}
    parts = list(_measured(case, attack, count))
    return {name: np.asarray(torch.cat([part[name] for part in parts]).double().cpu().numpy()) for name in parts[0]}


def _measured(case: Case, attack: Attack, count: int) -> Iterator[dict[str, Tensor]]:
    """Every measure of each image, batch by batch: the mean over its samples."""
    names = [name for name in LIKENESS if min(case.x.shape[-2:]) >= METRICS[name].pixels]
    for seen, x in zip(case.seen_by(attack, count), case.x[:count].split(BATCH), strict=True):
        samples = _checked(attack.samples(seen), x)
        likeness = {
            f"sample_{name}": torch.stack([METRICS[name].function(each, x) for each in samples]).mean(0)
            for name in names
        }
        yield {"spread": samples.var(0).flatten(1).mean(1), **likeness}


def _checked(samples: Tensor | None, x: Tensor) -> Tensor:
    found = None if samples is None else tuple(samples.shape)
    if samples is None or len(samples) < 2 or tuple(samples.shape[1:]) != tuple(x.shape):
        raise RunError(f"the attack returned samples of shape {found}, expected two or more of {tuple(x.shape)}")
    if not bool(samples.isfinite().all()):
        raise RunError("the attack returned samples that are not finite")
    return samples.float()
