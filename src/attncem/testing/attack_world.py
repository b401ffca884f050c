"""A small world for attacks under test: smooth pictures, encoders that tell all or nothing, and their oracles."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attncem.config.options.channels import GaussianOptions
from attncem.config.threats import THREATS, Need, ThreatModel
from attncem.judging.attacks.seeing import Combine, mean_of
from attncem.judging.oracle import Oracle
from attncem.models.channels import build_channel
from attncem.models.split import SplitModel

SIZE, NUM_CLASSES = 12, 4


class Constant(nn.Module):
    """Tells nothing about x."""

    def forward(self, x: Tensor) -> Tensor:
        """The same for every image."""
        return torch.full((len(x), 4, 3, 3), 0.3, device=x.device)


class Templates(nn.Module):
    """A server half for the leaky identity: the nearest class mean."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        super().__init__()
        z = F.pixel_unshuffle(x, 4)
        self.means = torch.stack([z[y == label].mean(0).flatten() for label in range(NUM_CLASSES)])

    def forward(self, z: Tensor) -> Tensor:
        """Minus the distance to each class mean."""
        return -torch.cdist(z.flatten(1), self.means)


def pictures(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Smooth pictures: one bright quarter that is the class, and 16 random grey levels."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % NUM_CLASSES
    field = torch.rand(count, 1, 4, 4, generator=generator)
    field[torch.arange(count), 0, 2 * (y // 2) + 1, 2 * (y % 2) + 1] += 1
    x = F.interpolate(field, size=(SIZE, SIZE), mode="bilinear", align_corners=True)
    return x / 2, y


AUXILIARY = pictures(320, seed=1)
"""The attacker's images and labels."""
EVALUATION = pictures(100, seed=2)
LEAKY = nn.PixelUnshuffle(4)
"""An encoder that keeps every pixel."""


def make_oracle(
    encoder: nn.Module,
    *,
    noise_std: float = 0.0,
    server: nn.Module | None = None,
    data: tuple[Tensor, Tensor] = AUXILIARY,
    threat: ThreatModel = THREATS["train"],
    lacks: str = "",
    combine: Combine = mean_of,
) -> Oracle:
    """An oracle of this encoder behind Gaussian noise.

    Noise counts as weak, so that who tries seeds may; it is drawn otherwise, so that none of them is right.
    """
    channel = build_channel([GaussianOptions(noise_std=noise_std)])
    model = SplitModel(encoder, channel, server)
    observed = None if lacks == "observed" else observed_of(model, threat.releases_per_input)
    num_classes = 0 if lacks == "labels" else NUM_CLASSES
    oracle = Oracle(model, threat, *data, num_classes=num_classes, observed=observed, combine=combine)
    oracle._weak_noise = lacks != "generator"
    return oracle


@torch.no_grad()
def observed_of(model: SplitModel, releases: int = 1) -> Tensor:
    """What is seen of each evaluation image: the mean of so many releases."""
    noise = torch.Generator().manual_seed(11)
    return torch.stack([model.release(EVALUATION[0], generator=noise) for _ in range(releases)]).mean(0)


def least(needs: frozenset[Need]) -> ThreatModel:
    """The adversary who has what is needed and nothing else."""
    encoder = bool(needs & {"encoder", "gradient"})
    return ThreatModel(
        "least",
        knows_encoder=encoder,
        knows_channel="channel" in needs,
        auxiliary="train" if "images" in needs else "none",
        may_query="queries" in needs and not encoder,
    )


WITHOUT: dict[Need, dict[str, Any]] = {
    "images": {"auxiliary": "none"},
    "queries": {"may_query": False, "knows_encoder": False},
    "encoder": {"knows_encoder": False},
    "gradient": {"knows_encoder": False},
    "channel": {"knows_channel": False},
    "server": {},  # no adversary lacks its answers; a model does
    "observed": {},
    "labels": {},  # as images without any
    "generator": {},  # as a model whose noise has 256 bits behind it
}
"""What an adversary is without who lacks what an attack may need."""
