"""A decoder that uses a copy of the client's front end: the part of an image that a client removes is no secret."""

from __future__ import annotations

import json
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attncem.config.options.attacks import DecoderOptions, InformedOptions
from attncem.judging.attacks.base import State
from attncem.judging.attacks.decoder import ConvergingDecoder, DecoderTraining, Material, shared_options
from attncem.judging.attacks.decoding import Shape
from attncem.judging.oracle import Oracle
from attncem.models.decoders import InformedDecoder
from attncem.models.front_ends import FrontEnd, described, from_description, front_end_of
from attncem.training.capture import Function
from attncem.training.engine import seeded


class InformedAttack(ConvergingDecoder):
    """`InformedDecoder`, trained as `decoder` is, with a second target of small weight.

    The second target is the picture that the encoder sees. If the client removes nothing, it is the image itself.
    """

    options_type = InformedOptions
    options: InformedOptions
    needs = frozenset({"images", "queries", "encoder"})
    stage = "informed"

    def training_options(self) -> DecoderOptions:
        """The options that it shares with `decoder`."""
        return shared_options(self.options)

    def begin(self, oracle: Oracle, options: DecoderOptions, seed: int) -> InformedTraining:
        """A decoder around a copy of the client's front end."""
        self._front_end = front_end_of(oracle.encoder())
        return InformedTraining(InformedMaterial(oracle, options, seed, self._front_end, self.options.picture))

    def blank(self, feature_shape: Shape, image_shape: Shape, state: State) -> nn.Module:
        """A decoder around the same front end."""
        facts = json.loads(bytes(state["front_end"].tolist()))
        self._front_end = None if facts is None else from_description(facts)
        return _decoder(feature_shape, image_shape, self._front_end)

    def state(self) -> State:
        """The decoder's weights, and the encoded description of the front end."""
        facts = None if self._front_end is None else described(self._front_end)
        return {**super().state(), "front_end": torch.tensor(list(json.dumps(facts).encode()), dtype=torch.uint8)}


class InformedMaterial(Material):
    """Training data with the front end, and the weight of the picture that the front end leaves."""

    def __init__(
        self, oracle: Oracle, options: DecoderOptions, seed: int, front_end: FrontEnd | None, picture: float
    ) -> None:
        super().__init__(oracle, options, seed)
        self.front_end, self.picture = front_end, picture


class InformedTraining(DecoderTraining):
    """An informed decoder in training."""

    material: InformedMaterial

    def _new_decoder(self) -> nn.Module:
        material = self.material
        with seeded(material.device, material.seed, "decoder init"):
            return self.engine.place(_decoder(material.held_z.shape[1:], material.x.shape[1:], material.front_end))

    @property
    def function(self) -> Function:
        """The image, and the picture that the encoder sees."""
        return cast(InformedDecoder, self.decoder).both

    def _loss(self, decode: Function, released: Tensor, target: Tensor) -> Tensor:
        with self.engine.autocast():
            images, seen = decode(released)
        picture = cast(InformedDecoder, self.decoder).front_end(target)
        off = F.mse_loss(seen, picture) / picture.square().mean().clamp_min(1e-6)
        loss: Tensor = F.mse_loss(images, target) + self.material.picture * off
        return loss


def _decoder(feature_shape: Shape, image_shape: Shape, front_end: FrontEnd | None) -> nn.Module:
    inside = nn.Identity() if front_end is None else front_end
    return InformedDecoder(tuple(feature_shape), tuple(image_shape), inside)  # type: ignore[arg-type]
