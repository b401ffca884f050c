"""Health figures over several steps: the ratio of gradients, and which classes are penalised.

As in a step, nothing waits for the host until a line is logged.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attncem.base.seeding import make_generator
from attncem.base.types import ConfigError
from attncem.models.client_head import doubt
from attncem.models.split import SplitModel
from attncem.training.engine import Engine, seeded
from attncem.training.health import MOSTLY, OFF
from attncem.training.surrogates import Surrogate

_SMALLEST = 1e-12
"""Smallest divisor: a smaller norm of a gradient counts as this."""


class Latch:
    """In how many batches each class was present and penalised since the last read; updated in place for capture.

    A class penalised in one batch of a hundred counts as off, like one that is never penalised.
    """

    def __init__(self, num_classes: int, device: torch.device) -> None:
        self._seen = torch.zeros(num_classes, dtype=torch.int64, device=device)
        self._penalised = torch.zeros_like(self._seen)

    @property
    def tensors(self) -> list[Tensor]:
        """Tensors that a step changes."""
        return [self._seen, self._penalised]

    def add(self, per_class: Tensor, loss: Tensor) -> None:
        """Add one step: per_class [num_classes], nan for a skipped class; with a loss of 0 (shut off) none counts."""
        self._seen.add_(~per_class.isnan())
        self._penalised.add_((per_class > OFF) & (loss.detach().abs() > OFF))

    def read(self) -> dict[str, float]:
        """Share of the present classes that were hardly ever penalised since the last read; empty without any."""
        off_share = 1 - self._penalised / self._seen  # nan where a class was not present
        seen, off = torch.stack([(self._seen > 0).sum(), (off_share > MOSTLY).sum()]).tolist()
        self.clear()
        return {"latched": off / seen} if seen else {}

    def clear(self) -> None:
        """Reset the counts."""
        self._seen.zero_()
        self._penalised.zero_()


class GradientRatio:
    """‖∇ weight · penalty‖ / ‖∇ cross entropy‖ over the encoder's weights, on one batch.

    It works on copies of the networks and the surrogate, with separate random numbers: weights, buffers (batch norm,
    running gates), gradients and generators of the run do not change, bit for bit.
    """

    def __init__(
        self, engine: Engine, model: SplitModel, surrogate: Surrogate, seed: int, *, label_smoothing: float = 0.0
    ) -> None:
        self._engine, self._model, self._surrogate, self._seed = engine, model, surrogate, seed
        self._label_smoothing = label_smoothing
        try:
            self._copies()
        except (TypeError, RuntimeError) as error:
            raise ConfigError(
                f"training.gradient_ratio_every is above 0, but the network cannot be copied ({error}): set it to 0"
            ) from error

    def _copies(self) -> tuple[SplitModel, Surrogate]:
        encoder, server = copy.deepcopy(self._model.encoder), copy.deepcopy(self._model.server)
        model = SplitModel(encoder, self._model.channel, server, head=copy.deepcopy(self._model.head))
        return model.train(self._model.training), copy.deepcopy(self._surrogate)

    def measure(self, x: Tensor, y: Tensor, weight: Tensor, step: int) -> Tensor:
        """The ratio as a scalar on the device; ``weight`` is the penalty weight of this step."""
        device = self._engine.device
        with seeded(device, self._seed, "gradient ratio", step):
            model, surrogate = self._copies()
            noise = make_generator(device, self._seed, "gradient ratio noise", step)
            with self._engine.autocast():
                z, answers = (model.encode(x), None) if model.head is None else model.look(x)
                logits = model.predict(model.transmit(z, x, noise)).float()
                ce = F.cross_entropy(logits, y, label_smoothing=self._label_smoothing)
            doubts = None if answers is None or not surrogate.weighs else doubt(answers)
            penalty = weight * surrogate.penalise(surrogate.prepare(z, y, doubts=doubts)).loss
            return _gradient_norm(penalty, model.encoder) / _gradient_norm(ce, model.encoder).clamp_min(_SMALLEST)


def _gradient_norm(loss: Tensor, module: nn.Module) -> Tensor:
    """Norm of the loss's gradient over all weights of the module; the graph is kept."""
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    found = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
    norms = [gradient.float().norm() for gradient in found if gradient is not None]
    return torch.stack(norms).norm() if norms else torch.zeros((), device=loss.device)
