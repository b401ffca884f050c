"""The leakage bounds: the most nats that the releases of one image tell about it, all or beyond the label."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from attncem.base.seeding import derive_seed
from attncem.base.texts import written
from attncem.base.types import NotApplicable
from attncem.config.options.certificates import BeyondLabelOptions, LeakageOptions
from attncem.judging.certificates.bits import nats_of_codes, roundings
from attncem.judging.certificates.choosing import CHOOSING, AnyOptions, Choice, Facts, candidates
from attncem.judging.certificates.code_entropy import entropy_of, nats_of_code
from attncem.judging.certificates.coding import Coding, Learner, Sample, Wanted
from attncem.judging.certificates.kernels import KernelJudged
from attncem.judging.certificates.making import FEWEST_IMAGES, Numbers, largest_entropy, measured, require_images
from attncem.judging.certificates.mixture import Judged
from attncem.judging.certificates.over_all import over_all
from attncem.judging.certificates.passage import (
    Noise,
    answers_of,
    assumptions_of,
    evaluation_features,
    learned_from,
    noise_of,
    releases_of,
)
from attncem.judging.judges import Certificate
from attncem.records.bounds import About, Bound

if TYPE_CHECKING:
    from attncem.judging.case import Case


class Leakage(Certificate):
    """The entropy of the cells and the capacity of the channel inside them, on images that nothing was fitted to."""

    options_type: ClassVar[type[AnyOptions]] = LeakageOptions
    options: AnyOptions

    def bound(self, case: Case, *, seed: int) -> Mapping[str, Bound]:
        """The bound of this name, for all releases that the adversary sees of one image."""
        ground, name = ground_of(case, self.options), self.options.name
        self.images = {name: ground.values}
        made: dict[str, Bound] = {name: ground.bound(case)}
        if ground.coding.wanted.inside or case.looked is None:
            return made
        return made | over_all(case, ground.values, made[name].assumptions) | self._not_sent(case)

    def _not_sent(self, case: Case) -> dict[str, Bound]:
        """`not_sent`: the bound for the images that the client answers itself, if it sent them; empty: too few."""
        rest = case.answering()
        if len(rest.x) < FEWEST_IMAGES:
            return {}
        return {"not_sent": replace(ground_of(rest, self.options).bound(rest), about="not_sent")}


class BeyondLabel(Leakage):
    """I(x; z | y) ≤ −E log q(z | y) − h(noise): what the releases tell to those who know the label already.

    All cells lie inside the classes, and the label costs nothing. It is a bound of its own, no difference of two. A
    code without noise has H(code | y) ≤ −E log q(code | y).
    """

    options_type = BeyondLabelOptions

    def bound(self, case: Case, *, seed: int) -> Mapping[str, Bound]:
        """The bound of this name, by noise, or by the code where there is no noise."""
        channel = case.model.channel
        if not roundings(channel) or channel.noise_std:
            return super().bound(case, seed=seed)
        if not case.subject.spec.num_classes:
            raise NotApplicable(written("reason.nothing_beyond"))
        bound = entropy_of(case, inside=True)
        self.images = {self.options.name: nats_of_code(case, inside=True)}
        return {self.options.name: bound}


@dataclass(frozen=True)
class Ground:
    """The basis of the bounds by noise: the noise, the number of draws seen, and the images with their coding."""

    noise: Noise
    releases: int
    coding: Coding
    values: Numbers

    def bound(self, case: Case) -> Bound:
        """The leakage of all draws, or its part beyond the label."""
        about: About = "beyond_label" if self.coding.wanted.inside else "leakage"
        made = measured(self.values, "nats", about, assumptions_of(self.noise))
        assumed = [*made.assumptions, *(["noise_drawn"] if self.coding.wanted.pull is not None else [])]
        vacuous = made.claim >= largest_entropy(case.x.shape[1:])
        return replace(made, vacuous=vacuous, assumptions=assumed, by=self.coding.wanted.by)


def ground_of(case: Case, options: AnyOptions | None = None) -> Ground:
    """The basis of the bounds by noise, computed once for all certificates of a case.

    The coding is chosen for the power of 16 at or below the number of draws on one input of the noise.
    """
    chosen = options or LeakageOptions()
    noise = noise_of(case.model.channel)
    releases = releases_of(case, noise)
    require_images(len(case.x))
    key = "ground", chosen.name, chosen.cells, chosen.axes, chosen.clusters
    if (*key, releases) not in case.remembered:
        draws = 1 if noise.fresh_before else releases
        wanted = _choice(case, noise, chosen, ("choice", *key[1:])).best(
            noise.std, 16 ** ((draws.bit_length() - 1) // 4)
        )
        coding, judged = _judged(case, noise, wanted)
        values = noise.together(releases, lambda count: judged.values(noise.std, count))
        case.remembered[*key, releases] = Ground(noise, releases, coding, values)
    ground: Ground = case.remembered[*key, releases]
    return ground


def _choice(case: Case, noise: Noise, options: AnyOptions, key: tuple[Any, ...]) -> Choice:
    """The candidates of the options, and the training images that decide between them."""
    if key not in case.remembered:
        whole = learned_from(case, noise)
        classes, answers = case.subject.spec.num_classes, answers_of(case, whole.images(slice(0, 1)))
        named = candidates(options, Facts(noise.law, whole.features.shape[1], classes, answers is not None))
        rows = torch.arange(1, len(whole.labels), 2, device=case.x.device)
        rows = rows[torch.linspace(0, len(rows) - 1, min(len(rows), CHOOSING), device=rows.device).round().long()]
        needed = any(one.cells == "answer" for one in named) and len(named) > 1
        their_answers = answers_of(case, whole.images(rows)) if needed else None
        others = Sample(whole.features[rows], whole.labels[rows], their_answers)
        learner = _learner(case, noise, every=2)
        case.remembered[key] = Choice(named, learner, others, noise.law, derive_seed(case.seed, "choosing"))
    choice: Choice = case.remembered[key]
    return choice


def _learner(case: Case, noise: Noise, every: int = 1) -> Learner:
    """Learns from all training images, or from some, for all bounds of the case."""
    key = "learner", every
    if key not in case.remembered:
        whole = learned_from(case, noise)
        case.remembered[key] = Learner(Sample(whole.features[::every], whole.labels[::every]))
    learner: Learner = case.remembered[key]
    return learner


def _judged(case: Case, noise: Noise, wanted: Wanted) -> tuple[Coding, Judged | KernelJudged]:
    """The evaluation images in a coding that is learned from all training images."""
    key = "judged", wanted
    if key not in case.remembered:
        coding = _learner(case, noise).coding(wanted)
        answers = answers_of(case, case.x) if wanted.cells == "answer" else None
        sample = Sample(evaluation_features(case, noise), case.y, answers)
        case.remembered[key] = coding, coding.judged(noise.law, sample, case.seed)
    judged: tuple[Coding, Judged | KernelJudged] = case.remembered[key]
    return judged


@dataclass(frozen=True)
class Upper:
    """The smallest upper bound on the leakage from noise or bits, in nats."""

    value: float
    claim: float
    assumptions: list[str]


def upper_leakage(case: Case) -> Upper:
    """The smallest bound at 95 % confidence: by noise, bits or the entropy of the code; NotApplicable: none."""
    uppers = list(_by_codes(case))
    try:
        ground = ground_of(case)
    except NotApplicable:
        if not uppers:
            raise
    else:
        made = ground.bound(case)
        uppers.append(Upper(made.value, made.claim, made.assumptions))
    return min(uppers, key=lambda upper: upper.claim)


def _by_codes(case: Case) -> Iterator[Upper]:
    bits = nats_of_codes(case)
    if bits is not None:
        yield Upper(bits.nats, bits.nats, bits.assumptions)
    with suppress(NotApplicable):
        made = entropy_of(case)
        yield Upper(made.value, made.claim, made.assumptions)
