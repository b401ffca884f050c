"""The release oracle of a split model: all that an attack may touch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attncem.models.split import SplitModel
from attncem.seeding import make_generator
from attncem.types import Batches, Forbidden, ThreatModel

_BATCH = 500


class ModelOracle:
    """Releases of a split model in evaluation mode, through its true channel, under a threat model."""

    def __init__(
        self, model: SplitModel, threat: ThreatModel, x: Tensor, y: Tensor, *, num_classes: int, seed: int = 0
    ) -> None:
        self.threat = threat
        self.num_classes = num_classes
        self._model = model.eval()
        self._x, self._y = x, y
        self._noise = make_generator(x.device, seed, "oracle")
        self._features: Tensor | None = None

    def auxiliary(self) -> Batches:
        """The images and labels that the attacker owns, as one batch."""
        return [(self._x, self._y)]

    @torch.no_grad()
    def release(self, x: Tensor, *, copies: int = 1) -> Tensor:
        """Fresh releases of any images."""
        parts = [self._model.release(part, copies=copies, generator=self._noise) for part in x.split(_BATCH)]
        return torch.cat(parts)

    @torch.no_grad()
    def release_auxiliary(self, index: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Fresh releases of auxiliary images; their clean features are computed once and kept."""
        if self._features is None:
            self._features = torch.cat([self._model.encode(part) for part in self._x.split(_BATCH)])
        return self._model.transmit(self._features[index], self._x[index], generator or self._noise)

    @torch.no_grad()
    def predict(self, released: Tensor) -> Tensor | None:
        """The server's logits; None without a server half."""
        return None if self._model.server is None else self._model.predict(released)

    def encoder(self) -> nn.Module:
        """The victim's encoder, for white-box attacks."""
        if not self.threat.knows_encoder:
            raise Forbidden(f"the threat model {self.threat.name} does not know the encoder")
        return self._model.encoder
