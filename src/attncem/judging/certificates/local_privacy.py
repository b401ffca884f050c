"""Local differential privacy of a channel that clips each sample and adds normal noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from attncem.base.texts import written
from attncem.base.types import NotApplicable
from attncem.config.options.certificates import LocalPrivacyOptions
from attncem.config.options.channels import SLACK, gaussian_mechanism_delta
from attncem.judging.certificates.making import TOLD_APART, certain
from attncem.judging.certificates.passage import noise_of, releases_of
from attncem.judging.judges import Certificate
from attncem.models.channels import LocalDPChannel
from attncem.records.bounds import Bound

if TYPE_CHECKING:
    from attncem.judging.case import Case

_STEPS = 200


class LocalPrivacy(Certificate):
    """(ε, δ) between any two inputs, for all releases that are seen: k of them equal one with noise σ/√k."""

    options_type = LocalPrivacyOptions
    options: LocalPrivacyOptions

    def bound(self, case: Case, *, seed: int) -> Mapping[str, Bound]:
        """`epsilon` at the channel's own δ."""
        noise = noise_of(case.model.channel)
        if not isinstance(noise.stage, LocalDPChannel):
            raise NotApplicable(written("reason.not_clipped"))
        own, releases = noise.stage.options, releases_of(case, noise)
        epsilon = own.epsilon if releases == 1 else smallest_epsilon(own.delta, noise.std / (2 * own.clip), releases)
        assumed = ["as_drawn", *(["key_secret"] if noise.keyed else [])]
        made = certain(epsilon, f"nats at δ = {own.delta:g}", "epsilon", assumed)
        return {"epsilon": replace(made, vacuous=epsilon >= TOLD_APART)}


def smallest_epsilon(delta: float, noise_ratio: float, releases: int) -> float:
    """The smallest ε of k releases at δ, for noise of `noise_ratio` times the largest difference of two inputs.

    By the analytic Gaussian mechanism, minus the slack that the channel reserves for its noise as drawn.
    """
    ratio, wanted = noise_ratio / releases**0.5, delta * (1 - SLACK)
    low, high = 0.0, 1.0
    while gaussian_mechanism_delta(high, ratio) > wanted:
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_mechanism_delta(middle, ratio) > wanted else (low, middle)
    return high / (1 - SLACK)
