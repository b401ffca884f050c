"""Inversion after re-whitening: what a defence has shrunk inside the classes is stretched again before it is read.

u = S^(−p/2) z̃, with z̃ standardised and S the pooled covariance of own releases inside their classes, shrunk towards a
multiple of the identity. Ridge without a penalty would not notice the map: what changes is which directions its
penalty spares, and how fast a decoder can learn them. The power p is chosen on own held-out images, 0 (nothing is
stretched) among them.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from attncem.base.seeding import derive_seed, make_generator
from attncem.config.options.attacks import RewhiteningOptions
from attncem.judging.attacks.base import Attack, OwnImages, Standardiser, State, divide
from attncem.judging.attacks.decoder import small_decoder
from attncem.judging.attacks.ridge import RidgeAttack
from attncem.judging.oracle import Oracle
from attncem.records.metrics import mse

_LARGEST = 4096
"""Beyond this many features only the deviation of each is taken, not their covariance."""
_HELD = 0.1
_LEAST = 1e-12


class RewhiteningAttack(Attack):
    """Ridge or a small decoder on re-whitened releases; `power` is what own images chose.

    A later power must be clearly better than the best before it.
    """

    options_type = RewhiteningOptions
    options: RewhiteningOptions
    must_beat = ("mean_image",)
    power: float

    def fit(self, oracle: Oracle, *, seed: int) -> None:
        """Try every power on own images that nothing was learned from, and learn with the best."""
        own = OwnImages(oracle)
        released = own.release_all(make_generator(own.x.device, seed, "rewhitening"))
        known, held = divide(len(own.x), _HELD, derive_seed(seed, "rewhitening split"), own.x.device)
        part = oracle.owning(own.x[known], own.y[known])
        spread, best = Spread(released[known], own.y[known], self.options.shrinkage), None
        for power in self.options.powers:
            whiten = spread.whitener(power)
            inner = self._learned(part, whiten, seed)
            errors = mse(inner.reconstruct(whiten(released[held])), own.x[held])
            if best is None or _clearly_less(errors, best):
                best, self.power, self._whiten, self._inner = errors, power, whiten, inner
        if self.options.then == "ridge":  # cheap enough to learn from all images in the end
            self._whiten = Spread(released, own.y, self.options.shrinkage).whitener(self.power)
            self._inner = self._learned(oracle, self._whiten, seed)
        self.verdict = replace(self._inner.verdict, chosen={"power": self.power})
        self.findings = self._inner.findings

    def reconstruct(self, released: Tensor) -> Tensor:
        """What the inner attack makes of the re-whitened release."""
        return self._inner.reconstruct(self._whiten(released))

    def state(self) -> State:
        """How releases are whitened, and what the inner attack keeps."""
        inner = self._inner.state() or {}
        return {**self._whiten.tensors(), **{f"inner.{name}": tensor for name, tensor in inner.items()}}

    def load(self, state: State) -> None:
        """The map that `state` gave."""
        self._whiten, self._inner = Whitener.of(state), self._new()
        inner = {name.removeprefix("inner."): tensor for name, tensor in state.items() if name.startswith("inner.")}
        self._inner.load(inner)

    def _learned(self, oracle: Oracle, whiten: Whitener, seed: int) -> Attack:
        inner = self._new()
        inner.fit(oracle.looking(whiten), seed=seed)
        return inner

    def _new(self) -> Attack:
        if self.options.then == "ridge":
            return RidgeAttack(progress=self.progress)
        epochs = self.options.decoder_epochs
        return small_decoder(epochs, self.progress)


def _clearly_less(errors: Tensor, than: Tensor) -> bool:
    """By more than the standard error of the difference: held-out images are few, and the first power is safe."""
    less = than - errors
    return float(less.mean()) > float(less.std(correction=0)) / math.sqrt(len(less))


class Whitener:
    """(released − mean) / std, then times a symmetric matrix, or a factor for each feature; the shape stays."""

    def __init__(self, standardise: Standardiser, stretch: Tensor) -> None:
        self._standardise, self._stretch = standardise, stretch

    def __call__(self, released: Tensor) -> Tensor:
        """The re-whitened release."""
        flat = self._standardise(released).flatten(1).double()
        stretched = flat @ self._stretch if self._stretch.ndim > 1 else flat * self._stretch
        return stretched.float().view_as(released)

    def tensors(self) -> State:
        """All of it as tensors."""
        return {"mean": self._standardise.mean, "std": self._standardise.std, "stretch": self._stretch}

    @classmethod
    def of(cls, tensors: State) -> Whitener:
        """From what `tensors` gave."""
        return cls(Standardiser(tensors["mean"], tensors["std"]), tensors["stretch"])


class Spread:
    """The spread of releases inside their classes, along its axes or feature by feature."""

    def __init__(self, released: Tensor, y: Tensor, shrinkage: float) -> None:
        self._standardise = Standardiser.of(released)
        inside = _inside_classes(self._standardise(released).flatten(1).double(), y)
        self._axes: Tensor | None = None
        if inside.shape[1] <= _LARGEST:
            values, self._axes = torch.linalg.eigh(inside.T @ inside / len(inside))
        else:
            values = inside.square().mean(0)
        values = values.clamp_min(0)
        self._variances = (values + shrinkage * values.mean()).clamp_min(_LEAST)

    def whitener(self, power: float) -> Whitener:
        """Divides by the deviations to this power: 0 leaves everything, 1 makes the spread the same everywhere."""
        factors = self._variances ** (-power / 2)
        return Whitener(self._standardise, factors if self._axes is None else (self._axes * factors) @ self._axes.T)


def _inside_classes(features: Tensor, y: Tensor) -> Tensor:
    """Each row less its class's mean."""
    member = torch.nn.functional.one_hot(y).to(features.dtype)
    means = (member.T @ features) / member.sum(0).clamp_min(1)[:, None]
    return features - means[y]
