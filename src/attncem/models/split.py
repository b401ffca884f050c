"""SplitModel: the only definition of the data that leaves the client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from attncem.models.client_head import ClientHead, Look, confidence

if TYPE_CHECKING:
    from attncem.models.channels import Source


class SplitModel(nn.Module):
    """Client encoder, channel and server half. `server` is None for a foreign encoder under audit.

    The channel is one of ours, or any module from z to the release. With a `head` the client answers itself where the
    head's confidence is above `threshold`, and sends the other images.
    """

    on_device: bool = False
    """Whether both halves run on the client, so that nothing is released."""

    def __init__(
        self,
        encoder: nn.Module,
        channel: nn.Module,
        server: nn.Module | None,
        *,
        on_device: bool = False,
        head: ClientHead | None = None,
        threshold: float = 1.0,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.channel = channel
        self.server = server
        self.on_device = on_device
        self.head = head
        self.threshold = threshold

    def encode(self, x: Tensor) -> Tensor:
        """The clean feature z of images x in [0, 1]; normalisation happens inside the encoder."""
        z: Tensor = self.encoder(x)
        return z

    def look(self, x: Tensor) -> Look:
        """The clean feature z of images, and the logits of the client's head."""
        if self.head is None:
            raise ValueError("this client has no head: it sends every image")
        return self.head.look(self.encoder, x)

    def sends(self, answers: Tensor) -> Tensor:
        """Which images are sent, from the head's logits: those whose confidence is at most the threshold."""
        return confidence(answers) <= self.threshold

    def transmit(self, z: Tensor, x: Tensor | None = None, generator: Source = None) -> Tensor:
        """The release of a clean feature: channel(z). `generator`: source of its noise."""
        if not getattr(self.channel, "takes_context", False):
            plain: Tensor = self.channel(z)
            return plain
        released: Tensor = self.channel(z, x=x, generator=generator)
        return released

    def release(self, x: Tensor, *, copies: int = 1, generator: Source = None) -> Tensor:
        """The adversary's observation: [B, …], or [B, copies, …] for several releases of each input."""
        if copies < 1:
            raise ValueError(f"copies must be at least 1, got {copies}")
        z = self.encode(x)
        if copies == 1:
            return self.transmit(z, x, generator)
        repeated = self.transmit(z.repeat_interleave(copies, 0), x.repeat_interleave(copies, 0), generator)
        return repeated.view(len(x), copies, *repeated.shape[1:])

    def predict(self, released: Tensor) -> Tensor:
        """The server's logits."""
        if self.server is None:
            raise ValueError("this model has no server half: it was built around an encoder alone")
        logits: Tensor = self.server(released)
        return logits

    def forward(self, x: Tensor, generator: Source = None) -> Tensor:
        """Logits through client, channel and server; with a head, its logits for the images that are not sent."""
        if self.head is None:
            return self.predict(self.release(x, generator=generator))
        z, answers = self.look(x)
        logits = self.predict(self.transmit(z, x, generator)).to(answers.dtype)
        return torch.where(self.sends(answers).unsqueeze(1), logits, answers)


@contextmanager
def evaluation(model: nn.Module) -> Iterator[None]:
    """Evaluation mode; restores the mode of every module afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def feature_shape(encoder: nn.Module, image_shape: tuple[int, int, int]) -> tuple[int, ...]:
    """Shape of z for one image, from a blank batch in evaluation mode."""
    was_training = encoder.training
    encoder.eval()
    try:
        parameter = next(encoder.parameters(), None)
        device = parameter.device if parameter is not None else torch.device("cpu")
        with torch.no_grad():
            z = encoder(torch.zeros(2, *image_shape, device=device))
    finally:
        encoder.train(was_training)
    if not isinstance(z, Tensor) or z.ndim < 2 or len(z) != 2:
        raise ValueError(f"the encoder must map [B, {image_shape}] to a tensor [B, …], got {type(z).__name__}")
    return tuple(z.shape[1:])


def passes_gradients(module: nn.Module) -> bool:
    """Whether a gradient passes all modules; it does not pass modules of other libraries."""
    return all(getattr(part, "passes_gradients", True) for part in module.modules())


def count_parameters(module: nn.Module | None) -> int:
    """Number of parameters; 0 for None."""
    return sum(p.numel() for p in module.parameters()) if module is not None else 0
