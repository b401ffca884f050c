"""A decoder trained together with the model, and a penalty where it recovers too much (ARL, ResSFL)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from attncem.base.types import StepView
from attncem.config.options.penalties import AdversarialOptions
from attncem.models.decoders import PublishedDecoder
from attncem.records.metrics import mse, ssim
from attncem.training.engine import adam, set_rate
from attncem.training.penalties.base import Penalty


class AdversarialDecoder(Penalty):
    """relu(SSIM(decoder(z), x) − threshold), or relu(threshold − MSE): a penalty on good reconstructions.

    The decoder trains in training mode on detached features of training batches; the term uses it in evaluation mode
    with constant weights.
    """

    options_type = AdversarialOptions
    options: AdversarialOptions

    def __init__(
        self,
        options: AdversarialOptions,
        *,
        feature_shape: tuple[int, ...],
        image_shape: tuple[int, int, int],
        **rest: Any,
    ) -> None:
        super().__init__(options, feature_shape=feature_shape, image_shape=image_shape, **rest)
        decoder = PublishedDecoder(feature_shape, image_shape, width=options.width, blocks=options.blocks)
        self.decoder = self.engine.place(decoder)
        self.optimizers["decoder"] = adam(self.decoder.parameters(), options.lr, self.engine.device)
        self.register_buffer("fitted", torch.zeros((), device=self.engine.device))
        self._position = 0

    @property
    def static(self) -> bool:
        """False if batches are skipped: the host decides this, to save their cost."""
        return self.options.every == 1

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        """Set the weight and the decoder's learning rate; reset the batch counter."""
        super().begin_epoch(epoch, epochs)
        drops = sum(epoch / epochs >= milestone for milestone in self.options.lr_milestones)
        set_rate(self.optimizers["decoder"], self.options.lr * self.options.lr_factor**drops)
        self._position = 0

    def inner_step(self, step: StepView) -> None:
        """Train the decoder on this batch; its loss before the last step is kept for the diagnostics."""
        due = self._position % self.options.every == 0
        self._position += 1
        if due:
            x, feature = step.x.detach(), self.feature(step).detach()
            self.decoder.train()
            for _ in range(self.options.steps):
                self._fit(x, feature)

    def _fit(self, x: Tensor, feature: Tensor) -> None:
        # A context for each step: autocast keeps its low-precision copies of weights until a context ends.
        with self.engine.autocast():
            images = self.decoder(feature)
        recovered = self._recovered(images, x)
        loss = 1 - recovered if self.options.loss == "ssim" else recovered
        self.engine.descend(loss, [self.optimizers["decoder"]])
        self.get_buffer("fitted").copy_(loss.detach())

    def evaluate(self, x: Tensor, feature: Tensor, y: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The term, the decoder's score, and its training loss."""
        self.decoder.eval()
        constants = {name: weight.detach() for name, weight in self.decoder.named_parameters()}
        with self.engine.autocast():
            images = functional_call(self.decoder, constants, (feature,))
        recovered = self._recovered(images, x)
        excess = recovered - self.options.limit if self.options.loss == "ssim" else self.options.limit - recovered
        term = excess.relu()
        told = {self.options.loss: recovered, "excess": term, "decoder_loss": self.get_buffer("fitted").clone()}
        return term, {f"adversarial_{name}": value for name, value in told.items()}

    def _recovered(self, images: Tensor, x: Tensor) -> Tensor:
        """SSIM, padded as the baseline's, or MSE, over the batch; outside autocast."""
        with torch.autocast(x.device.type, enabled=False):
            images = images.to(x.dtype)
            values = ssim(images, x, zero_pad=True) if self.options.loss == "ssim" else mse(images, x)
            return values.mean()
