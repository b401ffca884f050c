"""Laws of codes learned from some images: any of them gives an upper bound on the entropy of the codes of others.

H(code) ≤ −E log q(code) for every q, so the best of several laws, chosen on images that are not judged, is one as well.
In the same way H(code | label) ≤ −E log q(code | label): then the laws are conditional, ``inside`` the classes.
A code of m values of b bits is [n, m] integers from 0 to 2^b − 1. Smoothing is add-half throughout.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
import torch
from torch import Tensor

DIGIT = 4
"""Bits of a digit: a value is divided into digits, which have a histogram each."""
MOST_BITS = 4096
"""Codes of more bits are not learned: a few thousand images say nothing about them."""
MOST_LINKED = 256
"""Up to this many bits, each bit is also predicted from those before it."""
STRENGTHS = (2.0, 20.0)
"""Penalties on the squared weights of that prediction, in nats over all images."""
TRUSTS = (math.inf, 10.0, 100.0, 1e3, 1e4, 1e5)
"""Weights, in images, of a law against the counts of whole codes; inf: no counts."""
_UNIFORM = 1 / 256
"""Share of the uniform law in every law, which limits the nats of an unlikely code."""
_STEPS = 60
_ROWS = 2**22


@dataclass(frozen=True)
class Codes:
    """Codes [n, m] of images with their labels, and the bits of each value."""

    values: Tensor
    labels: Tensor
    bits: int

    @property
    def nats(self) -> float:
        """The nats that a code can hold."""
        return self.values.shape[1] * self.bits * math.log(2)

    def part(self, index: slice | Tensor) -> Codes:
        """The codes of some images."""
        return Codes(self.values[index], self.labels[index], self.bits)

    @property
    def binary(self) -> Tensor:
        """The bits of each code, highest first, [n, m·b] in float64."""
        places = torch.arange(self.bits - 1, -1, -1, device=self.values.device)
        return (self.values.unsqueeze(2) >> places & 1).flatten(1).double()

    @property
    def digits(self) -> Tensor:
        """Each value as digits of up to four bits, highest first, [n, m·⌈b/4⌉]."""
        places = range(DIGIT * ((self.bits - 1) // DIGIT), -1, -DIGIT)
        return torch.stack([self.values >> place & (2**DIGIT - 1) for place in places], 2).flatten(1)

    @cached_property
    def whole(self) -> list[bytes]:
        """Each code as bytes."""
        return [row.tobytes() for row in self.values.cpu().numpy().astype(np.uint16)]


class Law(ABC):
    """A probability of every code, learned from codes."""

    name: str

    @abstractmethod
    def log_share(self, codes: Codes, *, inside: bool = False) -> Tensor:
        """The log probability of each code, or of each code given its label, float64 [n]."""


class Uniform(Law):
    """All codes are equally likely."""

    name = "uniform"

    def log_share(self, codes: Codes, *, inside: bool = False) -> Tensor:
        """−m·b·ln 2."""
        return torch.full((len(codes.values),), -codes.nats, dtype=torch.float64, device=codes.values.device)


class Classes(Law):
    """A mixture of classes: within a class, the digits of the code are independent."""

    def __init__(self, codes: Codes, num_classes: int) -> None:
        self.name = "digits" if num_classes == 1 else "digits in classes"
        labels, held, self._shares = _classes_of(codes, num_classes)
        digits, size = codes.digits, 2 ** min(DIGIT, codes.bits)
        counts = torch.stack([_histogram(digits[labels == label], size) for label in range(num_classes)])
        self._digits = ((counts + 0.5) / (held[:, None, None] + 0.5 * size)).log()

    def log_share(self, codes: Codes, *, inside: bool = False) -> Tensor:
        """The log of Σ_y p(y) Π_d p(digit d | y), or of Π_d p(digit d | y) for the label y."""
        digits, (classes, columns) = codes.digits, self._digits.shape[:2]
        index = torch.arange(columns, device=digits.device)
        parts = [
            torch.stack([self._digits[label][index, part].sum(1) for label in range(classes)], 1)
            for part in digits.split(max(1, _ROWS // columns))
        ]
        return _of_classes(torch.cat(parts), self._shares, codes, inside)


def _of_classes(each: Tensor, shares: Tensor, codes: Codes, inside: bool) -> Tensor:
    """The logs of each class [n, C], summed over the classes by their shares, or those of the labels."""
    if not inside:
        return (each + shares).logsumexp(1)
    return each.gather(1, codes.labels[:, None].clamp_max(len(shares) - 1)).squeeze(1)


def _classes_of(codes: Codes, num_classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Labels, images of each class, and log shares of the classes; one class holds all images."""
    labels = codes.labels if num_classes > 1 else torch.zeros_like(codes.labels)
    held = torch.bincount(labels, minlength=num_classes).double()
    return labels, held, ((held + 0.5) / (held.sum() + 0.5 * num_classes)).log()


def _histogram(digits: Tensor, size: int) -> Tensor:
    """How often each column has each digit, [columns, size]."""
    return torch.stack([(digits == digit).sum(0) for digit in range(size)], 1).double()


class Linked(Law):
    """A mixture of classes: each bit is predicted by logistic regression from the class and the bits before it."""

    def __init__(self, codes: Codes, num_classes: int, strength: float) -> None:
        self.name = f"{'bits' if num_classes == 1 else 'bits in classes'} after each other"
        labels, _, self._shares = _classes_of(codes, num_classes)
        of_class = torch.nn.functional.one_hot(labels, num_classes).double()
        self._links, self._classes, self._start = _regression(codes.binary, of_class, strength)

    def log_share(self, codes: Codes, *, inside: bool = False) -> Tensor:
        """The log of Σ_y p(y) Π_t p(bit t | bits before, y), or of Π_t p(bit t | bits before, y) for the label y."""
        binary = codes.binary
        before = binary @ self._links + self._start
        each = [_log_of_bits(before + moved, binary).sum(1) for moved in self._classes]
        return _of_classes(torch.stack(each, 1), self._shares, codes, inside)


def _log_of_bits(logits: Tensor, binary: Tensor) -> Tensor:
    return -torch.nn.functional.binary_cross_entropy_with_logits(logits, binary, reduction="none")


def _regression(binary: Tensor, of_class: Tensor, strength: float) -> tuple[Tensor, Tensor, Tensor]:
    """Penalised logistic regression of all bits on the earlier ones, [T, T], and the class, [C, T]; and the start, [T].

    It is convex, and all bits are fitted at once.
    """
    width, inputs = binary.shape[1], torch.cat([binary, of_class], 1)
    allowed = torch.cat([binary.new_ones(width, width).triu(1), binary.new_ones(of_class.shape[1], width)])
    weights = torch.zeros_like(allowed).requires_grad_(True)
    start = ((binary.sum(0) + 0.5) / (len(binary) + 1)).logit().requires_grad_(True)
    optimiser = torch.optim.LBFGS([weights, start], max_iter=_STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        used = weights * allowed
        missed = -_log_of_bits(inputs @ used + start, binary).sum()
        value = (0.5 * strength * used.square().sum() + missed) / len(binary)
        value.backward()
        return value

    with torch.enable_grad():
        optimiser.step(loss)
    links, classes = (weights * allowed).detach().split([width, of_class.shape[1]])
    return links, classes, start.detach()


class Counted(Law):
    """The counts of whole codes, with a law as if it were this many images more, and a small uniform share.

    ``inside``: the counts and the law are those of the label.
    """

    def __init__(self, law: Law, trust: float, codes: Codes, *, inside: bool = False) -> None:
        self.law, self.trust, self.inside = law, trust, inside
        self.name = law.name if math.isinf(trust) else f"{law.name}, whole codes"
        if not math.isinf(trust):
            self._counts, self._totals = Counter(self._keys(codes)), Counter(self._groups(codes))

    def log_share(self, codes: Codes, *, inside: bool = False) -> Tensor:
        """The log of (1 − u)(count + trust · law)/(total + trust) + u · uniform."""
        return self.mixed(self.law.log_share(codes, inside=self.inside), codes)

    def mixed(self, share: Tensor, codes: Codes) -> Tensor:
        """The same, from the log shares of the law alone."""
        if not math.isinf(self.trust):
            counts = share.new_tensor([self._counts[key] for key in self._keys(codes)])
            totals = share.new_tensor([self._totals[group] for group in self._groups(codes)])
            weighted = torch.logaddexp(counts.log(), share + math.log(self.trust))
            share = weighted - (totals + self.trust).log()
        if isinstance(self.law, Uniform) and math.isinf(self.trust):
            return share
        everything = torch.full_like(share, math.log(_UNIFORM) - codes.nats)
        return torch.logaddexp(share + math.log1p(-_UNIFORM), everything)

    def _groups(self, codes: Codes) -> list[int]:
        """The label of each code, or the same number for all."""
        return codes.labels.tolist() if self.inside else [0] * len(codes.labels)

    def _keys(self, codes: Codes) -> zip[tuple[int, bytes]]:
        return zip(self._groups(codes), codes.whole, strict=True)


@dataclass(frozen=True)
class _Kind:
    """What a law is learned with."""

    law: str
    num_classes: int
    strength: float = 0.0

    def fit(self, codes: Codes) -> Law:
        if self.law == "uniform":
            return Uniform()
        if self.law == "classes":
            return Classes(codes, self.num_classes)
        return Linked(codes, self.num_classes, self.strength)


def _kinds(codes: Codes, num_classes: int) -> list[_Kind]:
    groups = sorted({1, num_classes})
    kinds = [_Kind("uniform", 1), *(_Kind("classes", count) for count in groups)]
    if codes.values.shape[1] * codes.bits <= MOST_LINKED:
        kinds += [_Kind("linked", count, strength) for count, strength in product(groups, STRENGTHS)]
    return kinds


def choose_law(codes: Codes, num_classes: int, *, inside: bool = False) -> Law:
    """Learn laws from every second image, choose the best on the others, and learn that one again from all."""
    first, second = codes.part(slice(0, None, 2)), codes.part(slice(1, None, 2))
    if not len(second.values):
        return Uniform()
    tried = [
        (kind, law, law.log_share(second, inside=inside))
        for kind in _kinds(codes, num_classes)
        for law in (kind.fit(first),)
    ]

    def nats(choice: tuple[tuple[_Kind, Law, Tensor], float]) -> float:
        (_, law, share), trust = choice
        return -float(Counted(law, trust, first, inside=inside).mixed(share, second).mean())

    (kind, *_), trust = min(product(tried, TRUSTS), key=nats)
    return Counted(kind.fit(codes), trust, codes, inside=inside)
