"""Case: one model under one threat model, on one set of images. Everything that judges the model goes through it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attncem.attacks.base import Attack
from attncem.attacks.oracle import Combine, Oracle, has_weak_noise, mean_of, require
from attncem.auditing.guards import digest
from attncem.build import RunData
from attncem.data.batches import DeviceData
from attncem.judges import Probe
from attncem.metrics import accuracy
from attncem.opening import OpenRun
from attncem.results.threats import Need, ThreatModel
from attncem.seeding import derive_seed, make_generator
from attncem.types import ConfigError, NotApplicable, RunError

BATCH = 250
_FEWEST = 20
"""An attacker who owns any images must own as many as this."""


class Case:
    """A subject, a threat model, and the evaluation images x with their labels y.

    ``released`` is drawn once: what the server answers to, and what an adversary who sees one release gets. One who
    sees more gets further draws, in a stream (`seen_by`).
    """

    def __init__(self, subject: OpenRun, threat: ThreatModel, *, on: str = "test", seed: int = 0) -> None:
        self.subject, self.threat, self.on, self.seed = subject, threat, on, seed
        self.model = subject.model
        self.auxiliary, evaluation = _attacker_and_evaluation(subject.data, threat, on)
        if threat.auxiliary != "none" and len(self.auxiliary) < _FEWEST:
            raise ConfigError(
                f"threat={threat.name} leaves the attacker {len(self.auxiliary)} images: raise data.held_out_fraction"
            )
        self.x, self.y = evaluation.get(slice(None))
        self._own = self.auxiliary.get(slice(None))
        self._features: Tensor | None = None
        self._fixed: Tensor | None = None
        self._generator = make_generator(subject.device, seed, "evaluation")
        self.released = torch.cat(list(self._releases(self._generator)))
        self._digest = digest(self.model)

    def require_unchanged(self) -> None:
        """RunError where encoder or channel are not what they were when the evaluation images were released."""
        if digest(self.model) != self._digest:
            raise RunError("the encoder or the channel has changed since the evaluation images were released")

    def oracle(self, attack: Attack | Probe, seed: int) -> Oracle:
        """The oracle of an attack or probe; NotApplicable, before any work, where the adversary lacks what it needs."""
        self.require(attack.needs)
        features, fixed = self._known_of_own(attack)
        return Oracle(
            self.model,
            self.threat,
            *self._own,
            num_classes=self.subject.spec.num_classes,
            seed=seed,
            combine=_combine_of(attack),
            features=features,
            fixed=fixed,
            observed=torch.cat(list(self.seen_by(attack, len(self.x)))) if "observed" in attack.needs else None,
        )

    def require(self, needs: Iterable[Need]) -> None:
        """NotApplicable unless the adversary has all that is needed, and the subject has it to give."""
        given = {"has_server": self.model.server is not None, "weak_noise": has_weak_noise(self.model.channel)}
        require(self.threat, sorted(needs), **given)

    def image_index(self, attack: Attack) -> NDArray[np.int64]:
        """The evaluation images an attack is asked about: all, or the first so many."""
        count = len(self.x) if attack.num_images is None else min(attack.num_images, len(self.x))
        return np.arange(count, dtype=np.int64)

    def seen_by(self, attack: Attack | Probe, count: int) -> Iterator[Tensor]:
        """What an attack sees of the first `count` evaluation images, batch by batch, to do with as it likes."""
        releases, combine = self.threat.releases_per_input, _combine_of(attack)
        if releases == 1 and combine is mean_of:
            yield from (part.clone() for part in self.released[:count].split(BATCH))
            return
        parts = zip(self.released[:count].split(BATCH), self.x[:count].split(BATCH), strict=True)
        for number, (first, x) in enumerate(parts):
            noise = make_generator(self.subject.device, self.seed, "evaluation", number)
            yield combine(self._stream(first, x, releases, noise))

    @torch.no_grad()
    def seen_of(self, x: Tensor, *stream: str | int) -> Tensor:
        """What is seen of other images of the victim, as of the evaluation images, with noise of its own stream."""
        noise = make_generator(self.subject.device, self.seed, *stream)
        firsts = ((self.model.release(part, generator=noise), part) for part in x.split(BATCH))
        return torch.cat(
            [mean_of(self._stream(first, part, self.threat.releases_per_input, noise)) for first, part in firsts]
        )

    @torch.no_grad()
    def _stream(self, first: Tensor, x: Tensor, releases: int, noise: torch.Generator) -> Iterator[Tensor]:
        """The release that was drawn, then as many more as the adversary sees."""
        yield first.clone()
        z = self.model.encode(x) if releases > 1 else first
        for _ in range(releases - 1):
            yield self.model.transmit(z, x, noise)

    @torch.no_grad()
    def _releases(self, noise: torch.Generator) -> Iterator[Tensor]:
        """Every evaluation image released once, in index order."""
        for part in self.x.split(BATCH):
            yield self.model.release(part, generator=noise)

    @torch.no_grad()
    def _known_of_own(self, attack: Attack | Probe) -> tuple[Tensor | None, Tensor | None]:
        """Clean features of the attacker's images, and releases that repeat, computed once for all attacks."""
        own = self._own[0]
        if not {"images", "queries"} <= attack.needs or not len(own):
            return None, None
        if self._features is None:
            self._features = torch.cat([self.model.encode(part) for part in own.split(2 * BATCH)])
        if self._fixed is None and getattr(self.model.channel, "repeats", False):
            pairs = zip(self._features.split(2 * BATCH), own.split(2 * BATCH), strict=True)
            self._fixed = torch.cat([self.model.transmit(z, x) for z, x in pairs])
        return self._features, self._fixed

    @torch.no_grad()
    def right(self) -> NDArray[np.float64]:
        """Whether the server is right about each evaluation image; NotApplicable without a server half."""
        if self.model.server is None:
            raise NotApplicable("there is no server half, so there is no accuracy")
        parts = zip(self.released.split(BATCH), self.y.split(BATCH), strict=True)
        right = torch.cat([accuracy(self.model.predict(z), y) for z, y in parts])
        return np.asarray(right.double().cpu().numpy())

    def seed_of(self, row: str) -> int:
        """Every row draws from a stream of its own."""
        return derive_seed(self.seed, "attack", row)


def _combine_of(attack: Attack | Probe) -> Combine:
    """What it makes of several releases: an attack's own way, or their mean."""
    if isinstance(attack, Probe) or type(attack).combine is Attack.combine:
        return mean_of
    return attack.combine


def _attacker_and_evaluation(data: RunData, threat: ThreatModel, on: str) -> tuple[DeviceData, DeviceData]:
    """The attacker's images and the images it is judged on: never the same ones."""
    evaluation = data.test if on == "test" else data.validation
    if threat.auxiliary == "train":
        return data.train, evaluation
    if threat.auxiliary == "held_out":
        return data.held_out, evaluation
    if threat.auxiliary == "none":
        return DeviceData(data.train.images[:0], data.train.labels[:0]), evaluation
    if threat.auxiliary == "published_infer" and on == "test":
        return data.infer_auxiliary, data.infer_evaluation
    raise ConfigError(f"threat={threat.name} cannot be judged on the {on} images")
