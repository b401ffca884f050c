"""What certificates stand on: the noise of a channel, and the features that enter it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from attncem.base.seeding import make_generator
from attncem.base.texts import written
from attncem.base.types import NotApplicable, RunError
from attncem.models.channels import Channel, GaussianChannel, LaplaceChannel, LocalDPChannel, clip_norm

if TYPE_CHECKING:
    from attncem.judging.case import Case

BATCH = 250
MOST_LEARNED = 4000
"""Training images that anything is learned from at most."""


@dataclass(frozen=True)
class Noise:
    """Noise that is added to each feature on its own; what comes ``before`` it, and whether it repeats for an input.

    Of `shaped` noise that is so in its `whitened` coordinates, in which no information is lost. What comes after it
    only loses information. Of several stages that add noise the strongest counts.
    """

    law: Literal["gaussian", "laplace"]
    std: float
    before: tuple[Channel, ...]
    stage: Channel
    repeats: bool

    @property
    def fisher(self) -> float:
        """Fisher information of one release about what enters: 1/σ² of normal noise, 1/b² = 2/σ² of Laplace's."""
        return (1.0 if self.law == "gaussian" else 2.0) / self.std**2

    @property
    def is_smooth(self) -> bool:
        """Whether no stage before it cuts, sorts or rounds."""
        return not self.before and not isinstance(self.stage, LocalDPChannel)


def noise_of(channel: nn.Module) -> Noise:
    """The strongest noise of a channel; NotApplicable where there is none that bounds anything."""
    if not isinstance(channel, Channel):
        raise NotApplicable(written("reason.law_unknown", name=type(channel).__name__))
    stages = list(channel.single_stages())
    loud = [place for place, stage in enumerate(stages) if stage.noise_std > 0]
    if not loud:
        raise NotApplicable(written("reason.no_noise"))
    place = max(loud, key=lambda place: stages[place].noise_std)
    stage = stages[place]
    if any(one.draws_weakly for one in stages):
        raise NotApplicable(written("reason.scheme_0"))
    law: Literal["gaussian", "laplace"] = "laplace" if isinstance(stage, LaplaceChannel) else "gaussian"
    assert isinstance(stage, LaplaceChannel | GaussianChannel)
    return Noise(law, stage.noise_std, tuple(stages[:place]), stage, stage.repeats)


def releases_of(case: Case, noise: Noise) -> int:
    """How many independent draws of the noise the adversary sees: one where the same pixels get the same noise."""
    many = case.threat.releases_per_input
    if case.threat.jitter:
        raise NotApplicable(written("reason.pixels_move"))
    if not noise.repeats:
        return many
    if many > 1 and not all(stage.repeats for stage in noise.before):
        raise NotApplicable(written("reason.fresh_before_keyed"))
    return 1


def assumptions_of(noise: Noise) -> list[str]:
    """What every bound by this noise assumes."""
    return ["same_law", *(["key_secret"] if noise.repeats else [])]


def evaluation_features(case: Case, noise: Noise) -> Tensor:
    """What enters the noise of every evaluation image, [n, m]."""
    return _entering(case, noise, case.x, "evaluation")


def training_features(case: Case, noise: Noise) -> tuple[Tensor, Tensor]:
    """The same of training images, evenly spread, and their labels."""
    x, y = training_images(case)
    return _entering(case, noise, x, "training"), y


def training_images(case: Case) -> tuple[Tensor, Tensor]:
    """Training images, evenly spread, and their labels."""
    train = case.subject.data.train
    count = min(len(train), MOST_LEARNED)
    return train.get(torch.linspace(0, len(train) - 1, count, device=case.x.device).round().long())


@torch.no_grad()
def clean_features(case: Case, x: Tensor, which: str) -> Tensor:
    """The clean features of the evaluation or of the training images, computed once."""
    key = f"clean {which}"
    if key not in case.remembered:
        case.remembered[key] = torch.cat([case.model.encode(part) for part in x.split(BATCH)])
    found: Tensor = case.remembered[key]
    return found


@torch.no_grad()
def _entering(case: Case, noise: Noise, x: Tensor, which: str) -> Tensor:
    drawn = make_generator(case.x.device, case.seed, "before the noise")
    pairs = zip(clean_features(case, x, which).split(BATCH), x.split(BATCH), strict=True)
    features = torch.cat([enter(noise, z, part, drawn).flatten(1).float() for z, part in pairs])
    if broken := int((~features.isfinite()).any(1).sum()):
        raise RunError(f"the features of {broken} of {len(features)} images are not finite: nothing can be bounded")
    return features


def enter(noise: Noise, z: Tensor, x: Tensor, generator: torch.Generator | None) -> Tensor:
    """A clean feature as it enters the noise."""
    for stage in noise.before:
        z = stage(z, x=x, generator=generator)
    if isinstance(noise.stage, LocalDPChannel):
        return clip_norm(z.to(torch.promote_types(z.dtype, torch.float32)), noise.stage.options.clip)
    return noise.stage.whitened(z)
