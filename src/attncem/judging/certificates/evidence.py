"""Evidence of leakage: lower bounds in nats, from matching releases to images and from an attack's reconstructions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from attncem.base.texts import written
from attncem.base.types import NotApplicable
from attncem.config.options.certificates import EvidenceOptions
from attncem.judging.certificates.images import FINEST, Components, components_of
from attncem.judging.certificates.making import Numbers, measured
from attncem.judging.certificates.passage import Noise, evaluation_features, noise_of, releases_of
from attncem.judging.judges import Certificate
from attncem.models.channels import IdentityChannel
from attncem.records.bounds import Bound

if TYPE_CHECKING:
    from attncem.judging.case import Case

_STILL = 1e-6
"""Smallest change that a channel is assumed to make, as a share of the variance of z."""

_SCORES = 2**24
"""Limit on the scores that are in memory at once."""


class LeakageEvidence(Certificate):
    """Lower bounds on I(x; released), none of which proves safety: InfoNCE, at most ln N, and a decoder's.

    InfoNCE (van den Oord et al. 2018) holds for every score of a pair; ours is the likelihood under the noise. From a
    decoder: I ≥ h(Px) − ½ Σ log(2πe r_i), with r_i the residual variance of each component; this is an estimate,
    because h is that of a normal law.
    """

    options_type = EvidenceOptions
    options: EvidenceOptions

    def bound(self, case: Case, *, seed: int) -> Mapping[str, Bound]:
        """`infonce`, and `decoder` if the adversary has what an attack requires."""
        found = {"infonce": self._told_apart(case)}
        try:
            name, images = case.recovered(seed)
            found["decoder"] = replace(recovered_nats(components_of(case), case.x, images), by=name)
        except NotApplicable:
            return found
        return found

    def _told_apart(self, case: Case) -> Bound:
        noise, releases = known_noise(case)
        count = min(self.options.candidates or len(case.x), len(case.x))
        if count < 2:
            raise NotApplicable(written("reason.one_image"))
        features = evaluation_features(case, noise)[:count]
        seen = noise.stage.whitened(case.seen_of(case.x[:count], "evidence")).flatten(1).float()
        if seen.shape != features.shape:
            raise NotApplicable(written("reason.other_shape"))
        if noise.std == 0:
            changed, least = (seen - features).square().mean(), _STILL * features.var().clamp_min(_STILL)
            noise = replace(noise, std=float(torch.maximum(changed, least).sqrt()))
        values = contrast(seen, features, noise, releases)
        found = measured(values, "nats", "leakage", ["same_law"], at_least=True)
        return replace(found, ceiling=math.log(count), vacuous=found.claim <= 0)


def known_noise(case: Case) -> tuple[Noise, int]:
    """The noise that scores releases, and the number of its draws that are seen; noise of size 0 if no law applies.

    Any score gives evidence: if the law is unknown, releases are compared with z at the scale of the channel's change.
    """
    try:
        noise = noise_of(case.model.channel)
        return noise, releases_of(case, noise)
    except NotApplicable:
        return Noise("gaussian", 0.0, (), IdentityChannel(), repeats=True), 1


def contrast(seen: Tensor, features: Tensor, noise: Noise, releases: int) -> Numbers:
    """Ln N + log of the share of each image's own feature in the likelihood of its release."""
    shares, wide = [], features.double()
    for rows in torch.arange(len(seen), device=seen.device).split(max(1, _SCORES // len(seen))):
        part = seen[rows].double()
        if noise.law == "laplace" and releases == 1:
            scores = -torch.cdist(part, wide, p=1) / (noise.std / 2**0.5)
        else:
            scores = -torch.cdist(part, wide).square() * releases / (2 * noise.std**2)
        shares.append(scores.log_softmax(1)[torch.arange(len(rows), device=rows.device), rows])
    return np.asarray((torch.cat(shares) + math.log(len(seen))).cpu().numpy())


def recovered_nats(components: Components, x: Tensor, images: Tensor) -> Bound:
    """Nats that an attack's reconstructions prove, if the components of the images are normal.

    The number of each image is the estimate linearised to first order: the mean of these numbers is the estimate, and
    their spread is its error.
    """
    left = ((images.to(x) - x[: len(images)]).flatten(1) @ components.axes.T).double()
    left = left - left.mean(0)
    known, missed = components.places[: len(images)].square(), left.square()
    variance, rest = known.mean(0).clamp_min(FINEST), missed.mean(0).clamp_min(FINEST)
    told = rest < variance
    nats = 0.5 * (variance / rest).log()[told].sum()
    each = nats + 0.5 * (known / variance - missed / rest)[:, told].sum(1)
    found = measured(each.cpu().numpy(), "nats", "leakage", ["same_law", "entropy_normal"], at_least=True)
    return replace(found, kind="estimate", vacuous=found.claim <= 0)
