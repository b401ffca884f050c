"""Case: one model under one threat model, on one set of images. All attacks, certificates and probes go through it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attncem.base.seeding import derive_seed, make_generator
from attncem.base.texts import written
from attncem.base.types import ConfigError, NotApplicable, RunError
from attncem.config.options.attacks import SeeingOptions
from attncem.config.options.base import Options
from attncem.config.threats import FEWEST_IMAGES, Need, ThreatModel, check_queries, with_pictures
from attncem.data.batches import DeviceData, Images
from attncem.data.outside import Outside
from attncem.judging.answers import Answers
from attncem.judging.attacks.base import Attack
from attncem.judging.attacks.ridge import RidgeAttack
from attncem.judging.attacks.seeing import Combine, Sight, mean_of
from attncem.judging.auditing.guards import digest
from attncem.judging.judges import Probe
from attncem.judging.opening import OpenRun
from attncem.judging.oracle import Oracle, has_weak_noise, require
from attncem.judging.selecting import Looked, facts_of, look_at, require_some_sent
from attncem.records.metrics import accuracy
from attncem.records.selective import Selective
from attncem.training.build import RunData

BATCH = 250
FEWEST_SENT = 20
"""Fewest evaluation images that a client with a head must send to be judged."""
_CHOICE = 20261119
"""Seed of the images of an adversary that owns only some: the same for every audit."""


@dataclass
class Known:
    """Results computed once for all attacks: clean features of the attacker's images, and releases that repeat.

    ``answers`` are those to a limited number of queries, with the adversary that saw them: a row with other releases
    has other answers.
    """

    features: Tensor | None = None
    fixed: Tensor | None = None
    answers: tuple[ThreatModel, Answers] | None = None


class Case:
    """A subject, a threat model, and the evaluation images x with their labels y.

    Of a client with a head, x are the images that it sends; ``every`` are all of them, ``looked`` are the decisions.

    ``released`` is drawn once: the server answers to it, and an adversary that sees one release gets it. An adversary
    that sees more releases, or releases of nearly the same pixels, gets draws of its own, in a stream (`seen_by`).
    ``reference`` is an undefended network of the same data for the measurements of probes; ``kept`` gives the strongest
    attack so far and its name, if the audit kept it. ``remembered`` caches results that certificates share. ``outside``
    is where an adversary has its pictures from.
    """

    def __init__(
        self,
        subject: OpenRun,
        threat: ThreatModel,
        *,
        on: str = "test",
        seed: int = 0,
        reference: OpenRun | None = None,
        outside: Outside | None = None,
    ) -> None:
        check_queries(threat)
        pictures = None
        if outside is not None:
            pictures, facts = outside.read(subject.spec.shape)
            threat = with_pictures(threat, facts)
        self.subject, self.threat, self.on, self.seed, self.reference = subject, threat, on, seed, reference
        self.outside = outside
        self.kept: Callable[[], tuple[str, Attack] | None] = lambda: None
        self.model = subject.model
        every, evaluation = _attacker_and_evaluation(subject.data, threat, on, pictures)
        _require_enough(threat, len(every))
        self.chosen = None if threat.images is None else _chosen(len(every), threat.images).to(every.images.device)
        self.auxiliary = every if self.chosen is None else every.at(self.chosen)
        self.x, self.y = evaluation.get(slice(None))
        self.places = np.arange(len(self.y), dtype=np.int64)
        self.selective: Selective | None = None
        self.looked: Looked | None = None
        self.remembered: dict[Any, Any] = {}
        if self.model.head is not None:
            self._keep_sent()
        self._known = Known()
        self._generator = make_generator(subject.device, seed, "evaluation")
        self.released = torch.cat(list(self._releases(self._generator)))
        self._digest = digest(self.model)

    def _keep_sent(self) -> None:
        """Judge only the images that a client with a head sends; ``places`` are theirs among all evaluation images.

        An adversary without the encoder gets no release of other images, so it learns from sent ones alone.
        """
        looked = look_at(self.model, self.x)
        require_some_sent(looked.sent, self.model.threshold, FEWEST_SENT)
        self.looked = looked
        self.selective = facts_of(self.model, self.x, self.y, looked, self.seed, self.subject.spec.num_classes)
        self.every = self.x, self.y
        self.places = looked.places
        chosen = torch.from_numpy(self.places).to(self.x.device)
        self.x, self.y = self.x[chosen], self.y[chosen]
        if self.threat.may_query and not self.threat.knows_encoder:
            sent, owned = self._own_sent(), len(self.auxiliary)
            self.auxiliary = self.auxiliary.at(sent)
            self.chosen = sent if self.chosen is None else self.chosen[sent]
            _require_enough_sent(self.threat, owned, len(sent))

    def _own_sent(self) -> Tensor:
        """Places of the attacker's images that the client would send."""
        return torch.from_numpy(look_at(self.model, self.auxiliary.in_parts).places).to(self.auxiliary.images.device)

    @property
    def learns_from_sent(self) -> bool:
        """Whether attacks are also tried on the attacker's images that would be sent: it must know which these are."""
        return self.looked is not None and self.threat.knows_encoder and self.threat.auxiliary != "none"

    def owning_sent(self) -> Case:
        """The case of an adversary that learns from its images that the client would send; NotApplicable: too few."""
        if "owned and sent" not in self.remembered:
            self.remembered["owned and sent"] = self.auxiliary.at(self._own_sent()), Known()
        auxiliary, computed = self.remembered["owned and sent"]
        if len(auxiliary) < FEWEST_IMAGES:
            raise NotApplicable(written("reason.few_sent", count=len(auxiliary), least=FEWEST_IMAGES))
        view = copy.copy(self)
        view.auxiliary, view._known = auxiliary, computed
        return view

    def answering(self) -> Case:
        """The case of the images that the client answers itself, as if it sent them: only for a comparison.

        What certificates learned is kept; what they computed from the evaluation images is not.
        """
        assert self.looked is not None, "a client without a head sends every image"
        view, chosen = copy.copy(self), ~self.looked.sent
        view.x, view.y = self.every[0][chosen], self.every[1][chosen]
        learned = ("learned", "learner", "choice")
        view.remembered = {key: kept for key, kept in self.remembered.items() if key in learned or key[0] in learned}
        return view

    def seeing(self, releases: int | None = None, jitter: int = 0) -> Case:
        """The case of an adversary with this number of releases and this jitter; all computed results are shared."""
        count = releases or self.threat.releases_per_input
        threat = replace(self.threat, releases_per_input=count, jitter=jitter or self.threat.jitter)
        if threat == self.threat:
            return self
        view = copy.copy(self)
        view.threat = threat
        return view

    def for_row(self, options: Options) -> Case:
        """The case as a row with these options sees it."""
        return self.seeing(options.releases, options.jitter) if isinstance(options, SeeingOptions) else self

    def require_unchanged(self) -> None:
        """RunError if the encoder or the channel has changed since the evaluation images were released."""
        if digest(self.model) != self._digest:
            raise RunError("the encoder or the channel has changed since the evaluation images were released")

    def oracle(self, attack: Attack | Probe, seed: int, own: int | None = None) -> Oracle:
        """The oracle of an attack or probe; NotApplicable, before any work, if the adversary lacks a need.

        With ``own`` it holds only the first `own` of the attacker's images, for a trial.
        """
        self.require(attack.needs)
        mine = self.owned_by(attack)
        mine = mine if own is None else mine.first(own)
        features, fixed = self._known_of_own(attack) if own is None else self.known_of(mine.in_parts)
        return Oracle(
            self.model,
            self.threat,
            mine.in_parts,
            mine.labels,
            num_classes=self.num_classes,
            seed=seed,
            combine=_combine_of(attack),
            features=features,
            fixed=fixed,
            observed=torch.cat(list(self.seen_by(attack, len(self.x)))) if "observed" in attack.needs else None,
            answers=self._answers(attack),
        )

    def owned_by(self, attack: Attack | Probe) -> DeviceData:
        """The attacker's images; where an attack needs their releases and queries are limited, those with an answer."""
        if self.threat.queries is None or "queries" not in attack.needs:
            return self.auxiliary
        return self.auxiliary.first(self.threat.queries)

    @torch.no_grad()
    def _answers(self, attack: Attack | Probe) -> Answers | None:
        """The answers to limited queries, the same for all attacks of this adversary; None without a limit."""
        if self.threat.queries is None or "queries" not in attack.needs:
            return None
        combine = _combine_of(attack)
        kept = self._known.answers
        if combine is mean_of and kept is not None and kept[0] == self.threat:
            return kept[1]
        sight = Sight(self.model, self.threat, combine)
        noise = make_generator(self.subject.device, self.seed, "queries")
        images, count = self.auxiliary.in_parts, len(self.auxiliary)
        numbers = torch.arange(self.threat.queries, device=self.auxiliary.images.device) % count
        answers = Answers.of(torch.cat([sight(images[part], noise) for part in numbers.split(BATCH)]), count)
        if combine is mean_of:
            self._known.answers = (self.threat, answers)
        return answers

    @property
    def num_classes(self) -> int:
        """The number of classes whose labels the attacker has; 0: it has none."""
        return 0 if self.threat.auxiliary == "outside" else self.subject.spec.num_classes

    def require(self, needs: Iterable[Need]) -> None:
        """NotApplicable unless the threat model grants all needs, and the subject provides them."""
        require(
            self.threat,
            sorted(needs),
            has_server=self.model.server is not None,
            weak_noise=has_weak_noise(self.model.channel),
            gradients=self.subject.differentiable,
            labels=self.num_classes > 0,
        )

    def image_index(self, attack: Attack) -> NDArray[np.int64]:
        """Indices of the evaluation images that an attack is applied to: all, or the first `num_images`."""
        count = len(self.x) if attack.num_images is None else min(attack.num_images, len(self.x))
        return np.arange(count, dtype=np.int64)

    def seen_by(self, attack: Attack | Probe, count: int) -> Iterator[Tensor]:
        """What an attack sees of the first `count` evaluation images, batch by batch; it may change these tensors."""
        combine = _combine_of(attack)
        if self.threat.releases_per_input == 1 and not self.threat.jitter:
            yield from (combine([part.clone()]) for part in self.released[:count].split(BATCH))
            return
        sight = Sight(self.model, self.threat, combine)
        for number, x in enumerate(self.x[:count].split(BATCH)):
            yield sight(x, make_generator(self.subject.device, self.seed, "evaluation", number))

    def seen_of(self, x: Tensor, *stream: str | int) -> Tensor:
        """What the adversary sees of other images, as of the evaluation images, with noise from a stream of its own."""
        noise, sight = make_generator(self.subject.device, self.seed, *stream), Sight(self.model, self.threat)
        return torch.cat([sight(part, noise) for part in x.split(BATCH)])

    @torch.no_grad()
    def _releases(self, noise: torch.Generator) -> Iterator[Tensor]:
        """Every evaluation image released once, in index order."""
        for part in self.x.split(BATCH):
            yield self.model.release(part, generator=noise)

    def _known_of_own(self, attack: Attack | Probe) -> tuple[Tensor | None, Tensor | None]:
        """Clean features of the attacker's images, and releases that repeat, computed once for all attacks."""
        known = self._known
        if not {"images", "queries"} <= attack.needs or self.threat.jitter or self.threat.queries is not None:
            return None, None
        if known.features is None:
            known.features, known.fixed = self.known_of(self.auxiliary.in_parts)
        return known.features, known.fixed

    @property
    def known_training(self) -> Tensor | None:
        """Clean features of all training images in their order, if an attacker that owns them has computed them."""
        return self._known.features if self.auxiliary is self.subject.data.train else None

    @torch.no_grad()
    def known_of(self, x: Images) -> tuple[Tensor | None, Tensor | None]:
        """Clean features of images, and their releases if these repeat; None with jitter, which changes the pixels."""
        if not len(x) or self.threat.jitter:
            return None, None
        features = torch.cat([self.model.encode(part) for part in x.split(2 * BATCH)])
        if not getattr(self.model.channel, "repeats", False):
            return features, None
        pairs = zip(features.split(2 * BATCH), x.split(2 * BATCH), strict=True)
        return features, torch.cat([self.model.transmit(z, part) for z, part in pairs])

    @torch.no_grad()
    def recovered(self, seed: int) -> tuple[str, Tensor]:
        """Name of the strongest attack so far, or else of a ridge, and its evaluation reconstructions."""
        name, attack = self.kept() or ("ridge", self._ridge(seed))
        count = len(self.image_index(attack))
        return name, torch.cat([attack.reconstruct(seen).float() for seen in self.seen_by(attack, count)])

    def _ridge(self, seed: int) -> Attack:
        attack = RidgeAttack()
        attack.fit(self.oracle(attack, seed), seed=seed)
        return attack

    @torch.no_grad()
    def right(self) -> NDArray[np.float64]:
        """Whether the server classifies each evaluation image correctly; NotApplicable without a server half."""
        if self.model.server is None:
            raise NotApplicable(written("reason.no_server"))
        parts = zip(self.released.split(BATCH), self.y.split(BATCH), strict=True)
        right = torch.cat([accuracy(self.model.predict(z), y) for z, y in parts])
        return np.asarray(right.double().cpu().numpy())

    def seed_of(self, row: str) -> int:
        """The seed of a row; every row draws from a stream of its own."""
        return derive_seed(self.seed, "attack", row)


def _combine_of(attack: Attack | Probe) -> Combine:
    """The function that combines several releases: the attack's own, or their mean."""
    if isinstance(attack, Probe) or type(attack).combine is Attack.combine:
        return mean_of
    return attack.combine


def _require_enough(threat: ThreatModel, count: int) -> None:
    """ConfigError where the adversary owns fewer images than it needs, or than were asked for."""
    if threat.images is not None and count < threat.images:
        raise ConfigError(f"attacker_images={threat.images}: there are only {count:,} images for this adversary")
    owned = count if threat.images is None else threat.images
    if threat.auxiliary != "none" and owned < FEWEST_IMAGES:
        raise ConfigError(
            f"threat={threat.name} leaves the attacker {owned} images, and {FEWEST_IMAGES} are needed: "
            "raise data.held_out_fraction, or add images"
        )


def _require_enough_sent(threat: ThreatModel, owned: int, sent: int) -> None:
    """ConfigError where the client sends so few of an adversary's images that it gets too few releases."""
    if threat.auxiliary != "none" and sent < FEWEST_IMAGES:
        raise ConfigError(
            f"threat={threat.name}: the client sends {sent} of the {owned:,} images of this adversary, who gets no "
            f"release of the others, and {FEWEST_IMAGES} are needed: raise release.share, or add images"
        )


def _chosen(count: int, wanted: int) -> Tensor:
    """Indices of the images of an adversary that owns only so many, in a fixed random order."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(_CHOICE))[:wanted]


def _attacker_and_evaluation(
    data: RunData, threat: ThreatModel, on: str, pictures: NDArray[np.uint8] | None
) -> tuple[DeviceData, DeviceData]:
    """The attacker's images and the images it is judged on: never the same ones."""
    evaluation = data.test if on == "test" else data.validation
    if threat.auxiliary == "outside" and pictures is not None:
        every = np.arange(len(pictures), dtype=np.int64)
        device, streamed = data.train.labels.device, data.train.streamed
        return DeviceData.from_arrays(pictures, np.zeros_like(every), every, device, streamed=streamed), evaluation
    if threat.auxiliary == "outside":
        raise ConfigError(f"threat={threat.name} owns pictures from elsewhere: attacker_data must say which")
    if threat.auxiliary == "train":
        return data.train, evaluation
    if threat.auxiliary == "held_out":
        return data.held_out, evaluation
    if threat.auxiliary == "none":
        return data.train.first(0), evaluation
    if threat.auxiliary == "published_infer" and on == "test":
        return data.infer_auxiliary, data.infer_evaluation
    raise ConfigError(f"threat={threat.name} cannot be evaluated on the {on} images")
