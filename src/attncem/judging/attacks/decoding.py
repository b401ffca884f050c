"""What attacks with a decoder share after training: reconstruction, saving and loading."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from attncem.judging.attacks.base import Attack, Standardiser, State
from attncem.training.engine import Engine

Shape = tuple[int, ...]


class DecodingAttack(Attack):
    """Recovers images by a decoder of standardised releases; subclasses train the decoder."""

    _decoder: nn.Module
    _standardise: Standardiser
    _image_shape: Shape

    @abstractmethod
    def blank(self, feature_shape: Shape, image_shape: Shape, state: State) -> nn.Module:
        """An untrained decoder of the architecture that gave this state; `load` copies the weights into it."""

    @property
    def decoder(self) -> nn.Module:
        """The trained decoder."""
        return self._decoder

    @torch.no_grad()
    def reconstruct(self, released: Tensor) -> Tensor:
        """Decoded images, in evaluation mode."""
        images: Tensor = self._decoder(self._standardise(released))
        return images

    def state(self) -> State:
        """The decoder's weights and the standardiser of releases."""
        own = {f"decoder.{name}": tensor for name, tensor in self._decoder.state_dict().items()}
        shape = torch.tensor(self._image_shape)
        return {**own, "mean": self._standardise.mean, "std": self._standardise.std, "image_shape": shape}

    def network(self) -> nn.Module:
        """Standardiser and decoder."""
        return Standardised(self._standardise, self._decoder)

    def load(self, state: State) -> None:
        """Build a decoder of the same architecture with these weights."""
        mean, image_shape = state["mean"], tuple(state["image_shape"].tolist())
        with torch.random.fork_rng(devices=[]):
            decoder = self.blank(tuple(mean.shape), image_shape, state)
        own = {name.removeprefix("decoder."): t for name, t in state.items() if name.startswith("decoder.")}
        decoder.load_state_dict(own)
        self._decoder, self._image_shape = Engine(mean.device).place(decoder).eval(), image_shape
        self._standardise = Standardiser(mean, state["std"])


class Standardised(nn.Module):
    """A decoder behind its standardiser."""

    def __init__(self, standardise: Standardiser, decoder: nn.Module) -> None:
        super().__init__()
        self.standardise, self.decoder = standardise, decoder

    def forward(self, released: Tensor) -> Tensor:
        """Images of releases."""
        images: Tensor = self.decoder(self.standardise(released))
        return images
