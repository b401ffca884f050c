"""Guesses the noise: if torch's generator drew it from one of 2³² seeds, the attack tries the seeds against a release.

Noise of scheme 0 seeds torch's CPU generator by an HMAC of the pixels. Undoing it needs neither the key nor the pixels:
the generator uses 32 bits of its seed, so there are at most 2³² draws n. The right one leaves a clean feature,
r − σ n = z. Each seed is scored by

LLR = log N(r − σ n; μ, Σ) − log N(r; μ, Σ + σ² I),

with μ and Σ of the clean features of the attacker's images. For a wrong seed E[exp LLR] = 1, so the probability that
any of all 2³² passes log 2³² + 10 is below e⁻¹⁰ per image, as far as features are Gaussian. A release whose noise is
recovered is read as a clean one, every other one as it arrived.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from attncem.base.seeding import make_generator
from attncem.base.texts import written
from attncem.base.types import NotApplicable
from attncem.config.options.attacks import NoiseGuessOptions
from attncem.judging.attacks.base import Attack, OwnImages
from attncem.judging.attacks.ridge import RidgeAttack
from attncem.judging.oracle import Oracle
from attncem.models.channels import Channel, GaussianChannel
from attncem.records.audit import Verdict
from attncem.records.findings import finding

ALL = 2**32
"""Number of seeds that torch's CPU generator distinguishes."""
_MARGIN = math.log(ALL) + 10
_FEWEST, _MOST = 16, 224
"""Fewest and most numbers of a draw that are compared: whole blocks of 16, all from the generator's first state."""
_BLUR = 0.1
"""Share of σ by which a clean feature may deviate from the attacker's images, in every direction."""
_AT_ONCE = {"cuda": 1 << 20}
"""Seeds tried in one batch, by kind of device: large where a launch is expensive. Elsewhere fewer, to fit the cache."""
_ELSEWHERE = 1 << 14
_SHIFT = 397
_LOW = 0xFFFFFFFF


class NoiseGuessAttack(Attack):
    """Ridge on the clean feature if the noise is guessed, else on the release."""

    options_type = NoiseGuessOptions
    options: NoiseGuessOptions
    needs = frozenset({"images", "encoder", "channel", "generator"})

    def fit(self, oracle: Oracle, *, seed: int) -> None:
        """Learn ridges with and without noise, and the distribution of clean features."""
        oracle.require("generator")
        std = additive_std(oracle.channel())
        self._noisy, self._clean = RidgeAttack(progress=self.progress), RidgeAttack(progress=self.progress)
        self._noisy.fit(oracle, seed=seed)
        clean = oracle.before_channel()
        self._clean.fit(clean, seed=seed)
        features = OwnImages(clean).release_all(make_generator(oracle.device, seed, "noise guess"))
        self._search = Search(features.flatten(1), std) if std else None  # without noise there is nothing to guess
        weights = self._noisy.verdict.num_parameters + self._clean.verdict.num_parameters
        tried = self.options.seeds
        self.verdict = Verdict(tried == ALL, num_parameters=weights)
        self.findings = [] if tried == ALL else [finding("seeds_left", tried=tried, total=ALL)]

    @torch.no_grad()
    def reconstruct(self, released: Tensor) -> Tensor:
        """Images from clean features where the search succeeded, else from releases."""
        images = self._noisy.reconstruct(released)
        if self._search is None:
            return images
        found, best = self._search(released.flatten(1), self.options.seeds, self._tell)
        if not bool(found.any()):
            return images
        clean = released[found].float() - self._search.std * drawn(best[found], released[0])
        images[found] = self._clean.reconstruct(clean)
        return images

    def _tell(self, done: int) -> None:
        self.progress("noise guess", done, self.options.seeds, {})


def additive_std(channel: object) -> float:
    """σ of a channel whose only draw is Gaussian noise; NotApplicable for others, whose draws are not compared here."""
    stages = list(channel.single_stages()) if isinstance(channel, Channel) else []
    if len(stages) != 1 or type(stages[0]) is not GaussianChannel:
        raise NotApplicable(written("noise_guess.gaussian_alone"))
    return float(stages[0].noise_std)


class Search:
    """Tries seeds against releases [B, D]."""

    def __init__(self, features: Tensor, std: float) -> None:
        self.std = std
        self._count = comparable(features.shape[1])
        known = features[:, : self._count].double()
        self._mean = known.mean(0)
        square = std**2 * torch.eye(self._count, device=known.device, dtype=torch.float64)
        covariance = torch.cov(known.T) + _BLUR**2 * square
        noisy = covariance + square
        self._precision, self._noisy_precision = torch.linalg.inv(covariance), torch.linalg.inv(noisy)
        self._constant = (torch.logdet(noisy) - torch.logdet(covariance)) / 2

    def __call__(self, released: Tensor, seeds: int, tell: Any) -> tuple[Tensor, Tensor]:
        """Whether a seed explains each release, and the best seed."""
        off = released[:, : self._count].double() - self._mean
        best = torch.full((len(off),), -math.inf, device=off.device, dtype=torch.float64)
        which = torch.zeros(len(off), device=off.device, dtype=torch.int64)
        plain = (_square(off, self._noisy_precision) - _square(off, self._precision)) / 2 + self._constant
        size = _AT_ONCE.get(off.device.type, _ELSEWHERE)
        for start in range(0, seeds, size):
            tried = torch.arange(start, min(start + size, seeds), device=off.device)
            noise = self.std * normal_numbers(tried, self._count).double()
            ratio = plain[:, None] + off @ self._precision @ noise.T - _square(noise, self._precision) / 2
            value, place = ratio.max(1)
            which = torch.where(value > best, tried[place], which)
            best = torch.maximum(best, value)
            tell(start + len(tried))
        return best > _MARGIN, which


def _square(rows: Tensor, matrix: Tensor) -> Tensor:
    """The quadratic form v' M v of each row v."""
    return ((rows @ matrix) * rows).sum(1)


def comparable(features: int) -> int:
    """How many of a draw's first numbers do not depend on later ones; NotApplicable if they are too few.

    Torch draws blocks of 16; if the count is no multiple of 16, torch draws the last 16 numbers again.
    """
    whole = features if features % _FEWEST == 0 else (features - _FEWEST) // _FEWEST * _FEWEST
    if whole < _FEWEST:
        raise NotApplicable(written("noise_guess.few_features"))
    return min(whole, _MOST)


def normal_numbers(seeds: Tensor, count: int) -> Tensor:
    """The first `count` float32 numbers of `normal_` after `manual_seed`, for all seeds at once: [S, count]."""
    uniform = (_words(seeds, count) & 0xFFFFFF).float() / 2**24
    first, second = uniform.view(len(seeds), -1, 2, _FEWEST // 2).unbind(2)
    radius, angle = (-2 * (1 - first).log()).sqrt(), 2 * math.pi * second
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 2).view(len(seeds), count)


def _words(seeds: Tensor, count: int) -> Tensor:
    """The first words of a Mersenne twister (MT19937), for all seeds at once: [S, count]."""
    state = [seeds & _LOW]
    for place in range(1, count + _SHIFT):
        last = state[-1]
        state.append((1812433253 * (last ^ (last >> 30)) + place) & _LOW)
    words = []
    for place in range(count):
        joined = (state[place] & 0x80000000) | (state[place + 1] & 0x7FFFFFFF)
        word = state[place + _SHIFT] ^ (joined >> 1) ^ ((joined & 1) * 0x9908B0DF)
        word = word ^ (word >> 11)
        word = word ^ ((word << 7) & 0x9D2C5680)
        word = word ^ ((word << 15) & 0xEFC60000)
        words.append(word ^ (word >> 18))
    return torch.stack(words, 1)


def drawn(seeds: Tensor, like: Tensor) -> Tensor:
    """All numbers of each seed, as torch draws them on the CPU: [S, …]."""
    numbers = torch.empty(len(seeds), *like.shape)
    for row, seed in zip(numbers, seeds.tolist(), strict=True):
        row.normal_(generator=torch.Generator().manual_seed(seed))
    return numbers.to(like.device)
