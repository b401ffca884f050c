"""Base of all surrogates: a module from clean features and labels to a penalty."""

from __future__ import annotations

import abc
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from attncem.base.types import ConfigError, SurrogateOutput
from attncem.config.options.surrogate_base import MemoryOptions, SurrogateOptions
from attncem.training.surrogates import moments
from attncem.training.surrogates.floor import VarianceFloor
from attncem.training.surrogates.memory import ClassMemory
from attncem.training.surrogates.moments import Groups

PAIR = 2
"""Smallest number of samples with a spread."""


class Batch(NamedTuple):
    """Input of a surrogate: z in float32 or float64, y int64, including rows from memory; and its random draws.

    ``doubts`` [B] are those of the client's head about each sample, for a surrogate that weighs samples by them.
    """

    z: Tensor
    y: Tensor
    noise: Any
    doubts: Tensor | None = None


class Surrogate(nn.Module, abc.ABC):
    """An estimate of the spread of z inside a class, H(z | y), as a differentiable penalty.

    ``forward(z, y)`` takes z [B, *feature_shape] and y [B] and never waits for the host: shapes are static, all state
    is in buffers, no loop runs over classes. A label outside 0 … num_classes − 1 belongs to no class; its sample counts
    as skipped. A subclass implements ``_evaluate`` and, if it has weights that learn, ``_fit``. With a ``memory``, the
    stored samples of the batch's classes follow the batch: they have no gradient and count in no share.
    """

    options_type: ClassVar[type[SurrogateOptions]] = SurrogateOptions
    needs_refresh: ClassVar[bool] = False
    """Whether ``refresh`` must run once before the penalty has a meaning."""
    part: ClassVar[str] = ""
    """The parts of a class: slot, cluster, component; empty if there are none."""
    caution: str = ""
    """One sentence about a measured failure of these options; empty if none is known."""
    generator: torch.Generator | None = None
    """Source of a surrogate's random draws; None: torch's global generator."""

    def __init__(
        self,
        options: SurrogateOptions,
        *,
        feature_shape: Sequence[int],
        num_classes: int,
        noise_std: float,
    ) -> None:
        super().__init__()
        self.options = options
        self.feature_shape = tuple(int(size) for size in feature_shape)
        self.num_features = math.prod(self.feature_shape)
        self.num_classes = int(num_classes)
        self.noise_std = float(noise_std)
        self.weighs = getattr(options, "sample_weights", "uniform") == "doubt"
        """Whether it weighs samples by the doubt of the client's head; no property: torch.compile cannot trace one."""
        self._check_construction()
        given: MemoryOptions | None = getattr(options, "memory", None)
        sizes = {"num_classes": self.num_classes, "num_features": self.num_features}
        self.memory = None if given is None else ClassMemory(given, **sizes)

    @abc.abstractmethod
    def _evaluate(self, z: Tensor, y: Tensor, noise: Any) -> SurrogateOutput:
        """The penalty of one checked batch: z [B, *feature_shape] in float32 or float64, y [B] int64."""

    def _fit(self, z: Tensor, y: Tensor, noise: Any) -> Tensor | None:
        """Loss of the surrogate's weights on the same batch, z detached; None if it has none, or they do not learn."""
        return None

    def _evaluate_weighted(self, z: Tensor, y: Tensor, noise: Any, doubts: Tensor | None) -> SurrogateOutput:
        """As ``_evaluate``, for a surrogate with sample_weights=doubt."""
        raise NotImplementedError

    def _fit_weighted(self, z: Tensor, y: Tensor, noise: Any, doubts: Tensor | None) -> Tensor | None:
        """As ``_fit``, for a surrogate with sample_weights=doubt."""
        return None

    @property
    def fit_reads_penalty(self) -> bool:
        """Whether ``_fit`` reads the output of ``_evaluate`` and must follow it."""
        return False

    def forward(
        self, z: Tensor, y: Tensor, *, noise: Tensor | None = None, doubts: Tensor | None = None
    ) -> SurrogateOutput:
        """Penalty of the batch; ``noise`` replaces the surrogate's random draws, if it has any.

        ``doubts`` [B] are those of the client's head, for `weighs`.
        """
        batch = self.share(self.prepare(z, y, noise=noise, doubts=doubts))
        output, fit_loss = self.penalise(batch), self.fit(batch)
        return output if fit_loss is None else replace(output, fit_loss=fit_loss)

    def prepare(self, z: Tensor, y: Tensor, *, noise: Tensor | None = None, doubts: Tensor | None = None) -> Batch:
        """The input of ``penalise`` and ``fit``, which may run in parallel and be compiled."""
        self._check_batch(z, y)
        if self.weighs and (doubts is None or doubts.shape != y.shape):
            raise ValueError("sample_weights=doubt needs the doubt of the client's head about each sample, [B]")
        z, y = in_statistics_precision(z), y.long()
        if self.memory is None:
            return Batch(z, y, self._draw(noise, z, y), None if doubts is None else doubts.detach().to(z.dtype))
        recalled, labels = self.memory.recall(y, z)
        rows, joined = torch.cat([z, recalled.view(-1, *self.feature_shape)]), torch.cat([y, labels])
        if self.training:
            self.memory.store(z.detach().flatten(1), y)
        return Batch(rows, joined, self._draw(noise, rows, joined))

    def _draw(self, noise: Tensor | None, z: Tensor, y: Tensor) -> Any:
        """The noise for ``_evaluate`` and ``_fit``: the argument, or the surrogate's draw."""
        return noise

    def share(self, batch: Batch) -> Batch:
        """Add to the batch the values that both ``penalise`` and ``fit`` need; may be compiled too.

        It makes a new ``Batch``: compiled by torch 2.11, ``_replace`` returns one without its fields.
        """
        return batch

    def penalise(self, batch: Batch) -> SurrogateOutput:
        """The penalty alone."""
        with exact_arithmetic(batch.z):
            if self.weighs:
                return self._evaluate_weighted(batch.z, batch.y, batch.noise, batch.doubts)
            return self._evaluate(batch.z, batch.y, batch.noise)

    def fit(self, batch: Batch) -> Tensor | None:
        """The loss of the surrogate's weights alone."""
        with exact_arithmetic(batch.z):
            if self.weighs:
                return self._fit_weighted(batch.z.detach(), batch.y, batch.noise, batch.doubts)
            return self._fit(batch.z.detach(), batch.y, batch.noise)

    def _groups(self, y: Tensor, dtype: torch.dtype) -> Groups:
        """Groups of the labels for ``_evaluate`` and ``_fit``; a class with one sample has no spread."""
        num_own = None if self.memory is None else self.memory.num_own(len(y))
        return moments.group_by_class(y, self.num_classes, dtype, num_own=num_own, smallest=PAIR)

    def set_epoch(self, epoch: float) -> None:
        """Set scheduled options to their values ``epoch`` (fractional) epochs after the warm-up."""
        for module in self.modules():
            if isinstance(module, VarianceFloor):
                module.set_epoch(epoch)

    def set_penalised(self, on: bool) -> None:
        """Set whether the penalty has weight in the next steps; only counters of such steps need it."""

    @property
    def num_variances(self) -> int:
        """Number of variances per class in the mean ``plain_loss``; their product is the total per sample."""
        return self.num_features

    def refresh(self, features: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Refit stored state on (z, y) pairs of the whole training set; most surrogates have none."""

    def epoch_record(self) -> dict[str, Any]:
        """Facts about the stored state after ``refresh``, for the log; empty for most surrogates."""
        return {}

    def _checked(self, features: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        """The pairs given to ``refresh``, each with the shape of a batch."""
        for z, y in features:
            self._check_batch(z, y)
            yield z, y

    @torch.no_grad()
    def explain(self, z: Tensor, y: Tensor, *, doubts: Tensor | None = None) -> dict[str, Tensor]:
        """The treatment of each sample of a batch, row by row; empty where all samples of a class are treated alike.

        ``doubts`` [B] for `weighs`; without them samples are treated as if the client doubted all of them alike.

        ``attention`` [B]: weight inside its class; ``shares`` [B, K]: its share in each part of its class, all 0 where
        its class is not divided; ``gate_…`` [B, …]: the gates of its class; ``slot_gate_…`` [B, …]: the gates of its
        slots, separate where both exist, and all 0 where its class is not divided.
        """
        self._check_batch(z, y)
        with exact_arithmetic(z):
            if self.weighs:
                rows = in_statistics_precision(z)
                return self._explain_weighted(rows, y.long(), None if doubts is None else doubts.to(rows.dtype))
            return self._explain(in_statistics_precision(z), y.long())

    def _explain(self, z: Tensor, y: Tensor) -> dict[str, Tensor]:
        return {}

    def _explain_weighted(self, z: Tensor, y: Tensor, doubts: Tensor | None) -> dict[str, Tensor]:
        """As ``_explain``, for a surrogate with sample_weights=doubt."""
        return self._explain(z, y)

    def _output(
        self,
        per_group: Tensor,
        keep: Tensor,
        groups: Groups,
        plain_variance: Tensor,
        *,
        extra: Mapping[str, Tensor] | None = None,
    ) -> SurrogateOutput:
        """Σ p_c L_c over the groups kept, with p_c = m_c / B, and the diagnostics of every surrogate."""
        loss = moments.share_weighted_sum(per_group, keep, groups)
        return self._report(loss, per_group, keep, groups, plain_variance, extra=extra)

    def _report(
        self,
        loss: Tensor,
        per_group: Tensor,
        keep: Tensor,
        groups: Groups,
        plain_variance: Tensor,
        *,
        extra: Mapping[str, Tensor] | None = None,
    ) -> SurrogateOutput:
        """Wrap a loss with the per-class values and the diagnostics of every surrogate.

        ``plain_variance`` is the unweighted variance [G, D] of raw z; its mean over D is MSE_c.
        """
        kept_share = moments.share_weighted_sum(torch.ones_like(groups.counts), keep, groups)
        diagnostics = {
            "rob_loss": loss.detach(),
            "intra_mse": moments.share_weighted_sum(plain_variance.detach().mean(1), keep, groups),
            "skipped": 1 - kept_share,
            **{name: value.detach() for name, value in (extra or {}).items()},
            **self._scheduled(),
        }
        if self.memory is not None:
            diagnostics["recalled"] = (groups.counts - groups.own_counts).sum() / groups.batch_size
        per_class = moments.scatter_to_classes(per_group.detach(), keep, groups, self.num_classes)
        return SurrogateOutput(loss, None, per_class, diagnostics)

    def _scheduled(self) -> dict[str, Tensor]:
        """Current value of a scheduled floor."""
        floor = getattr(self, "floor", None)
        if not isinstance(floor, VarianceFloor) or floor.schedule is None:
            return {}
        return {"variance_floor": floor.current.clone()}

    def _check_construction(self) -> None:
        if not self.feature_shape or min(self.feature_shape) < 1:
            raise ConfigError(f"feature_shape must be positive sizes such as (8, 8, 8), got {self.feature_shape}")
        if self.num_classes < 1:
            raise ConfigError(f"num_classes must be at least 1, got {self.num_classes}")
        if not (math.isfinite(self.noise_std) and self.noise_std >= 0):
            raise ConfigError(f"noise_std must be finite and at least 0, got {self.noise_std}")
        key = self.options.relative_floor_key()
        if key is not None and self.noise_std == 0:
            raise ConfigError(
                f"noise_std=0 cannot be combined with {key}, which is measured in units of noise_std²: "
                "the penalty would never switch off; set noise_std above 0 or choose an absolute floor"
            )

    def _check_batch(self, z: Tensor, y: Tensor) -> None:
        if tuple(z.shape[1:]) != self.feature_shape or z.dim() < 2:
            expected = ", ".join(["B", *map(str, self.feature_shape)])
            raise ValueError(f"z: expected shape [{expected}], got {list(z.shape)}")
        if not z.is_floating_point():
            raise ValueError(f"z: expected a floating-point tensor, got {z.dtype}")
        if z.shape[0] == 0:
            raise ValueError("z: expected at least one sample, got an empty batch")
        if y.shape != z.shape[:1]:
            raise ValueError(f"y: expected shape [{z.shape[0]}] (one label a sample of z), got {list(y.shape)}")
        if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
            raise ValueError(f"y: expected integer labels, got {y.dtype}")


def in_statistics_precision(z: Tensor) -> Tensor:
    """The features in float32, or float64 if they already are: lower precision loses a compact class's variance."""
    return z if z.dtype == torch.float64 else z.float()


def own_weight(parameter: Tensor, *, live: bool, like: Tensor) -> Tensor:
    """A weight of the surrogate in the precision of ``like``: with a gradient, or as a constant."""
    return (parameter if live else parameter.detach()).to(like.dtype)


def own_linear(layer: nn.Linear, x: Tensor, *, live: bool, scale: Tensor | None = None) -> Tensor:
    """A surrogate's linear layer, times ``scale``, with or without a gradient for its weights.

    The scale is part of the weights, so that its gradient needs the weights and not the layer's output.
    """
    own = [own_weight(parameter, live=live, like=x) for parameter in layer.parameters()]
    return linear(x, *(own if scale is None else [scale * weight for weight in own]))


@contextmanager
def exact_arithmetic(z: Tensor) -> Iterator[None]:
    """Autocast off, and TF32 off on CUDA: it rounds to 10 bits, which is visible in the log of a small variance.

    A compiled graph keeps the precision of its compilation.
    """
    with torch.autocast(z.device.type, enabled=False):
        if not z.is_cuda or torch.compiler.is_compiling():
            yield
            return
        matmul = torch.backends.cuda.matmul
        before = matmul.fp32_precision
        matmul.fp32_precision = "ieee"
        try:
            yield
        finally:
            matmul.fp32_precision = before
