"""A small vision transformer for images of 28 to 64 px; its features are tokens [B, N, D]."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attncem.base.types import ConfigError, DatasetSpec
from attncem.config.options.model import ModelOptions
from attncem.models.architecture import Architecture, Stage

DEPTH, HEAD_WIDTH = 6, 64


class PatchEmbedding(nn.Module):
    """Patches as tokens, row by row, plus learned positions; no class token, so that tokens form a grid."""

    def __init__(self, inputs: int, width: int, *, patch: int, tokens: int) -> None:
        super().__init__()
        self.project = nn.Conv2d(inputs, width, patch, stride=patch)
        self.positions = nn.Parameter(0.02 * torch.randn(1, tokens, width))

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to [B, N, D]."""
        tokens: Tensor = self.project(x).flatten(2).transpose(1, 2)
        return tokens + self.positions


class SelfAttention(nn.Module):
    """Multi-head attention of tokens to one another: softmax(q kᵀ / √d) v per head."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[B, N, D] to [B, N, D]."""
        q, k, v = self.to_qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        out: Tensor = self.project(mixed)
        return out


class Block(nn.Module):
    """Pre-normalised transformer block: attention, then two linear layers four times as wide inside."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attend = nn.Sequential(nn.LayerNorm(width), SelfAttention(width, heads))
        self.transform = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """[B, N, D] to [B, N, D]."""
        x = x + self.attend(x)
        out: Tensor = x + self.transform(x)
        return out


class MeanToken(nn.Module):
    """The mean of an image's tokens."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, N, D] to [B, D]."""
        return x.mean(1)


def vit_tiny(spec: DatasetSpec, options: ModelOptions) -> Architecture:
    """Embedding and six blocks, each a stage; 192 dimensions, one head per 64 of them."""
    width = options.width or 192
    heads = max(1, width // HEAD_WIDTH)
    patch = _patch_size(spec)
    if width % heads:
        raise ConfigError(f"model.width={width}: vit_tiny has {heads} heads at this width, which must divide it")
    if options.bottleneck is not None and options.bottleneck.stride != 1:
        raise ConfigError(f"model.bottleneck.stride={options.bottleneck.stride}: vit_tiny gives tokens, use 1")
    tokens = (spec.shape[1] // patch) * (spec.shape[2] // patch)
    embed = PatchEmbedding(spec.shape[0], width, patch=patch, tokens=tokens)
    stages: list[Stage] = [("embed", embed, width)]
    stages += [(f"block{number}", Block(width, heads), width) for number in range(1, DEPTH + 1)]
    head = nn.Sequential(nn.LayerNorm(width), MeanToken(), nn.Linear(width, spec.num_classes))
    return Architecture(tuple(stages), head, features="tokens")


def _patch_size(spec: DatasetSpec) -> int:
    """4 px for images up to 32 px, above that an eighth of the side, so that there are never more than 64 tokens."""
    _, height, width = spec.shape
    patch = max(4, math.ceil(max(height, width) / 8))
    if height % patch or width % patch:
        raise ConfigError(f"model.name=vit_tiny: {height}x{width} images do not divide into patches of {patch} px")
    return patch
