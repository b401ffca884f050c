"""Inversion after re-whitening: directions that a defence has shrunk inside the classes are stretched before reading.

u = S^(−p/2) z̃, with z̃ standardised and S the pooled within-class covariance of the attacker's own releases, shrunk
towards a multiple of the identity. Ridge without a penalty would not notice the map: it changes which directions the
penalty spares, and how fast a decoder can learn them. The power p is chosen on held-out images of the attacker; 0,
which stretches nothing, is among the candidates.
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
"""Up to this many features the covariance is used; above it, only the deviation of each feature."""
_HELD = 0.1
_LEAST = 1e-12


class RewhiteningAttack(Attack):
    """Ridge or a small decoder on re-whitened releases; `power` is chosen on the attacker's images.

    A later power must be clearly better than the best before it: the first power is the safe choice.
    """

    options_type = RewhiteningOptions
    options: RewhiteningOptions
    must_beat = ("mean_image",)
    power: float

    def fit(self, oracle: Oracle, *, seed: int) -> None:
        """Try every power on held-out images of the attacker, and learn with the best."""
        own = OwnImages(oracle)
        released = own.release_all(make_generator(own.x.device, seed, "rewhitening"))
        known, held = divide(len(own.x), _HELD, derive_seed(seed, "rewhitening split"), own.x.device)
        part = oracle.only(known)
        spread, best = Spread(released[known], own.y[known], self.options.shrinkage), None
        for power in self.options.powers:
            whiten = spread.whitener(power)
            inner = self._learned(part, whiten, seed)
            errors = mse(inner.reconstruct(whiten(released[held])), own.x[held])
            if best is None or _clearly_less(errors, best):
                best, self.power, self._whiten, self._inner = errors, power, whiten, inner
        if self.options.then == "ridge":  # cheap enough to learn from all images at the end
            self._whiten = Spread(released, own.y, self.options.shrinkage).whitener(self.power)
            self._inner = self._learned(oracle, self._whiten, seed)
        self.verdict = replace(self._inner.verdict, chosen={"power": self.power})
        self.findings = self._inner.findings

    def reconstruct(self, released: Tensor) -> Tensor:
        """The inner attack's reconstruction from the re-whitened release."""
        return self._inner.reconstruct(self._whiten(released))

    def state(self) -> State:
        """The whitener and the state of the inner attack."""
        inner = self._inner.state() or {}
        return {**self._whiten.tensors(), **{f"inner.{name}": tensor for name, tensor in inner.items()}}

    def load(self, state: State) -> None:
        """Restore the map that `state` returned."""
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
    """Whether errors are lower by more than the standard error of the difference; few images are held out."""
    less = than - errors
    return float(less.mean()) > float(less.std(correction=0)) / math.sqrt(len(less))


class Whitener:
    """(released − mean) / std, then times a symmetric matrix, or a factor for each feature; keeps the shape."""

    def __init__(self, standardise: Standardiser, stretch: Tensor) -> None:
        self._standardise, self._stretch = standardise, stretch

    def __call__(self, released: Tensor) -> Tensor:
        """The re-whitened release."""
        flat = self._standardise(released).flatten(1).double()
        stretched = flat @ self._stretch if self._stretch.ndim > 1 else flat * self._stretch
        return stretched.float().view_as(released)

    def tensors(self) -> State:
        """All fields as tensors."""
        return {"mean": self._standardise.mean, "std": self._standardise.std, "stretch": self._stretch}

    @classmethod
    def of(cls, tensors: State) -> Whitener:
        """The whitener that returned these `tensors`."""
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
        """Divides by the deviations to this power: 0 changes nothing, 1 makes the spread equal everywhere."""
        factors = self._variances ** (-power / 2)
        return Whitener(self._standardise, factors if self._axes is None else (self._axes * factors) @ self._axes.T)


def _inside_classes(features: Tensor, y: Tensor) -> Tensor:
    """Each row minus the mean of its class."""
    member = torch.nn.functional.one_hot(y).to(features.dtype)
    means = (member.T @ features) / member.sum(0).clamp_min(1)[:, None]
    return features - means[y]
