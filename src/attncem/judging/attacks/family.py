"""A family of decoders: how the error falls with the decoder's width and with the number of the attacker's images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor, nn

from attncem.base.texts import written
from attncem.config.options.attacks import DecoderOptions, FamilyOptions
from attncem.judging.attacks.base import State
from attncem.judging.attacks.convergence import Converged, until_converged
from attncem.judging.attacks.decoder import DecoderTraining, Material, shared_options
from attncem.judging.attacks.decoding import DecodingAttack, Shape
from attncem.judging.oracle import Oracle
from attncem.models.decoders import GlobalDecoder
from attncem.models.split import count_parameters
from attncem.records.audit import FamilyPoint
from attncem.records.findings import Finding, finding
from attncem.training.engine import Engine, seeded

MORE_IMAGES = 0.05
"""An attack lacks images if twice the images would lower its error by more than this share."""
MORE_WIDTH = 0.02
"""The same limit for twice the width."""


class FamilyAttack(DecodingAttack):
    """Global decoders of several widths, each trained on several parts of the attacker's images; the best one is used.

    All are validated on the same held-out images, from which none of them learns, and the parts are nested. The curve
    shows how the error would change with more images or more width: where it still falls steeply, the strongest attack
    was not among them.
    """

    options_type = FamilyOptions
    options: FamilyOptions
    must_beat = ("ridge",)

    def fit(self, oracle: Oracle, *, seed: int) -> None:
        """Train every member until it converges and keep the best."""
        best, least, points = None, math.inf, list[FamilyPoint]()
        for width, fraction in product(self.options.widths, self.options.fractions):
            material = PartMaterial(oracle, shared_options(self.options), seed, fraction)
            found = self._member(material, width)
            error, _ = found.best.validate()
            points.append(FamilyPoint(width, fraction, len(material.train), error))
            if error < least:
                best, least, chosen = found, error, points[-1]
        assert best is not None
        self._decoder, self._standardise = best.best.final.eval(), best.best.material.standardise
        self._image_shape, self._width = oracle.image_shape, chosen.width
        self.findings = [*best.findings, *doubts(points, chosen)]
        told = {"width": float(chosen.width), "fraction": chosen.fraction}
        self.verdict = replace(best.verdict, reliable=not self.findings, family=points, chosen=told)

    def _member(self, material: PartMaterial, width: int) -> Converged[DecoderTraining]:
        """A decoder of this width, trained on these images until it converges."""
        shapes = tuple(material.held_z.shape[1:]), tuple(material.x.shape[1:])
        with seeded(material.device, material.seed, "family"):
            decoder = Engine(material.device).place(GlobalDecoder(*shapes, width=width))  # type: ignore[arg-type]
            return until_converged(
                DecoderTraining(material, decoder),
                DecoderTraining.copied,
                self.options,
                name=written("stage.part.family", width=width, images=len(material.train)),
                num_parameters=count_parameters(decoder),
                progress=self.progress,
            )

    def blank(self, feature_shape: Shape, image_shape: Shape, state: State) -> nn.Module:
        """A decoder of the chosen width."""
        self._width = int(state["width"])
        return GlobalDecoder(feature_shape, image_shape, width=self._width)  # type: ignore[arg-type]

    def state(self) -> State:
        """The best decoder's weights, and its width."""
        return {**super().state(), "width": torch.tensor(self._width)}


class PartMaterial(Material):
    """Training on a part of the attacker's images; the held-out images are the same for every part."""

    def __init__(self, oracle: Oracle, options: DecoderOptions, seed: int, fraction: float) -> None:
        self._fraction = fraction
        super().__init__(oracle, options, seed)

    def _divided(self) -> tuple[Tensor, Tensor]:
        train, held = super()._divided()
        return train[: max(1, round(self._fraction * len(train)))], held


def doubts(points: Sequence[FamilyPoint], best: FamilyPoint) -> list[Finding]:
    """Findings where more images or more width would have helped, by the last two points of either curve."""
    images = [(float(point.images), point.validation_error) for point in points if point.width == best.width]
    most = max(point.images for point in points)
    widths = [(float(point.width), point.validation_error) for point in points if point.images == most]
    found = []
    if (gain := gain_of_doubling(images)) > MORE_IMAGES:
        found.append(finding("more_images_help", images=most, gain=100 * gain))
    if (gain := gain_of_doubling(widths)) > MORE_WIDTH:
        found.append(finding("more_width_helps", width=max(point.width for point in points), gain=100 * gain))
    return found


def gain_of_doubling(curve: Sequence[tuple[float, float]]) -> float:
    """Share of the error that a doubling removes, by the power law through the last two points; else 0."""
    errors = dict(sorted(curve))
    if len(errors) < 2:
        return 0.0
    (size, error), (larger, less) = list(errors.items())[-2:]
    if error <= 0 or less <= 0:
        return 0.0
    return 1 - math.pow(less / error, 1 / math.log2(larger / size))
