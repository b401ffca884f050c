"""Linear inversion in closed form: the cheapest real attack, and a check on every decoder."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from attncem.attacks.base import Attack, OwnImages, Standardiser, State, divide
from attncem.attacks.forecast import Seconds, eigenvectors, products, timed
from attncem.attacks.oracle import Oracle
from attncem.config.attacks import RidgeOptions
from attncem.results.audit import Verdict
from attncem.seeding import derive_seed, make_generator

_LARGEST = 4096
"""Features beyond this many dimensions are first mapped to it by a fixed random projection."""
_FEW = 1024
"""Own releases up to which a larger feature is projected on what they span."""


class RidgeAttack(Attack):
    """x̂ = W z̃ + b with z̃ standardised; the strength is chosen on the attacker's own validation images."""

    options_type = RidgeOptions
    options: RidgeOptions

    def fit(self, oracle: Oracle, *, seed: int) -> None:
        """Solve (Φ'Φ/n + λI) W = Φ'X/n for every strength through one eigendecomposition."""
        own = OwnImages(oracle)
        x = own.x
        noise = make_generator(x.device, seed, "ridge")
        released = [own.release_all(noise) for _ in range(self.options.num_releases)]
        self._shape = tuple(x.shape[1:])
        self._standardise = Standardiser.of(released[0])
        self._projection = None
        if released[0][0].numel() > _LARGEST:
            self._projection = self._axes(released, seed)
        features = [self._features(part) for part in released]
        train, held = divide(len(x), 0.1, derive_seed(seed, "ridge split"), x.device)
        phi = torch.cat([part[train] for part in features])
        pixels = x.flatten(1).double()
        target = pixels[train].repeat(len(features), 1)
        self._centre, self._bias = phi.mean(0), target.mean(0)
        phi, target = phi - self._centre, target - self._bias
        values, vectors = torch.linalg.eigh(phi.T @ phi / len(phi))
        moment = vectors.T @ (phi.T @ target / len(phi))
        # What few own releases span is a part of the feature: strengths count by the whole of it all the same.
        dims = len(values) if len(values) == _LARGEST else released[0][0].numel()
        scale = (values.clamp_min(0).sum() / dims).clamp_min(1e-12)
        check = (features[0][held] - self._centre) @ vectors
        best = torch.inf
        for strength in self.options.strengths:
            solution = moment / (values.clamp_min(0) + strength * scale)[:, None]
            error = float((check @ solution + self._bias - pixels[held]).square().mean())
            if error < best:
                best, self._weights = error, vectors @ solution
        self.verdict = Verdict(num_parameters=self._weights.numel() + self._bias.numel())

    def reconstruct(self, released: Tensor) -> Tensor:
        """Linear images, clamped to [0, 1]."""
        pixels = (self._features(released) - self._centre) @ self._weights + self._bias
        images: Tensor = pixels.clamp(0, 1).float().view(-1, *self._shape)
        return images

    def forecast(self, trial: Oracle, own: int, images: int) -> Seconds:
        """From the sizes of the matrices, and the time to release a few images."""
        index = torch.arange(trial.num_auxiliary, device=trial.device)
        release = timed(lambda: trial.release_auxiliary(index)).times(self.options.num_releases * own / len(index))
        inputs, pixels = trial.release_auxiliary(index[:1]).numel(), math.prod(trial.image_shape)
        rows, like = self.options.num_releases * own, torch.zeros((), dtype=torch.float64)
        spanned = inputs > _LARGEST and _are_few(rows)
        side = rows if spanned else min(inputs, _LARGEST)
        project = 2 * ((1 + spanned) * rows + images) * inputs * side if inputs > _LARGEST else 0
        learn = 2 * rows * side * (side + pixels) + 2 * side * side * pixels
        choose = len(self.options.strengths) * 2 * side * pixels * (0.1 * own + side)
        answer = 2 * images * side * pixels
        return release + eigenvectors(side, like) + products(project + learn + choose + answer, like)

    def state(self) -> State:
        """Weights, centre and bias, and how releases are standardised and projected."""
        projection = {} if self._projection is None else {"projection": self._projection}
        own = {"weights": self._weights, "centre": self._centre, "bias": self._bias, **projection}
        shape = torch.tensor(self._shape)
        return {**own, "mean": self._standardise.mean, "std": self._standardise.std, "image_shape": shape}

    def load(self, state: State) -> None:
        """The map that `state` gave."""
        self._weights, self._centre, self._bias = state["weights"], state["centre"], state["bias"]
        self._projection, self._shape = state.get("projection"), tuple(state["image_shape"].tolist())
        self._standardise = Standardiser(state["mean"], state["std"])

    def _features(self, released: Tensor) -> Tensor:
        flat = self._standardise(released).flatten(1).double()
        return flat if self._projection is None else flat @ self._projection

    def _axes(self, released: list[Tensor], seed: int) -> Tensor:
        """Axes that a large release is projected on, as columns.

        Of few own releases those that they span: the ridge has no part outside of them, so that nothing is lost. Of
        many, random ones.
        """
        if not _are_few(sum(map(len, released))):
            return _random_axes(released[0][0].numel(), seed, released[0].device)
        spanned: Tensor = torch.linalg.qr(torch.cat([self._features(part) for part in released]).T).Q
        return spanned


def _are_few(rows: int) -> bool:
    """Whether own releases are so few that what they span is the smaller projection."""
    return rows <= min(_FEW, _LARGEST)


def _random_axes(dims: int, seed: int, device: torch.device) -> Tensor:
    generator = torch.Generator().manual_seed(derive_seed(seed, "ridge projection"))
    projection = torch.randn(dims, _LARGEST, generator=generator, dtype=torch.float64) / math.sqrt(dims)
    return projection.to(device)
