"""The sparse coding layer that the baseline puts at the end of the client (SCA)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attncem.base.types import ConfigError

LARGEST = 4096
"""Largest number of features of z: the dictionary has its square as entries, here 16.8 million."""


class SparseCoding(nn.Module):
    """Wᵀ soft(W z, threshold) on the whole of z, W square; soft(u, t) = sign(u) · max(|u| − t, 0).

    This equals the baseline's LCA layer with its one iteration from zero. Rows of W start with norm 1.
    """

    def __init__(self, feature_shape: tuple[int, ...], threshold: float) -> None:
        super().__init__()
        features = math.prod(feature_shape)
        if features > LARGEST:
            raise ConfigError(
                f"model.sparse_coding: z has {features} values here, and the layer would have {features}² weights; "
                f"at most {LARGEST} values: use a bottleneck with fewer channels or a later cut"
            )
        self.threshold = threshold
        self.dictionary = nn.Parameter(F.normalize(torch.randn(features, features), dim=1))

    def forward(self, x: Tensor) -> Tensor:
        """[B, …] to the same shape."""
        codes = F.softshrink(F.linear(x.flatten(1), self.dictionary), self.threshold)
        return F.linear(codes, self.dictionary.T).view(x.shape)
