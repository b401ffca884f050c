"""Linear inversion in closed form: the cheapest real attack, and a check on every decoder."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from attncem.base.seeding import derive_seed, make_generator
from attncem.config.options.attacks import RidgeOptions
from attncem.data.batches import Images
from attncem.judging.attacks.base import Attack, OwnImages, Standardiser, State, divide
from attncem.judging.attacks.forecast import Seconds, eigenvectors, products, timed
from attncem.judging.oracle import Oracle
from attncem.records.audit import Verdict

_LARGEST = 4096
"""Larger features are first mapped to this many dimensions by a fixed random projection."""
_FEW = 1024
"""Up to this many own releases, a larger feature is projected on their span."""
_AT_ONCE = 2**30
"""Limit in bytes for features and pixels that are in memory in double precision."""


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
        train, held = divide(len(x), 0.1, derive_seed(seed, "ridge split"), x.device)
        covariance, moment, self._centre, self._bias = self._moments(released, x, train)
        values, vectors = torch.linalg.eigh(covariance)
        moment = vectors.T @ moment
        # Few own releases span a part of the feature space; strengths still count relative to the whole space.
        dims = len(values) if len(values) == _LARGEST else released[0][0].numel()
        scale = (values.clamp_min(0).sum() / dims).clamp_min(1e-12)
        check = [((phi - self._centre) @ vectors, some) for phi, some in self._features_of(released[:1], x, held)]
        best = torch.inf
        for strength in self.options.strengths:
            solution = moment / (values.clamp_min(0) + strength * scale)[:, None]
            left = (phi @ solution + self._bias - _pixels(x[some]) for phi, some in check)
            error = math.fsum(float(part.square().sum()) for part in left)
            if error < best:
                best, self._weights = error, vectors @ solution
        self.verdict = Verdict(num_parameters=self._weights.numel() + self._bias.numel())

    def reconstruct(self, released: Tensor) -> Tensor:
        """Linear reconstructions, clamped to [0, 1]."""
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
        """Weights, centre and bias, with the standardiser and the projection of releases."""
        projection = {} if self._projection is None else {"projection": self._projection}
        own = {"weights": self._weights, "centre": self._centre, "bias": self._bias, **projection}
        shape = torch.tensor(self._shape)
        return {**own, "mean": self._standardise.mean, "std": self._standardise.std, "image_shape": shape}

    def network(self) -> nn.Module:
        """The map in single precision."""
        return _Linear(self)

    def load(self, state: State) -> None:
        """Restore the map that `state` returned."""
        self._weights, self._centre, self._bias = state["weights"], state["centre"], state["bias"]
        self._projection, self._shape = state.get("projection"), tuple(state["image_shape"].tolist())
        self._standardise = Standardiser(state["mean"], state["std"])

    def _moments(self, released: list[Tensor], x: Images, index: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Centred Φ'Φ/n and Φ'X/n, and the means of Φ and X; summed over parts, because Φ may be larger than memory."""
        like = self._features(released[0][:1])
        side, pixels, rows = like.shape[1], x[0].numel(), len(released) * len(index)
        square, cross = like.new_zeros(side, side), like.new_zeros(side, pixels)
        centre, bias = like.new_zeros(side), like.new_zeros(pixels)
        for phi, some in self._features_of(released, x, index):
            target = _pixels(x[some])
            square.addmm_(phi.T, phi, alpha=1 / rows)
            cross.addmm_(phi.T, target, alpha=1 / rows)
            centre += phi.sum(0) / rows
            bias += target.sum(0) / rows
        return square.addr_(centre, centre, alpha=-1), cross.addr_(centre, bias, alpha=-1), centre, bias

    def _features_of(self, released: list[Tensor], x: Images, index: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Features of the images at `index`, release by release and in parts, each part with its indices."""
        each = 8 * (x[0].numel() + released[0][0].numel())
        for part in released:
            for some in index.split(max(1, _AT_ONCE // each)):
                yield self._features(part[some]), some

    def _features(self, released: Tensor) -> Tensor:
        flat = self._standardise(released).flatten(1).double()
        return flat if self._projection is None else flat @ self._projection

    def _axes(self, released: list[Tensor], seed: int) -> Tensor:
        """Axes that a large release is projected on, as columns.

        Few own releases: axes of their span; the ridge has no component outside of it, so nothing is lost. Many: random
        axes.
        """
        if not _are_few(sum(map(len, released))):
            return _random_axes(released[0][0].numel(), seed, released[0].device)
        spanned: Tensor = torch.linalg.qr(torch.cat([self._features(part) for part in released]).T).Q
        return spanned


class _Linear(nn.Module):
    """A fitted ridge as one linear layer of standardised releases; a projection is part of its weights."""

    def __init__(self, ridge: RidgeAttack) -> None:
        super().__init__()
        weights, centre = ridge._weights, ridge._centre
        axes = ridge._projection
        bias = ridge._bias - centre @ weights
        self.weights, self.bias = (weights if axes is None else axes @ weights).float(), bias.float()
        self.standardise, self.shape = ridge._standardise, ridge._shape

    def forward(self, released: Tensor) -> Tensor:
        """Images of releases."""
        pixels: Tensor = self.standardise(released).flatten(1) @ self.weights + self.bias
        return pixels.clamp(0, 1).view(-1, *self.shape)


def _pixels(x: Tensor) -> Tensor:
    return x.flatten(1).double()


def _are_few(rows: int) -> bool:
    """Whether the own releases are so few that their span is the smaller projection."""
    return rows <= min(_FEW, _LARGEST)


def _random_axes(dims: int, seed: int, device: torch.device) -> Tensor:
    generator = torch.Generator().manual_seed(derive_seed(seed, "ridge projection"))
    projection = torch.randn(dims, _LARGEST, generator=generator, dtype=torch.float64) / math.sqrt(dims)
    return projection.to(device)
