"""Bits of a release: which stages round, and how many different codes the releases of one image can have.

A code of m values of b bits holds at most m · b · ln 2 nats. Where nothing random precedes the rounding, or where its
noise repeats, all releases of the same pixels have one code, and what follows only loses information: the bound holds
for any number of queries. Otherwise every release may have another code: k times as much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor, nn

from attncem.base.texts import written
from attncem.base.types import NotApplicable
from attncem.judging.certificates.passage import unknown_stage
from attncem.models.channels import Channel
from attncem.models.packing import codes_of_release

if TYPE_CHECKING:
    from attncem.judging.case import Case


@dataclass(frozen=True)
class Rounding:
    """A stage that rounds to codes of ``bits`` bits, at this place of the chain.

    ``repeats``: releases of the same pixels have the same code; ``fixed``: the pixels alone determine it; ``last``: the
    release is the code.
    """

    place: int
    bits: int
    repeats: bool
    fixed: bool
    last: bool


@dataclass(frozen=True)
class Bits:
    """The most nats that the codes of all seen releases of an image hold, and whether more queries add nothing."""

    nats: float
    any_number: bool

    @property
    def assumptions(self) -> list[str]:
        """A single count needs one client that computes all codes; a count of every release needs nothing."""
        return ["one_runtime"] if self.any_number else []


def roundings(channel: nn.Module) -> list[Rounding]:
    """The stages whose codes bound a release: later ones do not read the image again, and no stage is unknown."""
    if not isinstance(channel, Channel) or unknown_stage(channel):
        return []
    stages = list(channel.single_stages())
    return [
        Rounding(
            place,
            stage.bits_per_feature,
            all(one.repeats for one in stages[: place + 1]),
            all(one.draws_nothing for one in stages[: place + 1]),
            stage is stages[-1],
        )
        for place, stage in enumerate(stages)
        if stage.bits_per_feature is not None and not any(later.reads_input for later in stages[place + 1 :])
    ]


def no_code(channel: nn.Module) -> NotApplicable:
    """Says why no stage of a channel has a code that bounds its releases."""
    if (name := unknown_stage(channel)) is not None:
        return NotApplicable(written("reason.law_unknown", name=name))
    assert isinstance(channel, Channel)
    if any(stage.bits_per_feature is not None for stage in channel.single_stages()):
        return NotApplicable(written("reason.read_again"))
    return NotApplicable(written("reason.not_quantised"))


def code_of(channel: nn.Module, rounding: Rounding, z: Tensor) -> Tensor:
    """The code of clean features at a fixed rounding: int64 in the shape of z."""
    assert isinstance(channel, Channel) and rounding.fixed
    stages = list(channel.single_stages())[: rounding.place + 1]
    for stage in stages:
        z = stage(z)
    return codes_of_release(z, stages[-1].options)


def nats_of_codes(case: Case, runtimes: int = 1) -> Bits | None:
    """The smallest bound by the codes of a stage, over `runtimes` programs that compute them; None: nothing rounds."""
    bounds = [_bits(case, one, runtimes) for one in roundings(case.model.channel)]
    return min(bounds, key=lambda bits: (bits.nats, not bits.any_number), default=None)


def _bits(case: Case, rounding: Rounding, runtimes: int) -> Bits:
    once = rounding.repeats and not case.threat.jitter  # jittered pixels are another image
    many = runtimes if once else case.threat.releases_per_input
    return Bits(many * case.released[0].numel() * rounding.bits * math.log(2), once)
