"""Linear-Gaussian toys: images and a release of them whose information and least error are known in closed form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attncem.base.types import DatasetSpec
from attncem.config.loading.load import load_config
from attncem.config.threats import THREATS, ThreatModel
from attncem.data.batches import DeviceData
from attncem.data.splits import Split
from attncem.judging.auditing import Case
from attncem.judging.opening import OpenRun, open_encoder
from attncem.models.channels import build_channel
from attncem.models.split import SplitModel
from attncem.training.build import RunData


class FloatImages(DeviceData):
    """Images that are not rounded to 8 bits, so that closed forms hold."""

    def get(self, index: Any) -> tuple[Tensor, Tensor]:
        return self.images[index], self.labels[index]


class Linear(nn.Module):
    """z = A (x − ½)."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.register_buffer("matrix", matrix)

    def forward(self, x: Tensor) -> Tensor:
        return (x.flatten(1) - 0.5) @ self.matrix.T  # type: ignore[operator]


@dataclass(frozen=True)
class Toy:
    """x ~ N(½, Σ) in d = side² pixels, z = A(x − ½) + σ N(0, I) in m features."""

    covariance: np.ndarray[Any, Any]
    matrix: np.ndarray[Any, Any]
    std: float
    num_classes: int = 1

    @classmethod
    def drawn(cls, seed: int, side: int, features: int, rank: int, std: float) -> Toy:
        """Random variances over two decades, and an encoder of this rank."""
        rng, pixels = np.random.default_rng(seed), side * side
        basis = np.linalg.qr(rng.normal(size=(pixels, pixels)))[0]
        variances = 0.01 * 10 ** rng.uniform(-2, 0, pixels)
        left, right = rng.normal(size=(features, rank)), rng.normal(size=(rank, pixels))
        return cls(basis * variances @ basis.T, left @ right / rank**0.5, std)

    @property
    def pixels(self) -> int:
        return len(self.covariance)

    def nats(self, releases: int = 1) -> float:
        """I = ½ log det(1 + A Σ Aᵀ k/σ²)."""
        inner = self.matrix @ self.covariance @ self.matrix.T * releases / self.std**2
        return float(0.5 * np.linalg.slogdet(np.eye(len(inner)) + inner)[1])

    @property
    def mmse(self) -> float:
        """The least error of any attack: tr(Σ − Σ Aᵀ (A Σ Aᵀ + σ²)⁻¹ A Σ)/d."""
        across = self.covariance @ self.matrix.T
        inner = self.matrix @ across + self.std**2 * np.eye(len(self.matrix))
        return float(np.trace(self.covariance - across @ np.linalg.solve(inner, across.T)) / self.pixels)

    @property
    def dfil(self) -> float:
        """tr(AᵀA)/(σ² d)."""
        return float(np.square(self.matrix).sum() / self.std**2 / self.pixels)

    def images(self, count: int, seed: int) -> DeviceData:
        drawn = np.random.default_rng(seed).multivariate_normal(np.full(self.pixels, 0.5), self.covariance, count)
        side = round(self.pixels**0.5)
        x = torch.from_numpy(drawn).float().view(count, 1, side, side)
        return FloatImages(x, torch.zeros(count, dtype=torch.int64))

    def subject(self, count: int, channel: Sequence[Mapping[str, Any]] = ()) -> OpenRun:
        """The toy as a foreign encoder with `count` training and evaluation images."""
        side, base = round(self.pixels**0.5), _any_encoder()
        stages = channel or [{"name": "gaussian", "noise_std": self.std}]
        config = load_config({"channel": [dict(stage) for stage in stages]}).config
        model = SplitModel(Linear(torch.from_numpy(self.matrix).float()), build_channel(config.channel), None)
        spec = DatasetSpec("toy", (1, side, side), self.num_classes, (0.5,), (0.5,))
        return replace(base, model=model.eval(), spec=spec, reader=lambda: self.data(spec, count))

    def data(self, spec: DatasetSpec, count: int) -> RunData:
        names = ("train", "validation", "held_out", "test", "infer_auxiliary", "infer_evaluation")
        parts = {name: self.images(count if name in ("train", "test") else 40, seed) for seed, name in enumerate(names)}
        return RunData(spec, Split(*[np.arange(0)] * 6, sha256="toy", available=0), **parts)

    def case(self, count: int = 1500, threat: ThreatModel = THREATS["train"], **options: Any) -> Case:
        return Case(self.subject(count, **options), threat)


Draw = Callable[[np.random.Generator, int], tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]


@dataclass(frozen=True)
class Law(Toy):
    """Images of any law with labels: ``draw`` gives deviations from ½, [n, d], and labels.

    In `classes`, the law inside each class is normal: ``covariance`` is [C, d, d] and ``means`` [C, d].
    """

    draw: Draw | None = None
    means: np.ndarray[Any, Any] | None = None

    @classmethod
    def classes(cls, seed: int, side: int, features: int, num_classes: int, std: float, apart: float = 0.5) -> Law:
        """Normal inside each class, with a mean and a covariance of its own."""
        rng, pixels = np.random.default_rng(seed), side * side
        bases = [np.linalg.qr(rng.normal(size=(pixels, pixels)))[0] for _ in range(num_classes)]
        roots = np.array([0.1 * base * 10 ** rng.uniform(-1, 0, pixels) for base in bases])
        means = apart * rng.normal(size=(num_classes, pixels)) / pixels**0.5

        def draw(rng: np.random.Generator, count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
            labels = rng.integers(num_classes, size=count)
            return means[labels] + np.einsum("nij,nj->ni", roots[labels], rng.normal(size=(count, pixels))), labels

        matrix = rng.normal(size=(features, pixels)) / pixels**0.5
        return cls(roots @ roots.transpose(0, 2, 1), matrix, std, num_classes, draw, means)

    @property
    def pixels(self) -> int:
        return int(self.matrix.shape[1])

    def images(self, count: int, seed: int) -> DeviceData:
        assert self.draw is not None
        away, labels = self.draw(np.random.default_rng(seed), count)
        side = round(self.pixels**0.5)
        return FloatImages(torch.from_numpy(0.5 + away).float().view(count, 1, side, side), torch.from_numpy(labels))

    @property
    def _seen(self) -> np.ndarray[Any, Any]:
        """Covariances of z inside the classes."""
        return self.matrix @ self.covariance @ self.matrix.T + self.std**2 * np.eye(len(self.matrix))

    def beyond(self, releases: int = 1) -> float:
        """I(x; z | y) of normal classes: the mean of ½ log det(1 + A Σ_c Aᵀ k/σ²)."""
        less = replace(self, std=self.std / releases**0.5)
        return float(np.mean(0.5 * np.linalg.slogdet(less._seen / less.std**2)[1]))

    def whole(self, draws: int = 40_000) -> float:
        """I(x; z) of normal classes: the mean of −log p(z) over draws, minus the noise's entropy."""
        assert self.draw is not None and self.means is not None
        rng = np.random.default_rng(99)
        z = self.draw(rng, draws)[0] @ self.matrix.T + self.std * rng.normal(size=(draws, len(self.matrix)))
        away = z[:, None] - self.means @ self.matrix.T
        squares = np.einsum("nci,cij,ncj->nc", away, np.linalg.inv(self._seen), away)
        logs = -0.5 * (squares + np.linalg.slogdet(self._seen / self.std**2)[1]) - np.log(self.num_classes)
        return float(-np.logaddexp.reduce(logs, axis=1).mean() - 0.5 * len(self.matrix))


@cache
def _any_encoder() -> OpenRun:
    return open_encoder(nn.Identity(), data={"name": "fashion_mnist_mini"}, channel=[{"name": "identity"}])
