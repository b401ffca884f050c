"""Inputs of certificates: the noise of a channel, and the features that enter it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from attncem.base.seeding import make_generator
from attncem.base.texts import written
from attncem.base.types import NotApplicable, RunError
from attncem.judging.certificates.making import Numbers
from attncem.models.channels import Channel, GaussianChannel, LaplaceChannel, LocalDPChannel, clip_norm

if TYPE_CHECKING:
    from attncem.data.batches import DeviceData
    from attncem.judging.case import Case

BATCH = 250
MOST_LEARNED = 4000
"""Largest number of training images that certificates other than the leakage bounds learn from."""
MOST_NUMBERS = 2**26
"""With more features than this in all training images, the leakage bounds learn from evenly spaced ones."""


@dataclass(frozen=True)
class Noise:
    """Independent noise on each feature, the stages ``before`` it, and whether it repeats for an input.

    `shaped` noise is independent in its `whitened` coordinates, in which no information is lost. The stages after the
    noise only lose information. If several stages add noise, the strongest counts. ``keyed``: a stage of the channel
    uses a key.
    """

    law: Literal["gaussian", "laplace"]
    std: float
    before: tuple[Channel, ...]
    stage: Channel
    repeats: bool
    keyed: bool = False

    @property
    def fisher(self) -> float:
        """Fisher information of one release about the noise's input: 1/σ² for normal, 1/b² = 2/σ² for Laplace noise."""
        return (1.0 if self.law == "gaussian" else 2.0) / self.std**2

    @property
    def is_smooth(self) -> bool:
        """Whether no stage before the noise cuts, sorts or rounds."""
        return not self.before and not isinstance(self.stage, LocalDPChannel)

    @property
    def fresh_before(self) -> bool:
        """Whether a stage before it draws anew for every release: each release then has another input of the noise."""
        return not all(stage.repeats for stage in self.before)

    def together(self, releases: int, nats: Callable[[int], Numbers]) -> Numbers:
        """The nats of all releases, from `nats` of so many draws on one input of the noise.

        If their inputs differ, releases are only independent given x, and h(z_1 … z_k) ≤ Σ h(z_i): one counts k times.
        """
        return releases * nats(1) if self.fresh_before else nats(releases)


def unknown_stage(channel: nn.Module) -> str | None:
    """The class of a stage that is not the package's own; None if there is none.

    A module of a user or of a plugin may have any law and may read the image, so nothing can be proven about it.
    """
    stages = channel.single_stages() if isinstance(channel, Channel) else [channel]
    return next((type(one).__name__ for one in stages if type(one).__module__ != Channel.__module__), None)


def noise_of(channel: nn.Module) -> Noise:
    """The strongest noise of a channel; NotApplicable if no noise gives a bound."""
    if (name := unknown_stage(channel)) is not None:
        raise NotApplicable(written("reason.law_unknown", name=name))
    assert isinstance(channel, Channel)
    stages = list(channel.single_stages())
    loud = [place for place, stage in enumerate(stages) if stage.noise_std > 0]
    if not loud:
        if channel.bits_per_feature is not None:
            raise NotApplicable(written("reason.only_bits"))
        raise NotApplicable(written("reason.no_noise"))
    place = max(loud, key=lambda place: stages[place].noise_std)
    stage = stages[place]
    if any(one.draws_weakly for one in stages):
        raise NotApplicable(written("reason.scheme_0"))
    law: Literal["gaussian", "laplace"] = "laplace" if isinstance(stage, LaplaceChannel) else "gaussian"
    assert isinstance(stage, LaplaceChannel | GaussianChannel)
    keyed = any(one.reads_input and one.repeats for one in stages)
    return Noise(law, stage.noise_std, tuple(stages[:place]), stage, stage.repeats, keyed)


def releases_of(case: Case, noise: Noise) -> int:
    """Number of draws of the noise that the adversary sees: one if the same pixels get the same noise."""
    many = case.threat.releases_per_input
    if case.threat.jitter:
        raise NotApplicable(written("reason.pixels_move"))
    if not noise.repeats:
        return many
    if many > 1 and noise.fresh_before:
        raise NotApplicable(written("reason.fresh_before_keyed"))
    return 1


def assumptions_of(noise: Noise) -> list[str]:
    """The assumptions of every bound by this noise."""
    return ["same_law", *(["key_secret"] if noise.keyed else [])]


@dataclass(frozen=True)
class Learned:
    """What the leakage bounds learn from: the noise's input for training images, their labels and their places."""

    features: Tensor
    labels: Tensor
    data: DeviceData
    places: Tensor

    def images(self, rows: slice | Tensor) -> Tensor:
        """Some of the images."""
        return self.data.in_parts[self.places[rows]]


def learned_from(case: Case, noise: Noise) -> Learned:
    """All training images, or evenly spaced ones if their features take too much memory; computed once."""
    if "learned" not in case.remembered:
        data, places = case.subject.data.train, learned_places(case)
        drawn = make_generator(case.x.device, case.seed, "before the noise")
        made = []
        for rows, z in zip(places.split(2 * BATCH), clean_parts(case, places), strict=True):
            made.append(enter(noise, z, data.in_parts[rows], drawn).flatten(1).float())
        case.remembered["learned"] = Learned(_finite(torch.cat(made)), data.labels[places], data, places)
    learned: Learned = case.remembered["learned"]
    return learned


@torch.no_grad()
def learned_places(case: Case) -> Tensor:
    """The places of all training images, or of evenly spaced ones if their features take too much memory."""
    data = case.subject.data.train
    size = case.model.encode(data.in_parts[:1]).numel()
    count = min(len(data), max(MOST_LEARNED, MOST_NUMBERS // max(1, size)))
    return torch.linspace(0, len(data) - 1, count, device=case.x.device).round().long()


@torch.no_grad()
def clean_parts(case: Case, places: Tensor) -> Iterator[Tensor]:
    """Clean features of training images in parts; those that an attack has already computed are not computed again."""
    data = case.subject.data.train
    computed = case.known_training if len(places) == len(data) else None
    if computed is not None:
        yield from computed.split(2 * BATCH)
        return
    yield from (case.model.encode(data.in_parts[rows]) for rows in places.split(2 * BATCH))


@torch.no_grad()
def answers_of(case: Case, x: Tensor) -> Tensor | None:
    """The server's answers to clean z; None: there is no server, or it does not answer with one of the classes."""
    if case.model.server is None:
        return None
    logits = torch.cat([case.model.predict(case.model.encode(part)) for part in x.split(BATCH)])
    return logits.argmax(1) if logits.shape[1:] == (case.subject.spec.num_classes,) else None


def evaluation_features(case: Case, noise: Noise) -> Tensor:
    """The noise's input for every evaluation image, [n, m]."""
    return _entering(case, noise, case.x, "evaluation")


def training_features(case: Case, noise: Noise) -> tuple[Tensor, Tensor]:
    """The noise's input for evenly spaced training images, and their labels."""
    x, y = training_images(case)
    return _entering(case, noise, x, "training"), y


def training_images(case: Case) -> tuple[Tensor, Tensor]:
    """Evenly spaced training images, and their labels."""
    train = case.subject.data.train
    count = min(len(train), MOST_LEARNED)
    return train.get(torch.linspace(0, len(train) - 1, count, device=case.x.device).round().long())


@torch.no_grad()
def clean_features(case: Case, x: Tensor, which: str) -> Tensor:
    """Clean features of the evaluation images or of the training images, computed once."""
    key = f"clean {which}"
    if key not in case.remembered:
        case.remembered[key] = torch.cat([case.model.encode(part) for part in x.split(BATCH)])
    features: Tensor = case.remembered[key]
    return features


@torch.no_grad()
def _entering(case: Case, noise: Noise, x: Tensor, which: str) -> Tensor:
    drawn = make_generator(case.x.device, case.seed, "before the noise")
    pairs = zip(clean_features(case, x, which).split(BATCH), x.split(BATCH), strict=True)
    return _finite(torch.cat([enter(noise, z, part, drawn).flatten(1).float() for z, part in pairs]))


def _finite(features: Tensor) -> Tensor:
    """The features; RunError if any is no number."""
    if broken := int((~features.isfinite()).any(1).sum()):
        raise RunError(f"the features of {broken} of {len(features)} images are not finite: nothing can be bounded")
    return features


def enter(noise: Noise, z: Tensor, x: Tensor, generator: torch.Generator | None) -> Tensor:
    """The noise's input for a clean feature."""
    for stage in noise.before:
        z = stage(z, x=x, generator=generator)
    if isinstance(noise.stage, LocalDPChannel):
        return clip_norm(z.to(torch.promote_types(z.dtype, torch.float32)), noise.stage.options.clip)
    return noise.stage.whitened(z)
