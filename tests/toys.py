"""Linear-Gaussian toys: images and a release of them whose information and least error are known in closed form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        spec = DatasetSpec("toy", (1, side, side), 1, (0.5,), (0.5,))
        return replace(base, model=model.eval(), spec=spec, reader=lambda: self.data(spec, count))

    def data(self, spec: DatasetSpec, count: int) -> RunData:
        names = ("train", "validation", "held_out", "test", "infer_auxiliary", "infer_evaluation")
        parts = {name: self.images(count if name in ("train", "test") else 40, seed) for seed, name in enumerate(names)}
        return RunData(spec, Split(*[np.arange(0)] * 6, sha256="toy", available=0), **parts)

    def case(self, count: int = 1500, threat: ThreatModel = THREATS["train"], **options: Any) -> Case:
        return Case(self.subject(count, **options), threat)


@cache
def _any_encoder() -> OpenRun:
    return open_encoder(nn.Identity(), data={"name": "fashion_mnist_mini"}, channel=[{"name": "identity"}])
